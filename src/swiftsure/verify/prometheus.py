"""Samples of a metric in Prometheus's text format, by a name and labels as one writes them there."""

from __future__ import annotations

import re

from swiftsure.errors import UsageError

_LABEL = r'(?P<label>[A-Za-z_]\w*)="(?P<value>(?:[^"\\\n]|\\.)*)"'
_LABELS = re.compile(_LABEL)
_NAME = r"(?P<name>[A-Za-z_:][\w:]*)"
_WANTED = re.compile(rf"{_NAME}(?:\{{\s*(?P<labels>{_LABEL}(?:\s*,\s*{_LABEL.replace('?P<label>', '').replace('?P<value>', '')})*)\s*\}})?")
_SAMPLE = re.compile(r'^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*)\})?[ \t]+(?P<value>\S+)', re.MULTILINE)


def samples(text: str, metric: str) -> list[str]:
    """The values of ``metric`` as they are written: ``name``, or ``name{label="value"}`` where a sample may have more labels than these."""
    name, wanted = parse_metric(metric)
    return [
        found["value"]
        for found in _SAMPLE.finditer(text)
        if found["name"] == name and wanted.items() <= dict(_LABELS.findall(found["labels"] or "")).items()
    ]


def parse_metric(metric: str) -> tuple[str, dict[str, str]]:
    """Name and labels. Raises UsageError for what is neither ``name`` nor ``name{label="value"}``."""
    found = _WANTED.fullmatch(metric.strip())
    if found is None:
        raise UsageError(f'a metric is written as name or name{{label="value"}}, got {metric!r}')
    return found["name"], dict(_LABELS.findall(found["labels"] or ""))
