"""Task metrics: as good as the baseline on the same items, at the margin that the contract declares. "Not significant" is never "equal"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swiftsure.records.correct_cost import CorrectCost, correct_cost
from swiftsure.records.paired import PairedComparison, compare_paired
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.contracts.sections import TaskRules
from swiftsure.verify.judging.observation import Observation, typical
from swiftsure.verify.judging.verdict import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a task, answered by both. Higher is better. ``group``: its range of input sizes, or its setting. Seconds where known."""

    id: str
    baseline: float
    candidate: float
    cluster: str | None = None
    group: str = "all"
    baseline_s: float | None = None
    candidate_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """``by_group`` was compared at the margin for one range of sizes alone, where the contract sets one."""

    rules: TaskRules
    whole: PairedComparison
    by_group: Mapping[str, PairedComparison]
    source: str
    cost: CorrectCost | None = None  # None where the time of an item is not known

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.rules.name,
            "source": self.source,
            "margin": self.rules.margin,
            "worst_size_margin": self.rules.worst_size_margin,
            "least_items": self.rules.least_items,
            "asked": self.rules.asked if self.rules.suite is not None else None,
            "whole": self.whole.to_dict(),
            "seconds_per_correct": self.cost.to_dict() if self.cost is not None else None,
            "by_group": {name: found.to_dict() for name, found in self.by_group.items()},
        }


def items_of(observations: Sequence[Observation], task: TaskRules, contract: Contract) -> list[Item]:
    """The items of a task whose scores are an output of every case; cases that lack one on either side are left out."""
    items = []
    for seen in observations:
        base, other = seen.scores.get(task.output or "", (None, None))
        if base is not None and other is not None:
            group = contract.range_of(seen.case.size)
            times = {"baseline_s": typical(seen.baseline), "candidate_s": typical(seen.candidate)}
            items.append(Item(id=seen.case.id, baseline=base, candidate=other, cluster=seen.case.cluster, group=group, **times))
    return items


def compare_task(task: TaskRules, items: Sequence[Item], source: str) -> TaskResult | None:
    """None without a single item."""
    if not items:
        return None
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.group, []).append(item)
    worst_margin = task.worst_size_margin if task.worst_size_margin is not None else task.margin
    by_group = {name: _compare(group, worst_margin) for name, group in groups.items()} if len(groups) > 1 else {}
    return TaskResult(rules=task, whole=_compare(items, task.margin), by_group=by_group, source=source, cost=_cost(items))


def _compare(items: Sequence[Item], margin: float | None) -> PairedComparison:
    baseline, candidate = [item.baseline for item in items], [item.candidate for item in items]
    return compare_paired(baseline, candidate, margin=margin, clusters=_clusters(items))


def _clusters(items: Sequence[Item]) -> list[str] | None:
    if all(item.cluster is None for item in items):
        return None
    return [item.cluster if item.cluster is not None else f"item {item.id}" for item in items]


def _cost(items: Sequence[Item]) -> CorrectCost | None:
    """None where a time is missing, or a score below 0 says that a sum of scores counts no correct results."""
    if any(item.baseline_s is None or item.candidate_s is None or item.baseline < 0 or item.candidate < 0 for item in items):
        return None
    return correct_cost(
        baseline_s=[item.baseline_s or 0.0 for item in items],
        candidate_s=[item.candidate_s or 0.0 for item in items],
        baseline=[item.baseline for item in items],
        candidate=[item.candidate for item in items],
        clusters=_clusters(items),
    )


def judge_tasks(contract: Contract, results: Mapping[str, TaskResult | None]) -> Iterator[Finding]:
    """``results``: by name of task; None, or absent, where nothing was measured."""
    if not contract.tasks:
        yield Finding(verdict="COMPARED_ONLY", about="task", words="only outputs were compared: the contract names no task")
    for task in contract.tasks:
        found = results.get(task.name)
        if found is None:
            yield Finding(verdict="COMPARED_ONLY", about="task", words=f"task {task.name} was not measured")
        elif task.margin is None:
            words = f"task {task.name}: no margin is set, {change_in_words(found.whole)}"
            yield Finding(verdict="HOLD", about="task", words=words)
        else:
            yield _judge(task, found)
            yield from _judge_groups(task, found)


def _judge(task: TaskRules, found: TaskResult) -> Finding:
    whole = found.whole
    words = f"task {task.name}: {change_in_words(whole)}"
    if whole.items < task.least_items and whole.decision != "inferior":
        few = f"{words}; {whole.items} items of at least {task.least_items}"
        return Finding(verdict="INCONCLUSIVE", about="task", words=few, items_needed=max(task.least_items, whole.items_to_decide or 0))
    if whole.decision == "non_inferior":
        return Finding(verdict="PASS", about="task", words=f"{words}; not worse by {whole.margin:g} or more")
    if whole.decision == "inferior":
        return Finding(verdict="FAIL", about="task", words=f"{words}; worse by more than the margin of {whole.margin:g}")
    return _undecided(words, whole)


def _judge_groups(task: TaskRules, found: TaskResult) -> Iterator[Finding]:
    """A range of sizes that is shown to be worse fails the task, whatever the mean says. With a margin of its own each must pass."""
    for name, group in found.by_group.items():
        words = f"task {task.name}, {name}: {change_in_words(group)}"
        if group.decision == "inferior":
            though = " though the whole is not" if found.whole.decision == "non_inferior" else ""
            yield Finding(verdict="FAIL", about="task", words=f"{words}; worse by more than {group.margin:g}{though}")
        elif group.decision == "undecided" and task.worst_size_margin is not None:
            yield _undecided(words, group)


def _undecided(words: str, found: PairedComparison) -> Finding:
    needed = found.items_to_decide
    decide = f"about {needed:,} items would decide" if needed is not None else "it lies at the margin, where no number of items decides"
    return Finding(verdict="INCONCLUSIVE", about="task", words=f"{words}; {decide}", items_needed=needed)


def change_in_words(found: PairedComparison) -> str:
    interval = "no interval" if found.low is None or found.high is None else f"95 % interval {found.low:+.4f} to {found.high:+.4f}"
    return (
        f"{found.baseline:.4f} to {found.candidate:.4f}, change {found.difference:+.4f} ({interval}) over {found.items:,} items, "
        f"{found.lost} lost and {found.gained} gained"
    )
