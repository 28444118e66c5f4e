"""The plots of a bench run, as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.reading import Reading
from swiftsure.bench.figures.summary import Summary
from swiftsure.bench.report.words import amount, interval
from swiftsure.records.charts import Bar, Dots, Line, bar_chart, dot_chart, line_chart
from swiftsure.records.statistics import median

_MOST_BARS = 12


def plots(summary: Summary) -> Iterator[dict[str, Any]]:
    """Each with title, caption and svg; what was not measured has no plot."""
    yield from _context(summary)
    yield from _concurrency(summary)
    yield from _gaps(summary)
    yield from _rows(summary)
    yield from _day(summary)


def _plot(title: str, caption: str, svg: str) -> dict[str, Any]:
    return {"title": title, "caption": caption, "svg": svg}


def _context(summary: Summary) -> Iterator[dict[str, Any]]:
    """One point a prompt, cold and with context: the slope is the prefill cost."""
    lines = []
    for series, row in enumerate(("cold", "context"), start=1):
        group = summary.group(row)
        points = [] if group is None else _by_prompt([r for r in summary.readings if r.row == row and r.users == group.users])
        if points:
            lines.append(Line(label=row, points=points, series=series, joined=False))
    if len({x for line in lines for x, _ in line.points}) > 1:
        caption = "Medians by prompt. "
        if summary.prefill is not None and summary.prefill.value is not None:
            caption += f"Each 1,000 tokens more cost {amount(summary.prefill.value, 's')} ({interval(summary.prefill, 's')})."
        svg = line_chart(lines, title="TTFT against prompt tokens", x_name="prompt tokens", y_name="s")
        yield _plot("Time to first token against context", caption, svg)


def _by_prompt(readings: Sequence[Reading]) -> list[tuple[float, float]]:
    by_prompt: dict[str, list[Reading]] = {}
    for reading in readings:
        if "ttft" in reading.values and "prompt_tokens" in reading.values:
            by_prompt.setdefault(reading.prompt, []).append(reading)
    return [(median(r.values["prompt_tokens"] for r in own), median(r.values["ttft"] for r in own)) for own in by_prompt.values()]


def _concurrency(summary: Summary) -> Iterator[dict[str, Any]]:
    """For the row that was run with the most numbers of users (or rates)."""
    for groups, x_name in _ladders(summary):
        xs = [group.users if group.rate_per_s is None else group.rate_per_s for group in groups]
        for title, name, unit, series in (
            ("All users together", "aggregate", "tokens/s", 2),
            ("Each user", "decode_p50", "tokens/s", 1),
            ("First token under load", "ttft_p50", "s", 1),
        ):
            line = _line(title, xs, [group.figures.get(name) for group in groups], series)
            if len(line.points) > 1:
                svg = line_chart(
                    [line], title=f"{title} over {x_name}", x_name=x_name, y_name=unit, log_x=max(xs) > 8 * min(xs), x_ticks=xs
                )
                yield _plot(f"{title}, over {x_name}", f"{groups[0].row}; the band is the 95 % interval.", svg)


def _ladders(summary: Summary) -> Iterator[tuple[list[Group], str]]:
    for x_name, open_loop in (("users", False), ("requests a second", True)):
        rows: dict[str, list[Group]] = {}
        for group in summary.groups:
            if group.figures and (group.rate_per_s is not None) == open_loop:
                rows.setdefault(group.row, []).append(group)
        longest = max(rows.values(), key=len, default=[])
        if len(longest) > 1:
            yield sorted(longest, key=lambda g: (g.rate_per_s or 0.0, g.users)), x_name


def _line(label: str, xs: Sequence[float], estimates: Sequence[Estimate | None], series: int) -> Line:
    known = [(x, e) for x, e in zip(xs, estimates, strict=True) if e is not None and e.value is not None]
    return Line(
        label=label,
        points=[(x, e.value) for x, e in known if e.value is not None],
        band=[(x, e.low, e.high) for x, e in known if e.low is not None and e.high is not None],
        series=series,
    )


def _gaps(summary: Summary) -> Iterator[dict[str, Any]]:
    """The share of gaps up to each length, for the first group and the most crowded one."""
    curved = [group for group in summary.groups if len(group.itl_curve) > 1 and group.itl_curve[-1] > 0]
    if not curved:
        return
    shown = list({group.name: group for group in (curved[0], max(curved, key=lambda g: (g.users, g.rate_per_s or 0.0)))}.values())
    lines = []
    for series, group in enumerate(shown, start=1):
        points = [(max(gap * 1000, 0.01), share) for share, gap in enumerate(group.itl_curve)]
        lines.append(Line(label=group.name, points=points, series=series, spots=False))
    svg = line_chart(
        lines, title="Distribution of the gaps between arrivals", x_name="gap between arrivals, ms", y_name="% of gaps", log_x=True
    )
    yield _plot("Gaps between arrivals", "How many of all gaps are no longer than this. A steep line is an even stream.", svg)


def _rows(summary: Summary) -> Iterator[dict[str, Any]]:
    """The rows side by side, at the fewest users of each."""
    rows = list(dict.fromkeys(group.row for group in summary.groups if group.figures))[:_MOST_BARS]
    groups = [group for row in rows if (group := summary.group(row)) is not None and group.figures]
    if len(groups) < 2:
        return
    for title, name, unit in (("First token, by row", "ttft_p50", "s"), ("Decode speed, by row", "decode_p50", "tokens/s")):
        known = [(group, estimate) for group in groups if (estimate := group.figures.get(name)) is not None and estimate.value is not None]
        bars = [
            Bar(
                label=g.name,
                value=e.value or 0.0,
                text=f"{amount(e.value, unit)} ({interval(e, unit)})",
                series=1 if g.row == "cold" else 0,
            )
            for g, e in known
        ]
        if len(bars) > 1:
            yield _plot(title, "Medians with their 95 % intervals.", bar_chart(bars, title=title))


def _day(summary: Summary) -> Iterator[dict[str, Any]]:
    main = summary.main
    if main is None:
        return
    rounds = [g for g in summary.by_round if (g.row, g.users, g.rate_per_s) == (main.row, main.users, main.rate_per_s)]
    for title, name, unit, scale in (("First token", "ttft_p50", "s", 1000.0), ("Decode speed", "decode_p50", "tokens/s", 1.0)):
        overall = main.figures.get(name)
        known = [(group, e) for group in rounds if (e := group.figures.get(name)) is not None and e.value is not None]
        if len(known) < 2 or overall is None or overall.value is None:
            continue
        dots = [
            Dots(
                label=f"round {group.round}, {(group.started or '')[:16].replace('T', ' ')} UTC",
                values=[(e.value or 0.0) * scale],
                text=amount(e.value, unit),
                low=None if e.low is None else e.low * scale,
                high=None if e.high is None else e.high * scale,
                strong=True,
            )
            for group, e in known
        ]
        svg = dot_chart(dots, title=f"{title} by round", reference=overall.value * scale)
        unit_words = "ms" if unit == "s" else unit
        yield _plot(f"{title}, round by round", f"{main.name}, {unit_words}; the line is the median over all rounds.", svg)
