"""A mode's contract, measured: how far its distributions are from default's, by text and by input size, the worst beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from swiftsure.verify.compare.divergence import Divergence, compare_distributions
from swiftsure.verify.contracts.contract import Contract, load_contract
from swiftsure.verify.contracts.sections import TaskRules
from swiftsure.verify.proving.client import WorkerError
from swiftsure.verify.proving.mode_run import ModeRun
from swiftsure.verify.tasks.catalogue import tasks_named
from swiftsure.verify.tasks.items import ItemResult
from swiftsure.verify.tasks.pairing import pair_results
from swiftsure.verify.tasks.run import SuiteResult, answer_pairs
from swiftsure.verify.tasks.scoring import WorkerScorer

TASK_NOT_MEASURED = "task not measured"
TASK_BUDGET_S = 120.0
"""No passage of a task begins after so many seconds; what was answered by then is compared."""


def owed_contracts(runs: Mapping[str, ModeRun]) -> list[tuple[ModeRun, Contract]]:
    """Each sound mode that owes a contract, with it."""
    return [(run, load_contract(run.name)) for run in runs.values() if run.sound and not run.keeps_bits]


def measure_contract(base: ModeRun, run: ModeRun, contract: Contract, folder: Path, advance: Callable[[int], None]) -> None:
    """Fills ``run.contract``. ``advance`` counts texts; files lie in ``folder``. A worker that breaks takes its mode out of the run."""
    found: dict[str, dict[int, Divergence]] = {}
    try:
        for name, text in contract.texts.items():
            found[name] = _measure_text(base, run, contract, text, folder)
            advance(1)
    except WorkerError as error:
        run.break_off(error)
    else:
        run.contract = judged(contract, found)


def measure_tasks(base: ModeRun, run: ModeRun, contract: Contract, advance: Callable[[int], None]) -> None:
    """Adds to ``run.contract`` what both modes answered, item by item. A mode that broke its tolerances is not asked: it failed already."""
    if not run.sound or not run.contract.get("kept"):
        return
    found = []
    try:
        for rules in contract.tasks:
            scorers = {mode.name: WorkerScorer(mode.worker()) for mode in (base, run)}
            [task] = tasks_named([rules.suite or rules.name])
            answers = answer_pairs(scorers, task, limit=rules.asked, budget_s=TASK_BUDGET_S, progress=advance)
            found.append(task_entry(contract, rules, answers[base.name], answers[run.name]))
    except WorkerError as error:
        run.break_off(error)
    else:
        run.contract |= judged_tasks(found)


def task_entry(contract: Contract, rules: TaskRules, base: Sequence[ItemResult], other: Sequence[ItemResult]) -> dict[str, Any]:
    """One task as it stands in the result."""
    pairing = pair_results(base, other)
    compared = pairing.compare(margin=rules.margin, group=lambda result: contract.range_of(result.size))
    seconds = {
        name: SuiteResult(subject=name, results=tuple(results)).summaries()[0].seconds_per_correct
        for name, results in (("baseline", base), ("candidate", other))
    }
    return {"name": rules.name, **compared.to_dict(), "seconds_per_correct": seconds, "remarks": pairing.remarks()}


def judged_tasks(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``task``: why the tasks decide nothing, None where each is shown to be no worse by its margin. ``tasks_failed``: those that are."""
    failed = [f"task {task['name']}: {points(task)}" for task in found if task["decision"] == "inferior"]
    undecided = [f"task {task['name']} is undecided: {points(task)}{_enough(task)}" for task in found if task["decision"] != "non_inferior"]
    return {"tasks": list(found), "tasks_failed": failed, "task": "; ".join(undecided) if found else TASK_NOT_MEASURED}


def points(task: Mapping[str, Any]) -> str:
    """``-0.3 points (95 % interval -1.2 to 0.5) against a margin of 3``."""
    interval = "" if task["low"] is None else f" (95 % interval {100 * task['low']:+.1f} to {100 * task['high']:+.1f})"
    margin = "no margin" if task["margin"] is None else f"a margin of {100 * task['margin']:g}"
    return f"{100 * task['difference']:+.1f} points{interval} against {margin}"


def _enough(task: Mapping[str, Any]) -> str:
    needed = task["items_to_decide"]
    return f"; about {needed:,} items of its kind would decide" if needed else ""


def judged(contract: Contract, found: Mapping[str, Mapping[int, Divergence]]) -> dict[str, Any]:
    """The contract as it stands in the result: limits, figures by text and size, every breach in words, and what is still open."""
    parts = [(text, size, figures) for text, by_size in found.items() for size, figures in by_size.items()]
    breaches = [f"{text} up to {size} tokens: {breach}" for text, size, figures in parts for breach in contract.limits.broken_by(figures)]
    worst = max(parts, key=lambda part: part[2].kl_mean)
    return {
        "kept": not breaches,
        "breaches": breaches,
        "limits": contract.limits.to_dict(),
        "by_text": {text: {str(size): figures.to_dict() for size, figures in by_size.items()} for text, by_size in found.items()},
        "worst": {"text": worst[0], "size": worst[1], **worst[2].to_dict()},
        "task": TASK_NOT_MEASURED,
    }


def _measure_text(base: ModeRun, run: ModeRun, contract: Contract, text: str, folder: Path) -> dict[int, Divergence]:
    files = {mode.name: folder / f"{mode.name}.score" for mode in (base, run)}
    try:
        answers = [
            mode.worker().ask("score", text=text, tokens=contract.sizes[-1], logits=str(files[mode.name]))["token_ids"]
            for mode in (base, run)
        ]
        ids = answers[0][: len(answers[1])]
        rows = compare_distributions(files[base.name], files[run.name], ids, vocab_size=base.loaded["vocab_size"])
        return {size: rows.over(begin, end) for size, begin, end in contract.ranges(len(ids))}
    finally:
        for file in files.values():
            file.unlink(missing_ok=True)
