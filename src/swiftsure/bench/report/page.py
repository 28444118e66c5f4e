"""The page of a bench run, from its summary alone: the sentence on top, the plots, the tables, and what was not measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swiftsure.bench.figures.definitions import DEFINITIONS, definition_of
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.summary import Summary
from swiftsure.bench.report.plots import plots
from swiftsure.bench.report.words import amount, figure, headline, plural, range_beside, sublines
from swiftsure.errors import UsageError
from swiftsure.records.page import render_page
from swiftsure.records.run_record import write_json, write_text

_CSS = {"MEASURED": "ok", "INCONCLUSIVE": "open", "REFUSED": "failed", "FAILED": "failed"}
_MOST_LINES = 40

FEEL = ("ttft_p50", "ttft_p95", "first_answer_p50", "decode_p50", "decode_corrected_p50", "e2e_p50")
FLOW = ("itl_p50", "itl_p90", "itl_p99", "itl_token_p50", "itl_token_p90", "itl_token_p99", "tokens_per_chunk_p50")
OTHER = ("first_chunk_p50", "ttfb_p50", "connect_p50", "tpot_p50", "tpot_whole_p50", "output_tokens_p50", "cached_tokens_p50", "cost_p50")
TOGETHER = ("aggregate", "requests_per_s", "in_flight", "goodput", "good_share", "ttft_scheduled_p95", "e2e_scheduled_p95", "error_share")

SHORT = {
    "ttft_p50": "TTFT",
    "ttft_p95": "TTFT p95",
    "first_answer_p50": "first answer token",
    "decode_p50": "decode",
    "decode_corrected_p50": "decode, first chunk corrected",
    "e2e_p50": "end to end",
    "itl_p50": "arrivals p50",
    "itl_p90": "p90",
    "itl_p99": "p99",
    "itl_token_p50": "tokens p50",
    "itl_token_p90": "p90",
    "itl_token_p99": "p99",
    "tokens_per_chunk_p50": "tokens a chunk",
    "first_chunk_p50": "first chunk",
    "ttfb_p50": "first byte",
    "connect_p50": "connection",
    "tpot_p50": "TPOT after the first",
    "tpot_whole_p50": "TPOT of the whole",
    "output_tokens_p50": "output",
    "cached_tokens_p50": "from a cache",
    "cost_p50": "cost",
    "aggregate": "all together",
    "requests_per_s": "answers",
    "in_flight": "in flight",
    "goodput": "goodput",
    "good_share": "good",
    "ttft_scheduled_p95": "TTFT p95, scheduled",
    "e2e_scheduled_p95": "end to end p95, scheduled",
    "error_share": "failed",
}


def write_report(summary: Summary, path: str | Path) -> None:
    """Writes ``.html``, a page that needs nothing else, or ``.json``, which ``load_summary`` reads.

    Raises UsageError for another ending.
    """
    ending = Path(path).suffix.lower()
    if ending in (".html", ".htm"):
        write_text(path, render_report(summary))
    elif ending == ".json":
        write_json(path, summary.to_dict())
    else:
        raise UsageError(f"a report must be an .html or .json file, got {str(path)!r}")


def render_report(summary: Summary) -> str:
    """The whole page as one string."""
    about = summary.settings.about
    return render_page(
        "swiftsure.bench.report",
        "bench.html.j2",
        {
            "summary": summary,
            "subject": subject(about),
            "headline": headline(summary),
            "sublines": sublines(summary),
            "css": "open" if summary.verdict == "MEASURED" and summary.warnings else _CSS[summary.verdict],
            "plots": list(plots(summary)),
            "tables": list(_tables(summary)),
            "errors": [(group.name, kind, count, group.exchanges) for group in summary.groups for kind, count in group.errors.items()],
            "examples": list(_error_examples(summary)),
            "facts": list(_facts(summary)),
            "definitions": list(DEFINITIONS.values()),
            "clients": summary.clients[:_MOST_LINES],
            "short": SHORT,
        },
        {"plural": plural, "seconds": lambda value: amount(value, "s")},
    )


def subject(about: Mapping[str, Any]) -> str:
    """What was measured, for the title: the model and where it stands."""
    target = about.get("target")
    if not isinstance(target, Mapping):
        return str(target or "an endpoint")
    parts = [str(target[name]) for name in ("model", "url", "mode") if target.get(name)]
    return " at ".join(parts[:2]) + (f", mode {parts[2]}" if len(parts) > 2 else "") or "an endpoint"


def _tables(summary: Summary) -> Iterator[dict[str, Any]]:
    """Columns that no group has are left out; what one group lacks says why."""
    captions = (
        ("What a user feels", FEEL, "Medians, and the 95th percentile of TTFT; under each its 95 % interval."),
        (
            "How it flows",
            FLOW,
            "Gaps between arrivals as they came, and between tokens where an arrival holds several; under each its 95 % interval.",
        ),
        ("All users together", TOGETHER, _slo_words(summary)),
        ("Other figures", OTHER, "Two definitions of TPOT are in use; both stand here. Medians."),
    )
    for title, names, caption in captions:
        shown = [name for name in names if any(name in group.figures for group in summary.groups)]
        rows = [
            (group.name, [(figure(group, name), _range(group, name) if title != "Other figures" else "") for name in shown], group.refused)
            for group in summary.groups
        ]
        if shown:
            yield {"title": title, "caption": caption, "names": [SHORT[name] for name in shown], "rows": rows}


def _range(group: Group, name: str) -> str:
    return range_beside(group.figures.get(name), definition_of(name).unit)


def _slo_words(summary: Summary) -> str:
    slo = summary.settings.slo
    words = "Over the window of each load; the opening wave is not in it."
    return words if slo is None else f"{words} Good: {slo}."


def _error_examples(summary: Summary) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for reading in summary.readings:
        if reading.error is not None and reading.error_words and reading.error not in seen:
            seen.add(reading.error)
            yield reading.error, reading.error_words[:500]


def _facts(summary: Summary) -> Iterator[tuple[str, str]]:
    settings = summary.settings
    for name, value in settings.about.items():
        yield name.replace("_", " "), _plain(value)
    if settings.slo is not None:
        yield "limits", str(settings.slo)
    if settings.prices is not None:
        prices = settings.prices
        cached = "" if prices.cached is None else f", {prices.cached:g} from a cache"
        yield "prices", f"{prices.prompt:g} in{cached}, {prices.output:g} out {prices.currency} a million tokens"
    if settings.bound_tokens_per_s is not None:
        words = f"{settings.hardware_gb_per_s:g} GB/s over {settings.model_bytes:,} bytes a token"
        yield "physical bound", f"{settings.bound_tokens_per_s:,.4g} tokens/s for one user: {words}"
    counted = sorted({name for group in summary.groups for name in group.tokens_by})
    yield "tokens counted by", ", ".join(counted) or "nobody"
    yield "intervals", f"95 %, bootstrap over prompts, rounds and repeats, {settings.resamples:,} draws, seed {settings.seed}"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(item)}" for name, item in value.items() if item not in (None, {}, [], ""))
    return ", ".join(map(_plain, value)) if isinstance(value, (list, tuple)) else str(value)
