"""The measurement in words: cells of its tables, and the HTML page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from swiftsure.bench.tiers.boarding import BOARDINGS, Boarding
from swiftsure.bench.tiers.figures import Figures
from swiftsure.bench.tiers.measure import TierResult
from swiftsure.records.charts import Line, line_chart
from swiftsure.records.page import machine_rows, render_page

CURVE_HEAD = ("rows a pass", "tokens/s a user", "tokens/s in all", "first token ms", "gap p99 ms", "per million")
BOARDING_HEAD = ("seats", "boarding", "seat ms", "p99", "first ms", "p99", "a user", "in all", "gap p99")
FLOOD_HEAD = ("slack", "gap p50", "flood", "gap p99", "flood", "moved", "stretch", "allowed", "", "first ms", "flood", "standard", "left")
NAMES: dict[Boarding, str] = {"at_once": "at once", "continuous": "continuous", "full": "when full"}

NOTES = (
    "Rows a pass: so many requests share every pass, drafts aside; all begin together and the next batch begins when the last one has "
    "ended. Tokens/s a user are the median request's from its first token on; tokens/s in all count the time of prompts too. The price "
    "of a million new tokens is what the machine costs in the time that they take, with the seats always taken.",
    "Boarding: the same requests at the same moments (Poisson) in every line. At once: a bus leaves with whoever is there, and who comes "
    "later waits until it is back. When full: it waits until its seats are taken. Continuous: whoever comes takes a free seat at the next "
    "edge between two passes. Seat ms is the wait until a request may board, in the median and in the slowest hundredth (of fewer than "
    "100 requests: the slowest); first ms is its time to first token, that wait included. With one seat all ways are the same.",
    "Flood: priority requests one after the other, alone and among standard requests of which there are always more than may run. Gaps, in "
    "ms, are between deliveries of a request; moved is what the flood does to their 99th percentile, the median of the rounds, each "
    "against the run alone before it, and allowed for it is the slack and a tenth; unsure says that some rounds kept to it and some did "
    "not. Stretch is the same for each gap over the usual one alone of passes with as many rows of the request: what company does, without "
    "what longer drafts do. "
    "Standard is what is left for standard requests, in tokens/s, and as a share of what they get without priority requests.",
    "The claim is a provider's of its fast tier, not reproduced by others. A larger batch of the standard tier makes leaving alone look "
    "faster and costs more to give up; the claim comes true where leaving alone is fast enough and the machine's time that it takes "
    "costs no more than is asked.",
)


def curve_cells(result: TierResult) -> list[list[str]]:
    return [
        [
            str(point.seats),
            f"{point.user_tokens_per_s:.1f}",
            f"{point.total_tokens_per_s:.1f}",
            f"{point.ttft_p50_s * 1e3:.0f}",
            f"{point.gap_p99_s * 1e3:.1f}",
            f"{point.cost_per_million:.3f}",
        ]
        for point in result.curve
    ]


def boarding_cells(result: TierResult) -> list[list[str]]:
    return [
        [
            str(point.seats),
            NAMES[point.boarding] if point.seats > 1 else "any",
            *(f"{value * 1e3:.0f}" for value in (point.wait_p50_s, point.wait_p99_s, point.ttft_p50_s, point.ttft_p99_s)),
            f"{point.user_tokens_per_s:.1f}",
            f"{point.total_tokens_per_s:.1f}",
            f"{point.gap_p99_s * 1e3:.1f}",
        ]
        for point in result.boarding
    ]


def flood_cells(result: TierResult) -> list[list[str]]:
    return [
        [
            f"{flood.slack:g}",
            *(f"{tide.gap_p50_s * 1e3:.1f}" for tide in (flood.alone, flood.flood)),
            *(f"{tide.gap_p99_s * 1e3:.1f}" for tide in (flood.alone, flood.flood)),
            f"{flood.moved:+.0%}",
            f"{flood.stretched:+.0%}",
            f"{flood.allowed:.0%}",
            flood.verdict,
            *(f"{tide.ttft_p50_s * 1e3:.0f}" for tide in (flood.alone, flood.flood)),
            f"{flood.flood.standard_tokens_per_s:.0f}",
            f"{flood.left:.0%}",
        ]
        for flood in result.floods
    ]


def headline(result: TierResult) -> str:
    options, facts = result.options, result.activation
    return (
        f"{facts['model']} in {facts['mode']}, {facts['threads']} threads ({facts['isa']}): {options.requests} requests of "
        f"{options.prompt_tokens} + {options.tokens} tokens, {options.rounds} rounds, {options.price_hour:g} an hour"
    )


def arrivals_line(result: TierResult) -> str:
    rate, load = result.arrivals_per_s, result.options.load
    return (
        f"the same arrivals for every way to board: {rate:.2f} requests/s, {load:.0%} of what a batch of {result.options.rows[-1]} answers"
    )


def findings(result: TierResult) -> list[str]:
    """What the ways to board say about waiting, at the most seats."""
    by_way = {(point.seats, point.boarding): point for point in result.boarding}
    seats = result.options.rows[-1]
    if seats == 1:
        return []
    continuous, at_once, full = (by_way[seats, way] for way in ("continuous", "at_once", "full"))
    alone = by_way.get((1, "continuous"))
    lines = [
        f"with {seats} seats a request waits {continuous.wait_p50_s * 1e3:.0f} ms for one when boarding is continuous, "
        f"{at_once.wait_p50_s * 1e3:.0f} ms for the next bus, {full.wait_p50_s * 1e3:.0f} ms for a full one (medians)",
    ]
    if alone is not None:
        lines.append(
            f"alone, each waits its turn: {alone.wait_p50_s * 1e3:.0f} ms, then {alone.user_tokens_per_s:.0f} tokens/s "
            f"against {continuous.user_tokens_per_s:.0f} among up to {seats}"
        )
    return lines


def render_tiers(result: TierResult) -> str:
    """The whole page as one string."""
    facts, machine = result.activation, result.machine
    values: dict[str, Any] = {
        "model": facts["model"],
        "headline": headline(result),
        "claim": result.claim.sentence(),
        "holds": result.claim.largest is not None,
        "findings": findings(result),
        "plots": _plots(result),
        "curve_head": CURVE_HEAD,
        "curve": curve_cells(result),
        "arrivals": arrivals_line(result),
        "boarding_head": BOARDING_HEAD,
        "boarding": boarding_cells(result),
        "flood_head": FLOOD_HEAD,
        "floods": flood_cells(result),
        "notes": NOTES,
        "facts": [
            ("mode", facts["mode"]),
            ("sha256", facts["weights_sha256"]),
            ("numerics", facts["numerics"]),
            ("instruction set, threads", f"{facts['isa']}, {facts['threads']}"),
            *machine_rows(machine),
        ],
    }
    return render_page("swiftsure.bench", "tiers.html.j2", values, {})


def _plots(result: TierResult) -> list[dict[str, Any]]:
    curve = (
        ("Tokens/s a user", "tokens/s", lambda point: point.user_tokens_per_s),
        ("Tokens/s in all", "tokens/s", lambda point: point.total_tokens_per_s),
        ("Time to first token, all beginning together", "ms", lambda point: point.ttft_p50_s * 1e3),
        (f"A million tokens, at {result.options.price_hour:g} an hour", "price", lambda point: point.cost_per_million),
    )
    plots = [
        _plot(title, unit, [Line(label="seats always taken", points=_points(result.curve, read))], "rows a pass")
        for title, unit, read in curve
    ]
    ways = (
        ("Wait for a seat, median", "ms", lambda point: point.wait_p50_s * 1e3),
        ("Time to first token, median", "ms", lambda point: point.ttft_p50_s * 1e3),
        ("Tokens/s a user, same arrivals", "tokens/s", lambda point: point.user_tokens_per_s),
        ("Tokens/s in all, same arrivals", "tokens/s", lambda point: point.total_tokens_per_s),
    )
    for title, unit, read in ways:
        lines = [
            Line(label=NAMES[way], points=_points([p for p in result.boarding if p.boarding == way or p.seats == 1], read), series=number)
            for number, way in enumerate(BOARDINGS, start=1)
        ]
        plots.append(_plot(title, unit, lines, "seats"))
    return plots


def _points(points: Any, read: Callable[[Figures], float]) -> list[tuple[float, float]]:
    return [(float(point.seats), read(point)) for point in points]


def _plot(title: str, unit: str, lines: list[Line], x_name: str) -> dict[str, Any]:
    return {"title": title, "svg": line_chart(lines, title=title, x_name=x_name, y_name=unit)}
