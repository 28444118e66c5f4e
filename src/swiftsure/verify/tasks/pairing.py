"""Two subjects' results, item by item: what pairs, what does not, and what the comparison says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.records.paired import PairedComparison, compare_paired
from swiftsure.verify.tasks.items import ItemResult

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """``only_baseline``, ``only_candidate``: items without a partner. ``unanswered``: items that the baseline itself did not answer."""

    baseline: tuple[ItemResult, ...]
    candidate: tuple[ItemResult, ...]
    only_baseline: tuple[str, ...]
    only_candidate: tuple[str, ...]
    unanswered: tuple[str, ...]

    def compare(self, *, margin: float | None, group: Callable[[ItemResult], str] | None = None, seed: int = 0) -> PairedComparison:
        """``group``: the setting of an item, by the baseline's result. An item that only the candidate fails to answer scores 0 there."""
        return compare_paired(
            [result.score for result in self.baseline],
            [result.score for result in self.candidate],
            margin=margin,
            clusters=[result.cluster for result in self.baseline],
            groups=None if group is None else [group(result) for result in self.baseline],
            seed=seed,
        )

    def remarks(self) -> list[str]:
        """What was left out, in words."""
        parts = (
            ("only in the baseline's results", self.only_baseline),
            ("only in the candidate's results", self.only_candidate),
            ("not answered by the baseline", self.unanswered),
        )
        return [
            f"{len(ids):,} items {words}: {', '.join(ids[:_NAMED])}{', ...' if len(ids) > _NAMED else ''}" for words, ids in parts if ids
        ]

    def to_dict(self) -> dict[str, Any]:
        names = ("only_baseline", "only_candidate", "unanswered")
        return {"pairs": len(self.baseline)} | {name: len(getattr(self, name)) for name in names}


def pair_results(baseline: Sequence[ItemResult], candidate: Sequence[ItemResult]) -> Pairing:
    """Pairs by task and id, in the baseline's order. Raises UsageError where an id comes twice, or nothing pairs."""
    left, right = _by_key("baseline", baseline), _by_key("candidate", candidate)
    answered = [key for key, result in left.items() if key in right and result.reason is None]
    if left and all(result.reason is not None for result in left.values()):
        first = next(iter(left.values()))
        raise UsageError(f"the baseline answered none of {len(left)} items; the first, {first.id}: {first.reason}")
    if not answered:
        raise UsageError(
            f"baseline and candidate must answer the same items, but none of {len(left)} and {len(right)} ids pair; "
            f"first ids: {_first(left)} and {_first(right)}"
        )
    return Pairing(
        baseline=tuple(left[key] for key in answered),
        candidate=tuple(right[key] for key in answered),
        only_baseline=tuple(key[1] for key in left if key not in right),
        only_candidate=tuple(key[1] for key in right if key not in left),
        unanswered=tuple(key[1] for key, result in left.items() if key in right and result.reason is not None),
    )


def _by_key(side: str, results: Sequence[ItemResult]) -> dict[tuple[str, str], ItemResult]:
    found: dict[tuple[str, str], ItemResult] = {}
    for result in results:
        key = (result.task, result.id)
        if key in found:
            raise UsageError(f"ids must be unique within a task; in the {side}'s results, {result.id!r} of {result.task!r} comes twice")
        found[key] = result
    return found


def _first(results: dict[tuple[str, str], ItemResult]) -> str:
    return repr(next(iter(results))[1]) if results else "none"
