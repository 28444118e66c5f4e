"""A profile in words: the cells of its table, the sentences around it, and the HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from swiftsure.records.charts import Bar, bar_chart
from swiftsure.records.page import machine_rows, render_page
from swiftsure.verify.profiling.profile import ARITHMETIC, MEMORY, CaseProfile, ProfileResult, Row
from swiftsure.verify.proving import words

HEAD = ("operation", "ms", "share", "GB/s", "GOP/s", "limit", "waiting")
LAYER_HEAD = ("layer", "operation", "µs", *HEAD[2:])
_BUSY = 0.1  # of a pass taken by others
_SERIES = {None: 0, MEMORY: 1, ARITHMETIC: 2}


def cells(case: CaseProfile) -> list[list[str]]:
    """One line per kind of operation and per thing around the pass, and the sum, under ``HEAD``."""
    total = Row(name="all", work_s=case.total_s)
    return [_cells(row, case) for row in (*case.rows, total)]


def layer_cells(case: CaseProfile) -> list[list[str]]:
    """One line per operation in the order of the work, under ``LAYER_HEAD``."""
    return [["" if row.layer is None else str(row.layer), *_cells(row, case, unit=1e6, digits=1)] for row in case.operations]


def _cells(row: Row, case: CaseProfile, *, unit: float = 1e3, digits: int = 3) -> list[str]:
    fraction = "" if row.fraction is None else f"{row.limit} {row.fraction:.0%}"
    return [
        row.name,
        f"{row.work_s * unit:.{digits}f}",
        f"{row.work_s / case.total_s:.1%}",
        "" if row.gb_per_s is None else f"{row.gb_per_s:.1f}",
        "" if row.gop_per_s is None else f"{row.gop_per_s:.1f}",
        fraction,
        f"{row.wait_s * unit:.{digits}f}" if row.wait_s else "",
    ]


def headline(case: CaseProfile) -> str:
    """The case, its time and its rate."""
    rate = "tokens/s" if case.case.kind == "prefill" or case.case.rows == 1 else "tokens/s if every row is kept"
    return f"{case.case.name}: {case.total_s * 1e3:.2f} ms, {words.rate(case.tokens_per_s)} {rate}"


def remarks(case: CaseProfile) -> list[str]:
    """Whether timing disturbed what it timed, how near the whole is to its limits, and who waited."""
    untimed, timed = f"{case.untimed_median_s * 1e3:.3f} ms", f"{case.timed_median_s * 1e3:.3f} ms"
    drift = case.timed_median_s / case.untimed_median_s - 1
    threads = "; ".join(f"thread {i} {work * 1e3:.2f} + {wait * 1e3:.2f}" for i, (work, wait) in enumerate(case.threads))
    taken = sum(row.work_s for row in case.rows if row.name == "interrupted") / case.pass_s
    busy = [f"the machine was busy: others took {taken:.0%} of the pass, so read the operations, not the sum"] if taken > _BUSY else []
    return [
        *busy,
        f"medians of {case.repeats}: untimed {untimed}, timed {timed} ({drift:+.1%})",
        f"the pass: {case.limit_s / case.pass_s:.0%} of its limits ({case.limit} binds), "
        f"{case.wall_s / case.pass_s:.0%} of the memory wall",
        f"work + waiting, ms: {threads}",
    ]


def limits(result: ProfileResult) -> list[str]:
    """The limits, as measured in this run."""
    integer, floating = result.peaks
    wall = max(case.bandwidth.bytes_per_s for case in result.cases) / 1e9, min(case.bandwidth.bytes_per_s for case in result.cases) / 1e9
    read = f"{wall[1]:.1f}" if f"{wall[0]:.1f}" == f"{wall[1]:.1f}" else f"{wall[1]:.1f} to {wall[0]:.1f}"
    return [
        f"limits with {integer.threads} threads: reading {read} GB/s,",
        f"integer products {integer.ops_per_s / 1e9:.0f} GOP/s ({integer.isa}), float {floating.ops_per_s / 1e9:.0f} GOP/s",
        *_generation(result),
    ]


def _generation(result: ProfileResult) -> Iterator[str]:
    times = result.generation
    if times is not None:
        parts = (("pass", times.pass_s), ("sampling", times.sampling_s), ("drafting", times.drafting_s), ("python", times.python_s))
        text = ", ".join(f"{name} {seconds * 1e3:.3f}" for name, seconds in parts if seconds > 0)
        yield f"generation: {times.tokens} tokens in {times.steps} steps of {times.step_s * 1e3:.2f} ms,"
        yield f"of a step, ms: {text}"


NOTES = (
    "ms is the work of all threads divided by their number; waiting is what they waited until an operation's stage was done, and "
    "barriers+idle the sum of it. GB/s counts weights as the file stores them and cached keys and values, GOP/s the additions and "
    "multiplications of the plain mathematics, both over work and waiting. The limit is the larger of reading alone and arithmetic "
    "alone, its percentage how near the operation comes to it.",
    "All figures are medians over repeats, operation by operation. Interrupted is what the pass has beyond the sum of them: others who "
    "took a processor for a moment, each time from another operation.",
    "Plan and call are the cutting of a pass into chunks, waking threads and the way back; python is the engine between two passes, as "
    "measured in a generation. A decode pass is timed with logits of all of its rows.",
)


def render_profile(result: ProfileResult) -> str:
    """The whole page as one string."""
    facts = result.activation
    machine = result.machine
    values: dict[str, Any] = {
        "model": facts["model"],
        "cases": [_case_values(case) for case in result.cases],
        "limits": limits(result),
        "notes": NOTES,
        "head": HEAD,
        "layer_head": LAYER_HEAD,
        "facts": [
            ("mode", facts["mode"]),
            ("sha256", facts["weights_sha256"]),
            ("numerics", facts["numerics"]),
            ("instruction set, threads", f"{facts['isa']}, {facts['threads']}"),
            *machine_rows(machine),
        ],
    }
    return render_page("swiftsure.verify", "profile.html.j2", values, {})


def _case_values(case: CaseProfile) -> dict[str, Any]:
    bars = [
        Bar(
            label=row.name,
            value=max(row.work_s, 0.0),
            text=" · ".join(
                part for part in (f"{row.work_s * 1e3:.3f} ms", f"{row.work_s / case.total_s:.1%}", _cells(row, case)[5]) if part
            ),
            series=_SERIES[row.limit],
        )
        for row in case.rows
    ]
    return {
        "name": case.case.name,
        "headline": headline(case),
        "remarks": remarks(case),
        "plot": bar_chart(bars, title=f"Milliseconds by operation: {case.case.name}"),
        "cells": cells(case),
        "layers": layer_cells(case),
    }
