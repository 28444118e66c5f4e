"""Plots as inline SVG: no plotting library, no script, no file from elsewhere. Colours are the page's, so that dark and light both work.

Every plot is 400 units wide and scales with the page; labels stand above their bars, so that a phone shows them in full.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 400.0
_LINE = 15.0  # a line of text
_BAR = 13.0
_GAP = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One horizontal bar. ``series`` (0, 1, ...) picks the colour, ``text`` stands at the end of the label's line."""

    label: str
    value: float
    text: str
    series: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One bar made of named parts that follow each other."""

    label: str
    parts: Sequence[tuple[str, float]]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Measured values on one line; ``low`` and ``high`` draw an interval behind them."""

    label: str
    values: Sequence[float]
    text: str
    low: float | None = None
    high: float | None = None
    strong: bool = False


def bar_chart(bars: Sequence[Bar], *, title: str) -> Markup:
    """Bars from zero. Raises ``ValueError`` for negative or infinite values."""
    top = max((_positive(bar.value) for bar in bars), default=0.0) or 1.0
    rows = [
        _row(i, bar.label, bar.text, _rect(0, bar.value / top * WIDTH, i, f"series-{bar.series}", f"{bar.label}: {bar.text}"))
        for i, bar in enumerate(bars)
    ]
    return _svg(rows, title)


def stack_chart(stacks: Sequence[Stack], *, title: str) -> Markup:
    """Stacked bars on one scale, with a legend."""
    top = max((sum(_positive(value) for _, value in stack.parts) for stack in stacks), default=0.0) or 1.0
    names = list(dict.fromkeys(name for stack in stacks for name, _ in stack.parts))
    rows = []
    for i, stack in enumerate(stacks):
        x, shapes = 0.0, []
        for name, value in stack.parts:
            width = value / top * WIDTH
            shapes.append(_rect(x, width, i, f"part-{names.index(name)}", f"{stack.label}, {name}: {value:.3g} s"))
            x += width
        rows.append(_row(i, stack.label, stack.text, "".join(shapes)))
    return _svg(rows, title) + _legend(names)


def dot_chart(rows: Sequence[Dots], *, title: str, reference: float = 1.0) -> Markup:
    """Dots on a common axis with a line at ``reference``; the axis covers all values and the reference."""
    known = [value for row in rows for value in (*row.values, row.low, row.high) if value is not None] + [reference]
    low, high = min(known), max(known)
    margin = (high - low) * 0.05 or 0.1
    low, high = low - margin, high + margin

    def x(value: float) -> float:
        return 4 + (value - low) / (high - low) * (WIDTH - 8)

    height = len(rows) * _row_height() + _LINE
    shapes = []
    for i, row in enumerate(rows):
        middle = i * _row_height() + _LINE + _BAR / 2
        place = f'x1="{x(reference):.1f}" x2="{x(reference):.1f}"'
        marks = [f'<line class="reference" {place} y1="{middle - _BAR / 2:.1f}" y2="{middle + _BAR / 2 + 3:.1f}"/>']
        if row.low is not None and row.high is not None:
            marks.append(
                f'<rect class="interval" x="{x(row.low):.1f}" y="{middle - 4:.1f}" width="{x(row.high) - x(row.low):.1f}" height="8"/>'
            )
        size = 4.5 if row.strong else 3
        marks += [f'<circle class="dot" cx="{x(value):.1f}" cy="{middle:.1f}" r="{size}"/>' for value in row.values]
        shapes.append(_row(i, row.label, row.text, "".join(marks), strong=row.strong))
    for value in _ticks(low, high):
        shapes.append(f'<text class="tick" x="{x(value):.1f}" y="{height - 2:.1f}" text-anchor="middle">{value:g}</text>')
    return _svg(shapes, title, height)


def _positive(value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"a bar needs a finite value of at least 0, got {value}")
    return value


def _row_height() -> float:
    return _LINE + _BAR + _GAP


def _row(index: int, label: str, text: str, shapes: str, *, strong: bool = False) -> str:
    y = index * _row_height() + _LINE - 4
    weight = ' class="strong"' if strong else ""
    return (
        f'<text{weight} x="0" y="{y:.1f}">{escape(label)}</text>'
        f'<text{weight} x="{WIDTH:.0f}" y="{y:.1f}" text-anchor="end">{escape(text)}</text>{shapes}'
    )


def _rect(x: float, width: float, index: int, css: str, tip: str) -> str:
    y = index * _row_height() + _LINE
    return (
        f'<rect class="{css}" x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.5):.2f}" height="{_BAR:.0f}"><title>{escape(tip)}</title></rect>'
    )


def _svg(rows: Sequence[str], title: str, height: float | None = None) -> Markup:
    size = height if height is not None else len(rows) * _row_height()
    return Markup(f'<svg class="chart" viewBox="0 0 {WIDTH:.0f} {size:.0f}" role="img" aria-label="{escape(title)}">{"".join(rows)}</svg>')


def _legend(names: Iterable[str]) -> Markup:
    items = "".join(f'<span><i class="part-{i}"></i>{escape(name)}</span>' for i, name in enumerate(names))
    return Markup(f'<p class="legend">{items}</p>')


