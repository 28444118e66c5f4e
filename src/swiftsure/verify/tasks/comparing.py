"""One or two modes on the suite, each in a process of its own, and what the comparison says in lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftsure.engine.load_options import LoadOptions
from swiftsure.records.paired import PairedComparison
from swiftsure.records.run_record import write_json
from swiftsure.verify.proving.client import WorkerClient
from swiftsure.verify.tasks.items import Task
from swiftsure.verify.tasks.pairing import Pairing, pair_results
from swiftsure.verify.tasks.run import SuiteResult, run_suite, work_of
from swiftsure.verify.tasks.scoring import WorkerScorer

Advance = Callable[[int], None]
Line = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskComparison:
    """Pooled over all items, and by task in its groups."""

    pairing: Pairing
    found: PairedComparison
    baseline: SuiteResult
    candidate: SuiteResult

    def lines(self) -> list[str]:
        """The pooled result, each task, and what was left out."""
        rows = [("all items", self.found), *self.found.groups.items()]
        lines = [f"{name}: {describe(compared)}" for name, compared in rows]
        if self.found.worst_group is not None:
            lines.append(f"worst: {self.found.worst_group}")
        return lines + self.pairing.remarks()

    def to_dict(self) -> dict[str, Any]:
        return {
            "baseline": self.baseline.to_dict(),
            "candidate": self.candidate.to_dict(),
            "pairing": self.pairing.to_dict(),
            "comparison": self.found.to_dict(),
            "seconds_per_correct": self.cost(),
        }

    def cost(self) -> dict[str, dict[str, float | None]]:
        """By task, wall seconds for each right answer of both, and the ratio baseline / candidate: speed with its rework paid."""
        theirs = {summary.task: summary.seconds_per_correct for summary in self.candidate.summaries()}
        found = {}
        for summary in self.baseline.summaries():
            ours, other = summary.seconds_per_correct, theirs.get(summary.task)
            found[summary.task] = {"baseline": ours, "candidate": other, "ratio": ours / other if ours and other else None}
        return found


def compare_suites(baseline: SuiteResult, candidate: SuiteResult, *, margin: float | None) -> TaskComparison:
    pairing = pair_results(baseline.results, candidate.results)
    found = pairing.compare(margin=margin, group=lambda result: result.task)
    return TaskComparison(pairing=pairing, found=found, baseline=baseline, candidate=candidate)


def run_modes(
    modes: Sequence[str],
    tasks: Sequence[Task],
    model: str,
    load: LoadOptions,
    *,
    limit: int | None,
    on_line: Line,
    advance: Advance,
) -> dict[str, SuiteResult]:
    """The suite in each mode, one task after the other and the modes in turn, so that a slow hour hits all."""
    results: dict[str, list[Any]] = {mode: [] for mode in modes}
    with ExitStack() as stack:
        scorers = {}
        for mode in results:
            client = stack.enter_context(WorkerClient(mode, on_line=on_line))
            client.ask("load", model=model, mode=mode, options=load.keywords())
            scorers[mode] = WorkerScorer(client)
        for task in tasks:
            for mode, scorer in scorers.items():
                results[mode] += run_suite(scorer, [task], limit=limit, progress=advance).results
    return {mode: SuiteResult(subject=f"mode:{mode}", results=tuple(found)) for mode, found in results.items()}


def count_items(tasks: Sequence[Task], limit: int | None) -> int:
    return sum(work.items for task in tasks for work in work_of(task, limit))


def write_suites(folder: Path, suites: Sequence[SuiteResult], comparison: TaskComparison | None) -> None:
    """``items-MODE.jsonl`` for each, and ``tasks.json``."""
    for suite in suites:
        suite.write(folder / f"items-{suite.subject.removeprefix('mode:')}.jsonl")
    told = comparison.to_dict() if comparison is not None else {"subjects": [suite.to_dict() for suite in suites]}
    write_json(folder / "tasks.json", told)


def describe(found: PairedComparison) -> str:
    """``81.1 % -> 81.0 %, -0.1 points (-0.6 to +0.4) over 1,150 items; lost 5, gained 4; non-inferior at 3 points (p 0.001)``."""
    interval = "" if found.low is None or found.high is None else f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    text = (
        f"{100 * found.baseline:.1f} % -> {100 * found.candidate:.1f} %, {100 * found.difference:+.1f} points{interval} "
        f"over {found.items:,} items; lost {found.lost}, gained {found.gained}"
    )
    if found.margin is None or found.decision is None:
        return text
    words = {"non_inferior": "NON-INFERIOR", "inferior": "INFERIOR", "undecided": "INCONCLUSIVE"}[found.decision]
    needed = f"; about {found.items_to_decide:,} items would decide" if found.items_to_decide else ""
    return f"{text}; {words} at {100 * found.margin:g} points (p {found.p_non_inferior:.2g}){needed}"
