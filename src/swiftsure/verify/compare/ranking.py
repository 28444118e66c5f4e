"""How much of one order another keeps: of scores along the last axis, the worst row beside the mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare.elements import Array, as_float64

TOP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """``spearman``: correlation of ranks, ties sharing their mean rank. ``kendall_top``: tau-b among the baseline's ``top`` highest.
    ``top_kept``: share of the baseline's ``top`` highest that are among the candidate's. ``neighbours_kept``: share of neighbours in the
    baseline's order that keep it. Each is 1 where nothing could change; a NaN anywhere makes all of them NaN.

    Of several rows: the mean, with ``_worst`` beside it.
    """

    rows: int
    top: int
    spearman: float
    spearman_worst: float
    kendall_top: float
    kendall_top_worst: float
    top_kept: float
    top_kept_worst: float
    neighbours_kept: float
    neighbours_kept_worst: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


def compare_rankings(base: Array, candidate: Array, *, top: int = TOP) -> Ranking:
    """Compares scores ``(..., n)``, n at least 1, a row at a time. Raises ValueError for other or different shapes."""
    if base.shape != candidate.shape or base.ndim == 0 or base.size == 0:
        raise ValueError(f"rankings need arrays of one shape with elements, got {base.shape} and {candidate.shape}")
    top = min(top, base.shape[-1])
    found = np.array([_row(a, b, top) for a, b in _rows(base, candidate)])  # (rows, 4)
    mean, worst = found.mean(0), found.min(0)
    return Ranking(
        rows=len(found),
        top=top,
        spearman=float(mean[0]),
        spearman_worst=float(worst[0]),
        kendall_top=float(mean[1]),
        kendall_top_worst=float(worst[1]),
        top_kept=float(mean[2]),
        top_kept_worst=float(worst[2]),
        neighbours_kept=float(mean[3]),
        neighbours_kept_worst=float(worst[3]),
    )


def _rows(base: Array, candidate: Array) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    for index in np.ndindex(base.shape[:-1]):
        yield as_float64(np.asarray(base[index])), as_float64(np.asarray(candidate[index]))


def _row(a: NDArray[np.float64], b: NDArray[np.float64], top: int) -> tuple[float, float, float, float]:
    if np.isnan(a).any() or np.isnan(b).any():
        return (np.nan,) * 4
    highest = np.argsort(-a, kind="stable")[:top]
    # An element of the top is kept when no more than top - 1 elements stand above it in the candidate: its ties do it no harm.
    kept = b[highest] >= np.partition(b, len(b) - top)[len(b) - top]
    return _spearman(a, b), _kendall(a[highest], b[highest]), float(kept.mean()), _neighbours(a, b)


def _spearman(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else float(np.array_equal(x, y))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 0; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: NDArray[np.float64] = ((ends - counts + ends - 1) / 2)[place.reshape(-1)]
    return ranks


def _kendall(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Tau-b (Kendall 1945) over all pairs."""
    upper = np.triu_indices(len(a), 1)
    x, y = (np.sign(values[upper[0]] - values[upper[1]]) for values in (a, b))
    scale = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else float(np.array_equal(x, y))


def _neighbours(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    order = np.argsort(a, kind="stable")
    counted = np.diff(a[order]) > 0
    return float((np.diff(b[order])[counted] > 0).mean()) if counted.any() else 1.0
