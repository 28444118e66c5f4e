"""The figures of a folder that ``swiftsure bench`` measured into, or of a summary that was written to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from swiftsure.bench.figures.settings import Settings
from swiftsure.bench.figures.summary import Summary, load_summary, summarize
from swiftsure.bench.protocol.store import HEAD, Bench, read_bench


def read_summary(path: str | Path, settings: Settings | None = None) -> Summary:
    """``path``: a folder or its bench.json, whose figures are computed with ``settings``; or a summary's own file, taken as it is.

    Raises UsageError where it is neither.
    """
    given = Path(path)
    if given.is_dir() or given.name == HEAD:
        return summary_of(read_bench(given), settings)
    return load_summary(given)


def summary_of(bench: Bench, settings: Settings | None = None) -> Summary:
    """``settings.about`` is made from bench.json: target, prompts, protocol, context, machine."""
    settings = settings or Settings()
    context = bench.head.get("context") or {}
    added = settings.context_tokens or context.get("tokens")
    about = {**about_of(bench.head), **settings.about}
    return summarize(bench.exchanges, bench.cells, replace(settings, about=about, context_tokens=added))


def about_of(head: Mapping[str, Any]) -> dict[str, Any]:
    """What the page names and what two runs must share."""
    prompts = head.get("prompts") or {}
    items = prompts.get("items") or []
    context = head.get("context")
    about: dict[str, Any] = {"measured": head.get("created"), "target": head.get("target"), "protocol": head.get("settings")}
    about["prompts"] = f"{len(items)} from {prompts.get('source')}"
    about["prompts_sha256"] = prompts.get("sha256")
    if context:
        scaled = ", scaled to the model's window" if context.get("scaled") else ""
        about["context"] = f"{context.get('tokens'):,} of {context.get('wanted_tokens'):,} tokens wanted{scaled}"
    about["machine"] = head.get("machine")
    return {name: value for name, value in about.items() if value is not None}
