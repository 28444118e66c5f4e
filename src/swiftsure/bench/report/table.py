"""The same in a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from swiftsure.bench.compare import Comparison
from swiftsure.bench.figures.definitions import DEFINITIONS
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.summary import Summary
from swiftsure.bench.report.words import amount, figure, headline, interval, short_reason, sublines
from swiftsure.errors import quotable

WIDTH = 80
_NAME = 16


def text_table(summary: Summary) -> str:
    """Verdict, a row a group, the checks' warnings, and what was not measured. No line is longer than 80 characters."""
    lines = [*_wrapped(headline(summary)), *(line for words in sublines(summary) for line in _wrapped(words))]
    if summary.groups:
        lines += ["", *_groups(summary.groups)]
    for grade, title in (("refused", "Refused"), ("warning", "Warnings"), ("note", "Notes")):
        found = [f"{finding.about}: {finding.words}" for finding in summary.findings if finding.grade == grade]
        if found:
            lines += ["", f"{title}:", *(line for words in found for line in _item(words))]
    if summary.not_measured:
        lines += ["", "Not measured:", *(line for words in summary.not_measured for line in _item(words))]
    return "\n".join(lines) + "\n"


def formulas_table() -> str:
    """Every figure with its formula, as the page and the docs give them."""
    return "\n".join(line for d in DEFINITIONS.values() for line in _item(f"{d.name} ({d.title}, {d.unit}) = {d.formula}")) + "\n"


def comparison_table(comparison: Comparison) -> str:
    """B against A, a line a figure; or why they cannot be compared."""
    lines = []
    if not comparison.comparable:
        lines += ["NOT COMPARABLE:", *(line for words in comparison.refusals for line in _item(words))]
    group = None
    for row in comparison.rows:
        if row.group != group:
            lines += [*([""] if lines else []), _columns((row.group, "A", "B", "B as good as A", "verdict"))]
            group = row.group
        bounds = "" if row.low is None or row.high is None else f" ({row.low:.2f} to {row.high:.2f})"
        unit = {"money": "", "tokens/s": "t/s"}.get(row.unit, row.unit)
        lines.append(_columns((row.figure, amount(row.a, unit), amount(row.b, unit), f"{row.ratio:.2f}x{bounds}", row.verdict)))
    if comparison.marks:
        lines += ["", "To be read with it:", *(line for words in comparison.marks for line in _item(words))]
    return "\n".join(lines) + "\n"


def _columns(cells: Sequence[str]) -> str:
    widths = (17, 10, 10, 24)
    return "".join(f"{cell[: width - 1]:<{width}}" for cell, width in zip(cells, widths, strict=False)) + cells[-1][: WIDTH - sum(widths)]


def _groups(groups: Sequence[Group]) -> Iterator[str]:
    yield f"{'':<{_NAME}}{'sent':>6} {'TTFT':>8} {'(95 %)':>12} {'p95':>8} {'tokens/s':>8} {'(95 %)':>10} {'all':>6}"
    for group in groups:
        name = _short(group)
        if group.refused is not None:
            yield f"{name:<{_NAME}}{group.exchanges:>6} REFUSED"
            continue
        ttft, speed = group.figures.get("ttft_p50"), group.figures.get("decode_p50")
        all_of_them = group.figures.get("aggregate")
        yield (
            f"{name:<{_NAME}}{group.exchanges:>6} {figure(group, 'ttft_p50')[:8]:>8} {_bounds(interval(ttft, 's')):>12} "
            f"{figure(group, 'ttft_p95')[:8]:>8} {_number(group, 'decode_p50'):>8} {_bounds(interval(speed, 'tokens/s')):>10} "
            f"{'-' if all_of_them is None or all_of_them.value is None else f'{all_of_them.value:.4g}':>6}"
        )
        for key in ("decode_p50", "first_answer_p50"):
            estimate = group.figures.get(key)
            if estimate is not None and estimate.value is None and group.succeeded:
                yield from _item(f"{DEFINITIONS[key.partition('_p')[0]].title}: {estimate.words or short_reason(None)}", "    ")


def _short(group: Group) -> str:
    name = group.name if len(group.name) < _NAME else group.name.replace(" users", "u").replace(" a second", "/s")
    return name[: _NAME - 1]


def _number(group: Group, name: str) -> str:
    value = group.value(name)
    return "-" if value is None else f"{value:.4g}"


def _bounds(words: str) -> str:
    """``200 to 221 ms`` as ``200-221``: the unit stands with the median."""
    if not words or " to " not in words:
        return "too few" if words == "too few" else "-"
    low, _, high = words.partition(" to ")
    return f"{low}-{high.split(' ')[0]}"


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(quotable(words), WIDTH)


def _item(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(quotable(words), WIDTH, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ")
