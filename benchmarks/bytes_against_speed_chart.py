"""The curve as an SVG file that stands alone: a point a version, the fitted line and the line through the origin, a panel a model."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 420, 300, 56, 44, 40


def chart(models: Mapping[str, Mapping[str, Any]]) -> str:
    """``models``: name -> what ``bytes_against_speed.summarize`` gave."""
    panels = [_panel(name, model, index * _WIDTH) for index, (name, model) in enumerate(models.items())]
    width = _WIDTH * len(panels)
    style = (
        "text{font:12px sans-serif;fill:#333}.title{font-weight:bold}.axis{stroke:#888}.fit{stroke:#2563eb;stroke-width:1.5}"
        ".proportional{stroke:#aaa;stroke-dasharray:4 4}.dot{fill:#2563eb}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}">'
        f'<style>{style}</style><rect width="{width}" height="{_HEIGHT}" fill="#fff"/>{"".join(panels)}</svg>\n'
    )


def _panel(name: str, model: Mapping[str, Any], left: int) -> str:
    versions = model["versions"]
    most_mb = max(v["bytes_a_token"] for v in versions.values()) / 1e6 * 1.1
    most_ms = max(v["ms_a_token"] for v in versions.values()) * 1.15

    def x(mb: float) -> float:
        return left + _LEFT + mb / most_mb * (_WIDTH - _LEFT - 16)

    def y(ms: float) -> float:
        return _HEIGHT - _BOTTOM - ms / most_ms * (_HEIGHT - _BOTTOM - _TOP)

    def line(css: str, *ends: float) -> str:
        x1, y1, x2, y2 = (f"{end:.1f}" for end in ends)
        return f'<line class="{css}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'

    fit = model["fit"]
    widest = max(versions.values(), key=lambda v: float(v["bytes_a_token"]))
    slope = widest["ms_a_token"] / (widest["bytes_a_token"] / 1e6)
    at_right = fit["fixed_ms"] + fit["ns_a_byte"] * most_mb  # ns a byte are ms a MB
    parts = [
        f'<text class="title" x="{left + _LEFT}" y="18">{escape(name)}</text>',
        f'<text x="{left + _LEFT}" y="34">{fit["fixed_ms"]:.2f} ms + bytes / {fit["gb_per_s"]:.1f} GB/s</text>',
        line("axis", x(0), y(0), x(most_mb), y(0)),
        line("axis", x(0), y(0), x(0), y(most_ms)),
        line("proportional", x(0), y(0), x(most_mb), y(slope * most_mb)),
        line("fit", x(0), y(fit["fixed_ms"]), x(most_mb), y(at_right)),
        f'<text x="{x(most_mb):.0f}" y="{_HEIGHT - 8}" text-anchor="end">MB a token reads (dashed: proportional to 16 bits)</text>',
        f'<text x="{left + 6}" y="{y(most_ms) - 6:.0f}">ms a token</text>',
    ]
    for kind, version in versions.items():
        at_x, at_y = x(version["bytes_a_token"] / 1e6), y(version["ms_a_token"])
        label = f"{kind}: {version['bytes_a_token'] / 1e6:.0f} MB, {version['ms_a_token']:.2f} ms"
        above = kind in ("Q4_1", "BF16")  # 4.5 and 5 bits lie close: one label above its point, one below
        anchor = "end" if version is widest else "start"
        text_x, text_y = at_x + (-8 if anchor == "end" else 6), at_y + (-8 if above else 16)
        parts.append(f'<circle class="dot" cx="{at_x:.1f}" cy="{at_y:.1f}" r="4"/>')
        parts.append(f'<text x="{text_x:.1f}" y="{text_y:.1f}" text-anchor="{anchor}">{label}</text>')
    return "".join(parts)
