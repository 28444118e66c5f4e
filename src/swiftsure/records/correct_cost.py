"""Seconds for each correct result: speed with its rework paid. A fast side that is often wrong makes its user ask again.

A side's figure is the time of all items over the sum of their scores, so wrong answers cost and bring nothing. Intervals (95 %) are
Student's t on the logarithm, by linearisation over clusters: the logarithm moves with ``time_g / time - score_g / score`` of each cluster g
(Woodruff 1971, JASA 66, 411-414); that of the ratio of two sides with the difference of theirs, because both answered the same items.
docs/paired-statistics.md shows how often they cover the truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swiftsure.records.statistics import student_t

MIN_CLUSTERS = 5
"""Fewer independent units than this make no interval."""
MIN_CORRECT = 5.0
"""With a smaller sum of scores on a side its logarithm is too far from linear for an interval."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """``value`` is None where nothing was right, the bounds where too little was measured."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectCost:
    """``baseline``, ``candidate``: seconds for each correct result. ``ratio``: the first over the second, above 1 for a
    cheaper candidate."""

    items: int
    baseline: Estimate
    candidate: Estimate
    ratio: Estimate

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def correct_cost(
    *, baseline_s: ArrayLike, candidate_s: ArrayLike, baseline: ArrayLike, candidate: ArrayLike, clusters: Sequence[object] | None = None
) -> CorrectCost | None:
    """From times and scores of the same items, ``(items,)`` each, scores at least 0. ``clusters``: what each item belongs to.

    None without an item, or where a side took no time. Raises ValueError for lengths that differ.
    """
    columns = [np.asarray(values, np.float64) for values in (baseline_s, baseline, candidate_s, candidate)]
    count = len(columns[0])
    if any(column.shape != (count,) for column in columns) or (clusters is not None and len(clusters) != count):
        raise ValueError(f"times, scores and clusters must have one entry for each of {count} items")
    known: dict[object, int] = {}
    codes = np.arange(count) if clusters is None else np.array([known.setdefault(name, len(known)) for name in clusters], np.int64)
    totals = [float(column.sum()) for column in columns]
    if count == 0 or not totals[0] > 0 or not totals[2] > 0:
        return None
    shares = [np.bincount(codes, weights=column) / total if total > 0 else None for column, total in zip(columns, totals, strict=True)]
    moves = [_moves(shares[side], shares[side + 1], totals[side + 1]) for side in (0, 2)]
    costs = [totals[side] / totals[side + 1] if totals[side + 1] > 0 else None for side in (0, 2)]
    both = moves[0] - moves[1] if moves[0] is not None and moves[1] is not None else None
    ratio = costs[0] / costs[1] if costs[0] is not None and costs[1] is not None else None
    return CorrectCost(
        items=count, baseline=_estimate(costs[0], moves[0]), candidate=_estimate(costs[1], moves[1]), ratio=_estimate(ratio, both)
    )


def _moves(times: Floats | None, scores: Floats | None, correct: float) -> Floats | None:
    return times - scores if times is not None and scores is not None and correct >= MIN_CORRECT else None


def _estimate(value: float | None, moves: Floats | None) -> Estimate:
    if value is None or moves is None or len(moves) < MIN_CLUSTERS:
        return Estimate(value=value)
    count = len(moves)
    reach = student_t(0.975, count - 1) * math.sqrt(count / (count - 1) * float((moves**2).sum()))
    return Estimate(value=value, low=value * math.exp(-reach), high=value * math.exp(reach))
