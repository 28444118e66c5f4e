"""The record as a page: per engine the time of a token and the memory against the context, beside the base; no script, no other file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from swiftsure.records.charts import Line, line_chart
from swiftsure.records.page import render_page

FIGURES = (
    ("decode_ms", "time of a decoded token", "ms a token"),
    ("memory_mb", "peak memory", "MB"),
)


def write(result: Mapping[str, Any], path: Path) -> None:
    path.write_text(render(result), encoding="utf-8")


def render(result: Mapping[str, Any]) -> str:
    curves = {one["name"]: {"decode_ms": decode_ms(one), "memory_mb": memory_mb(one)} for one in result["contenders"]}
    values = {
        "result": result,
        "tables": report.tables(result),
        "engines": [
            {"name": name, "charts": [_chart(curves, result["base"], name, *figure) for figure in FIGURES]}
            for name, own in curves.items()
            if any(own.values())
        ],
        "absent": [one for one in result["contenders"] if one["reason"]],
    }
    return render_page("benchmarks.peers", "peers.html.j2", values, {})


def decode_ms(one: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Context and milliseconds a token."""
    sizes = one["sizes"].items()
    return [(float(size), 1000 / cell["decode_tokens_per_s"]) for size, cell in sizes if cell["decode_tokens_per_s"] is not None]


def memory_mb(one: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Context and peak resident megabytes while prompt and decoding lasted."""
    sizes = one["sizes"].items()
    return [(float(size), cell["peak_rss_bytes"] / 1e6) for size, cell in sizes if cell["peak_rss_bytes"] is not None]


def _chart(curves: Mapping[str, Mapping[str, list[tuple[float, float]]]], base: str, name: str, what: str, title: str, unit: str) -> Any:
    lines = [Line(label=name, points=curves[name][what])]
    if name != base and curves[base][what]:
        lines.insert(0, Line(label=base, points=curves[base][what], reference=True))
    return line_chart(lines, title=f"{name}: {title}", x_name="context, tokens", y_name=unit)
