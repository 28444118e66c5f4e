"""Tasks of the built-in suite, answered by both sides of a verification in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.tasks import Item
from swiftsure.verify.subjects.base import Subject
from swiftsure.verify.subjects.endpoint import UrlSubject
from swiftsure.verify.subjects.mode import ModeSubject
from swiftsure.verify.tasks.catalogue import TASKS, tasks_named
from swiftsure.verify.tasks.endpoint import EndpointScorer
from swiftsure.verify.tasks.pairing import pair_results
from swiftsure.verify.tasks.run import answer_pairs
from swiftsure.verify.tasks.scoring import Scorer, WorkerScorer

BUDGET_S = 600.0
"""No item of a task begins after so many seconds; what was answered by then is compared."""


def check_suites(contract: Contract) -> None:
    """Raises UsageError for a suite that there is not, before anything runs."""
    tasks_named([task.suite for task in contract.tasks if task.suite is not None])


def measure_suites(
    contract: Contract, subjects: Mapping[str, Subject], advance: Callable[[int, int], None]
) -> tuple[dict[str, list[Item]], list[str]]:
    """Items by task, as many of each as its rules ask, and remarks on what was left out. Endpoints answer tasks of texts, programs none.

    ``subjects``: baseline and candidate, started. Raises WorkerError when a worker breaks.
    """
    found: dict[str, list[Item]] = {}
    remarks: list[str] = []
    scorers = {side: scorer for side, subject in subjects.items() if (scorer := _scorer(subject)) is not None}
    for rules in contract.tasks:
        if rules.suite is None:
            continue
        if len(scorers) < len(subjects):
            remarks.append(f"Task {rules.name}: the suite is answered by modes, model files and endpoints alone.")
            continue
        [task] = tasks_named([rules.suite])
        if task.method == "likelihood" and not all(scorer.can_weigh for scorer in scorers.values()):
            texts = ", ".join(known.name for known in TASKS if known.method == "text")
            remarks.append(f"Task {rules.name}: {task.name} needs likelihoods, and endpoints give texts; they answer {texts}.")
            continue
        done = 0

        def progress(items: int, total: int = rules.asked) -> None:
            nonlocal done
            done += items
            advance(min(done, total), total)

        answers = answer_pairs(scorers, task, limit=rules.asked, budget_s=BUDGET_S, progress=progress)
        pairing = pair_results(answers["baseline"], answers["candidate"])
        remarks += [f"Task {rules.name}: {remark}." for remark in pairing.remarks()]
        found[rules.name] = [
            Item(
                id=a.id,
                baseline=a.score,
                candidate=b.score,
                cluster=a.cluster,
                group=contract.range_of(a.size),
                baseline_s=a.wall_s,
                candidate_s=b.wall_s,
            )
            for a, b in zip(pairing.baseline, pairing.candidate, strict=True)
        ]
    return found, remarks


def _scorer(subject: Subject) -> Scorer | None:
    if isinstance(subject, UrlSubject):
        return EndpointScorer(subject)
    return WorkerScorer(subject.client) if isinstance(subject, ModeSubject) and subject.client is not None else None
