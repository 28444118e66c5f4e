"""Runs tasks on a subject, one item after the other, and sums up what came of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from swiftsure.errors import ContextLengthError
from swiftsure.records.run_record import write_text
from swiftsure.verify.tasks.items import Choice, Completion, ItemResult, Passage, Task, Work
from swiftsure.verify.tasks.scoring import Scorer, Weighed, Written, require_likelihoods

COLUMNS = ("task", "id", "cluster", "size", "score", "wall_s", "answer", "reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSummary:
    """``seconds_per_correct``: wall seconds over the sum of scores: what a right answer costs, wrong ones included. None without one."""

    task: str
    items: int
    score: float
    wall_s: float
    seconds_per_correct: float | None
    unanswered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    subject: str
    results: tuple[ItemResult, ...]

    def summaries(self) -> list[TaskSummary]:
        return [_summary(task, [r for r in self.results if r.task == task]) for task in dict.fromkeys(r.task for r in self.results)]

    def to_dict(self) -> dict[str, Any]:
        return {"subject": self.subject, "items": len(self.results), "tasks": [asdict(summary) for summary in self.summaries()]}

    def write(self, path: Path) -> Path:
        """Every item: JSON lines, or CSV where the name ends so."""
        rows = [asdict(result) for result in self.results]
        if path.suffix == ".csv":
            out = io.StringIO()
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows({name: row[name] for name in COLUMNS} for row in rows)
            write_text(path, out.getvalue())
        else:
            write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
        return path


def work_of(task: Task, limit: int | None) -> tuple[Work, ...]:
    """The first ``limit`` items of a task, all without one; a passage is cut where they end."""
    if limit is None:
        return task.build()
    found: list[Work] = []
    left = limit
    for work in task.build():
        if left <= 0:
            break
        if isinstance(work, Passage) and work.items > left:
            work = Passage(id=work.id, places=work.places[:left])
        found.append(work)
        left -= work.items
    return tuple(found)


def run_suite(
    scorer: Scorer, tasks: Sequence[Task], *, limit: int | None = None, progress: Callable[[int], None] = lambda _: None
) -> SuiteResult:
    """Answers the items of the tasks, ``limit`` of each. ``progress`` counts items. Raises UsageError for a task that needs more."""
    for task in tasks:
        if task.method == "likelihood":
            require_likelihoods(scorer, task.name)
    results: list[ItemResult] = []
    for task in tasks:
        for answered in _answers(scorer, task.name, work_of(task, limit)):
            results += answered
            progress(len(answered))
    return SuiteResult(subject=scorer.name, results=tuple(results))


def answer_pairs(
    scorers: Mapping[str, Scorer], task: Task, *, limit: int | None, budget_s: float, progress: Callable[[int], None]
) -> dict[str, list[ItemResult]]:
    """The same items by several subjects in turn, so that a slow moment of the machine hits all of them; none begins after ``budget_s``."""
    began = perf_counter()
    found: dict[str, list[ItemResult]] = {name: [] for name in scorers}
    for work in work_of(task, limit):
        if perf_counter() - began > budget_s:
            break
        for name, scorer in scorers.items():
            found[name] += next(iter(_answers(scorer, task.name, [work])))
        progress(work.items)
    return found


def _answers(scorer: Scorer, task: str, works: Iterable[Work]) -> Iterator[list[ItemResult]]:
    batch: list[Completion] = []
    for work in works:
        if isinstance(work, Passage):
            yield _read(scorer, task, work)
        elif isinstance(work, Choice):
            yield _choose(scorer, task, work)
        else:
            batch.append(work)
            if len(batch) == scorer.batch:
                yield _complete(scorer, task, batch)
                batch = []
    if batch:
        yield _complete(scorer, task, batch)


def _read(scorer: Scorer, task: str, passage: Passage) -> list[ItemResult]:
    began = perf_counter()
    try:
        weighed = scorer.read(passage)
    except ContextLengthError as error:
        weighed = [Weighed(weights=(), size=None, reason=str(error))] * len(passage.places)
    share = (perf_counter() - began) / len(passage.places)
    return [
        _chosen(task, f"{passage.id}-{i}", passage.id, place.choices, place.right, weights, share)
        for i, (place, weights) in enumerate(zip(passage.places, weighed, strict=True))
    ]


def _choose(scorer: Scorer, task: str, choice: Choice) -> list[ItemResult]:
    began = perf_counter()
    try:
        weighed = scorer.choose(choice)
    except ContextLengthError as error:
        weighed = Weighed(weights=(), size=None, reason=str(error))
    return [_chosen(task, choice.id, choice.cluster, choice.choices, choice.right, weighed, perf_counter() - began)]


def _chosen(task: str, name: str, cluster: str, choices: Sequence[str], right: int, weighed: Weighed, wall_s: float) -> ItemResult:
    """A tie with the right one is not right: it was not preferred."""
    weights = weighed.weights
    if weighed.reason is not None:
        return ItemResult(task=task, id=name, cluster=cluster, score=0.0, wall_s=wall_s, reason=weighed.reason)
    best = max(range(len(weights)), key=lambda i: (weights[i], i != right))
    return ItemResult(
        task=task, id=name, cluster=cluster, score=float(best == right), size=weighed.size, wall_s=wall_s, answer=choices[best].strip()
    )


def _complete(scorer: Scorer, task: str, items: Sequence[Completion]) -> list[ItemResult]:
    began = perf_counter()
    try:
        written = scorer.complete(items)
    except ContextLengthError as error:
        if len(items) > 1:  # one of them: the others are answered alone
            return [result for item in items for result in _complete(scorer, task, [item])]
        written = [Written(text="", reason=str(error))]
    share = (perf_counter() - began) / len(items)
    return [
        ItemResult(
            task=task,
            id=item.id,
            cluster=item.cluster,
            score=0.0 if text.reason is not None else item.check(text.text),
            size=text.size,
            wall_s=share,
            answer=text.text,
            reason=text.reason,
        )
        for item, text in zip(items, written, strict=True)
    ]


def _summary(task: str, results: Sequence[ItemResult]) -> TaskSummary:
    total, wall_s = sum(r.score for r in results), sum(r.wall_s or 0.0 for r in results)
    return TaskSummary(
        task=task,
        items=len(results),
        score=total / len(results),
        wall_s=wall_s,
        seconds_per_correct=wall_s / total if total > 0 else None,
        unanswered=sum(r.reason is not None for r in results),
    )