def _ticks(low: float, high: float) -> list[float]:
    """Four to nine round values within the axis."""
    step = 10 ** math.floor(math.log10(high - low))
    for factor in (1.0, 0.5, 0.25, 0.2, 0.1):
        first = math.ceil(low / (step * factor))
        ticks = [i * step * factor for i in range(first, math.floor(high / (step * factor)) + 1)]
        if len(ticks) >= 4:
            return [round(tick, 10) for tick in ticks]
    return [low, high]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Measured points ``(x, y)`` joined in the order of x. ``reference`` lines stand back: something to compare with.

    ``band``: an interval as ``(x, low, high)``. ``joined`` False draws the points alone, ``spots`` False the line alone.
    """

    label: str
    points: Sequence[tuple[float, float]]
    series: int = 1
    reference: bool = False
    band: Sequence[tuple[float, float, float]] = ()
    joined: bool = True
    spots: bool = True


_LEFT, _BOTTOM, _HEIGHT = 38.0, 164.0, 140.0  # a line of room on top for the unit


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where a point of a line chart lies. Of a logarithmic axis ``near`` is the left end, else 0 is."""

    near: float
    far: float
    high: float
    log_x: bool

    def x(self, value: float) -> float:
        by_ratio = math.log(self.far / self.near) or 1.0 if self.log_x else 1.0
        part = math.log(value / self.near) / by_ratio if self.log_x else value / self.far
        return _LEFT + part * (WIDTH - _LEFT - 6)

    def y(self, value: float) -> float:
        return _BOTTOM - value / self.high * _HEIGHT

    def x_ticks(self) -> list[float]:
        return _log_ticks(self.near, self.far) if self.log_x else _ticks(0.0, self.far)


def line_chart(
    lines: Sequence[Line], *, title: str, x_name: str, y_name: str, log_x: bool = False, x_ticks: Sequence[float] | None = None
) -> Markup:
    """Lines over a common axis from zero to the largest x and the largest y, with a legend. ``log_x``: from the smallest x, by ratios.
    ``x_ticks``: values that the axis names instead of round ones.

    Raises ``ValueError`` for negative or infinite values, and on a logarithmic axis for an x of 0.
    """
    xs = [_positive(x) for line in lines for x, *_ in (*line.points, *line.band)]
    ys = [_positive(y) for line in lines for _, *values in (*line.points, *line.band) for y in values]
    if log_x and not all(xs):
        raise ValueError("a logarithmic axis needs values above 0, got 0")
    frame = _Frame(near=min(xs, default=1.0), far=max(xs, default=0.0) or 1.0, high=max(ys, default=0.0) or 1.0, log_x=log_x)
    shapes = [f'<text class="tick" x="0" y="8">{escape(y_name)}</text>']
    for y in _ticks(0.0, frame.high):
        at = frame.y(y)
        shapes.append(f'<line class="grid" x1="{_LEFT:.1f}" x2="{WIDTH - 6:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>')
        shapes.append(f'<text class="tick" x="{_LEFT - 5:.1f}" y="{at + 3:.1f}" text-anchor="end">{y:g}</text>')
    for x in frame.x_ticks() if x_ticks is None else x_ticks:
        shapes.append(f'<text class="tick" x="{frame.x(x):.1f}" y="{_BOTTOM + 13:.1f}" text-anchor="middle">{x:g}</text>')
    shapes.append(f'<text class="tick" x="{WIDTH:.0f}" y="{_BOTTOM + 26:.1f}" text-anchor="end">{escape(x_name)}</text>')
    shapes += [shape for line in lines for shape in _line_shapes(line, frame)]
    keys = "".join(f'<span><i class="{_key(line)}"></i>{escape(line.label)}</span>' for line in lines)
    return _svg(shapes, title, _BOTTOM + 30) + Markup(f'<p class="legend">{keys}</p>')


def _line_shapes(line: Line, frame: _Frame) -> list[str]:
    css = "line-reference" if line.reference else f"line-{line.series}"
    points, shapes = sorted(line.points), []
    if len(line.band) > 1:
        upper = [(x, high) for x, _, high in sorted(line.band)]
        lower = [(x, low) for x, low, _ in sorted(line.band, reverse=True)]
        corners = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in (*upper, *lower))
        shapes.append(f'<polygon class="band-{line.series}" points="{corners}"/>')
    if line.joined:
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        shapes.append(f'<polyline class="{css}" points="{path}"/>')
    for x, y in points if line.spots else ():
        tip = f"{line.label}: {y:.4g} at {x:g}"
        shapes.append(
            f'<circle class="{css} spot" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2.5"><title>{escape(tip)}</title></circle>'
        )
    return shapes


def _key(line: Line) -> str:
    return "key-reference" if line.reference else f"key-{line.series}"


def _log_ticks(near: float, far: float) -> list[float]:
    """Round values between the ends: by powers of ten where these are many, else with their doubles and fives."""
    decades = range(math.floor(math.log10(near)), math.ceil(math.log10(far)) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        ticks = [round(factor * 10.0**decade, 10) for decade in decades for factor in factors]
        ticks = [tick for tick in ticks if near * 0.999 <= tick <= far * 1.001]
        if len(ticks) >= 4:
            return ticks
    return ticks if len(ticks) > 1 else [near, far]
