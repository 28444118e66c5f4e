"""Counts of a paired comparison of right and wrong: McNemar's exact test, the score test of non-inferiority and the score interval.

A *flip* is an item that one side got right and the other wrong: ``lost`` where only the baseline was right, ``gained`` where only the
candidate was. The difference is (gained - lost) / items. Items count as independent here; ``paired.py`` deals with clusters.

Sources: Nam (1997), Biometrics 53, 1422-1430, and Tango (1998), Statistics in Medicine 17, 891-908, for the score statistic; Berger and
Boos (1994), JASA 89, 1012-1016, for the p value that is exact although the rate of flips is unknown.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Counts: TypeAlias = NDArray[np.float64] | np.float64

_NUISANCE_DOUBT = 5e-4
"""The chance that the true rate of flips lies outside the range that the exact p value is taken over; added to that p value."""
_NUISANCE_STEPS = 64
_MOST_FLIPS = 600
"""Where more flips may come, the normal approximation of the score is as good."""
_TAIL_DEVIATIONS = 8.0

Z_95 = 1.959963984540054


def mcnemar_exact(lost: int, gained: int) -> float:
    """Two-sided p value of "a flip is as likely either way": the exact binomial test on the flips. 1.0 without flips."""
    _check_counts(lost, gained, lost + gained)
    flips = lost + gained
    if flips == 0:
        return 1.0
    tail = math.fsum(_binomial_terms(flips, 0.5)[: min(lost, gained) + 1])
    return min(1.0, 2 * tail)


@lru_cache(maxsize=4096)
def non_inferiority_exact(lost: int, gained: int, items: int, margin: float) -> float:
    """P value against "the candidate is worse by ``margin`` or more" (a share above 0 and below 1).

    The outcomes are ordered by the score statistic; the probability of those at least as favourable is maximised over the rates of flips
    that the data leave plausible. The chance to accept a candidate that is worse by exactly the margin is at most the level asked for,
    however few the flips.
    """
    _check_counts(lost, gained, items)
    if not 0 < margin < 1:
        raise ValueError(f"margin must lie in (0, 1), got {margin}")
    if items == 0:
        return 1.0
    observed = float(score_statistic(np.float64(lost), np.float64(gained), items, margin))
    low, high = clopper_pearson(lost + gained, items, _NUISANCE_DOUBT)
    low, high = max(low, margin), max(high, margin)  # so many flips it takes to be worse by the margin
    if items * high > _MOST_FLIPS:
        return 0.5 * math.erfc(observed / math.sqrt(2))
    rates = np.linspace(low, high, _NUISANCE_STEPS)
    worst = _acceptance(observed, [((rate + margin) / 2, (rate - margin) / 2) for rate in rates.tolist()], items, margin)
    return min(1.0, worst + _NUISANCE_DOUBT)


def score_statistic(lost: Counts, gained: Counts, items: float, margin: float) -> NDArray[np.float64]:
    """How far the difference is above ``-margin`` (0 or more), in standard errors of the most likely rates that have that difference.

    ``lost`` and ``gained`` broadcast. With q the rate of gains and q + margin that of losses, the likelihood is largest at the root of
    2 items q^2 - S q - gained margin (1 - margin) = 0 where S = lost (1 + margin) + gained (1 - margin) - 2 margin items.
    """
    s = lost * (1 + margin) + gained * (1 - margin) - 2 * margin * items
    q = (s + np.sqrt(s * s + 8 * items * gained * margin * (1 - margin))) / (4 * items)
    variance = items * (2 * q + margin - margin * margin)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num((gained - lost + items * margin) / np.sqrt(variance), nan=0.0))


def score_interval(lost: float, gained: float, items: float, z: float = Z_95) -> tuple[float, float]:
    """95 % interval of the difference, by inverting the score test. It has a width even without a single flip.

    Counts may be effective ones, which are not whole; ``z`` is the quantile that their spread asks for.
    """
    _check_counts(lost, gained, items)
    if items == 0:
        raise ValueError("an interval needs at least 1 item, got 0")
    return _lower_bound(lost, gained, items, z), -_lower_bound(gained, lost, items, z)


def _lower_bound(lost: float, gained: float, items: float, z: float) -> float:
    def above(difference: float) -> float:
        if difference <= 0:
            return float(score_statistic(np.float64(lost), np.float64(gained), items, -difference))
        return -float(score_statistic(np.float64(gained), np.float64(lost), items, difference))

    low, high = -1.0, (gained - lost) / items
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > z else (low, middle)
    return (low + high) / 2


def _acceptance(observed: float, rates: list[tuple[float, float]], items: int, margin: float) -> float:
    """The largest P(score >= observed) over pairs of rates (of losses, of gains)."""
    most_lost, most_gained = (_reach(max(pair[side] for pair in rates), items) for side in (0, 1))
    lost, gained = (axis.ravel() for axis in np.meshgrid(np.arange(most_lost + 1), np.arange(most_gained + 1), indexing="ij"))
    score = score_statistic(lost.astype(np.float64), gained.astype(np.float64), items, margin)
    accepted = (lost + gained <= items) & (score >= observed - 1e-9)
    lost, gained = lost[accepted], gained[accepted]
    rest = items - lost - gained
    logs = _log_factorials(items)
    ways = logs[items] - logs[lost] - logs[gained] - logs[rest]
    return max(float(np.exp(ways + _powers(lost, a) + _powers(gained, b) + _powers(rest, 1 - a - b)).sum()) for a, b in rates)


def _powers(counts: NDArray[np.int64], rate: float) -> NDArray[np.float64]:
    """counts x log(rate), with 0 log 0 = 0."""
    if rate <= 1e-300:
        return np.where(counts == 0, 0.0, -np.inf)
    return np.asarray(counts * math.log(rate))


def _reach(rate: float, items: int) -> int:
    """More of a kind than this come too rarely to matter."""
    mean = items * rate
    return min(items, math.ceil(mean + _TAIL_DEVIATIONS * math.sqrt(mean + 1)))


def _log_binomial(counts: NDArray[np.int64], items: int, rate: float) -> NDArray[np.float64]:
    logs = _log_factorials(items)
    ways = logs[items] - logs[counts] - logs[items - counts]
    if rate in (0.0, 1.0):
        return np.where(counts == items * rate, 0.0, -np.inf)
    return np.asarray(ways + counts * math.log(rate) + (items - counts) * math.log1p(-rate))


_FACTORIALS: list[NDArray[np.float64]] = [np.zeros(1)]


def _log_factorials(highest: int) -> NDArray[np.float64]:
    """log(0!) to log(highest!), kept for the next call."""
    if len(_FACTORIALS[0]) <= highest:
        _FACTORIALS[0] = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, 2 * highest + 2, dtype=np.float64)))])
    return _FACTORIALS[0]


def _binomial_terms(items: int, rate: float) -> NDArray[np.float64]:
    return np.asarray(np.exp(_log_binomial(np.arange(items + 1), items, rate)))


def clopper_pearson(count: int, items: int, doubt: float) -> tuple[float, float]:
    """The exact interval of a rate that misses it with at most this chance, half of it on each side (Clopper and Pearson 1934)."""

    def below(rate: float) -> float:
        return float(_binomial_terms(items, rate)[: count + 1].sum())

    def root(target: float, value: int) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):
            middle = (low + high) / 2
            tail = below(middle) - (float(_binomial_terms(items, middle)[count]) if value else 0.0)
            low, high = (middle, high) if tail > target else (low, middle)
        return (low + high) / 2

    lower = 0.0 if count == 0 else root(1 - doubt / 2, 1)
    upper = 1.0 if count == items else root(doubt / 2, 0)
    return lower, upper


def _check_counts(lost: float, gained: float, items: float) -> None:
    if lost < 0 or gained < 0 or lost + gained > items:
        raise ValueError(f"flips must be at least 0 and at most the items, got {lost} lost and {gained} gained of {items}")
