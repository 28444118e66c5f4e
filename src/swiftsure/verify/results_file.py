"""Scores of a task that was measured elsewhere: one file for each side, see ``tasks/importing.py`` for what a file may be."""

from __future__ import annotations

from pathlib import Path

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.tasks import Item
from swiftsure.verify.tasks.importing import read_results as read_items
from swiftsure.verify.tasks.items import ItemResult


def read_results(values: list[str] | None, contract: Contract) -> dict[str, list[Item]]:
    """``NAME=BASELINE_FILE,CANDIDATE_FILE`` for each task.

    Raises UsageError for a task that the contract does not name, and for items that do not pair: a loss may hide in what is missing.
    """
    found: dict[str, list[Item]] = {}
    for value in values or ():
        name, _, files = value.partition("=")
        baseline, comma, candidate = files.partition(",")
        if not name or not baseline or not comma or not candidate:
            raise UsageError(f"--results takes NAME=BASELINE_FILE,CANDIDATE_FILE, got {value!r}")
        task = next((task for task in contract.tasks if task.name == name), None)
        if task is None:
            known = ", ".join(task.name for task in contract.tasks) or "none"
            raise UsageError(f"--results names task {name!r}; the contract's are {known}")
        if task.output is not None or name in found:
            raise UsageError(
                f"task {name} has its scores from {'an output' if task.output is not None else 'an earlier --results'} already"
            )
        found[name] = _paired(name, _read(Path(baseline)), _read(Path(candidate)), contract)
    return found


def _paired(name: str, base: dict[str, ItemResult], other: dict[str, ItemResult], contract: Contract) -> list[Item]:
    alone = sorted(base.keys() ^ other.keys())
    if alone:
        raise UsageError(
            f"task {name}: {len(alone)} items have a score on one side alone, first {alone[0]!r}; both sides must answer the same"
        )
    return [
        Item(
            id=id_,
            baseline=item.score,
            candidate=other[id_].score,
            cluster=item.cluster,
            group=contract.range_of(item.size),
            baseline_s=item.wall_s,
            candidate_s=other[id_].wall_s,
        )
        for id_, item in base.items()
    ]


def _read(path: Path) -> dict[str, ItemResult]:
    found: dict[str, ItemResult] = {}
    for item in read_items(path):
        if item.id in found:
            raise UsageError(f"{path}: item {item.id!r} comes twice; give a file of one task")
        found[item.id] = item
    return found
