"""Medians, geometric means and paired ratios with an interval.

A ratio is estimated from pairs measured next to each other, so that a slow moment of the machine hits both sides. Pairs are grouped (one
group per prompt): the estimate is the geometric mean of the groups' geometric means, and the 95 % interval is Student's t on the
logarithms, pooled within the groups. It says how well *this* workload was measured on this machine, not how other prompts would do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

MIN_PAIRS = 5
"""Fewer pairs than this make no interval."""
MIN_PAIRS_WITH_NOISE = 3
"""The same where the noise of a single pair is known from other pairs of the run."""
MIN_FREEDOM = 3
"""Fewer degrees of freedom than this make no interval: t is above 4 there."""


def median(values: Iterable[float]) -> float:
    """The middle value, or the mean of the two middle ones. Raises ``ValueError`` without values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("the median needs at least 1 value, got 0")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def geometric_mean(values: Iterable[float]) -> float:
    """exp(mean(log)). Raises ``ValueError`` without values or for a value that is not above zero."""
    logs = [_log(value) for value in values]
    if not logs:
        raise ValueError("the geometric mean needs at least 1 value, got 0")
    return math.exp(math.fsum(logs) / len(logs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A paired ratio. ``low`` and ``high`` bound it at 95 %; both are ``None`` when there are too few pairs for an interval.

    ``spread`` says what the interval was taken from: these repeated pairs ("pairs"), the noise of all of the run's repeated pairs
    ("noise"), or the groups, where pairs were not repeated ("groups").
    """

    value: float
    low: float | None
    high: float | None
    pairs: int
    groups: int
    spread: str | None

    @property
    def conclusive(self) -> bool:
        return self.low is not None

    def to_dict(self) -> dict[str, float | int | bool | str | None]:
        return {
            "ratio": self.value,
            "low": self.low,
            "high": self.high,
            "pairs": self.pairs,
            "groups": self.groups,
            "spread": self.spread,
            "conclusive": self.conclusive,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How much the logarithm of one pair's ratio varies between repeats, from ``freedom`` degrees of freedom."""

    variance: float
    freedom: int


def pair_noise(groups: Iterable[Sequence[tuple[float, float]]]) -> Noise:
    """The variance within groups, pooled over them. Groups of one pair tell nothing."""
    logs = [_log_ratios(group) for group in groups if group]
    freedom = sum(len(group) - 1 for group in logs)
    squares = math.fsum((x - math.fsum(group) / len(group)) ** 2 for group in logs for x in group)
    return Noise(variance=squares / freedom if freedom else 0.0, freedom=freedom)


def paired_ratio(groups: Iterable[Sequence[tuple[float, float]]], noise: Noise | None = None) -> Ratio | None:
    """The ratio first / second over groups of pairs; ``None`` when there is no pair at all.

    A group weighs as much as every other, however many pairs it has: with G groups of n_g pairs and the variance s^2 within groups, the
    standard error is s * sqrt(sum 1/n_g) / G. The variance is that of these groups, or, where they have too few repeats, ``noise``: that
    of the whole run. Where nothing was repeated, the groups' own spread is used (G - 1 degrees of freedom), which is wider: it contains
    the differences between prompts.
    """
    kept = [group for group in groups if group]
    if not kept:
        return None
    means = [math.fsum(logs) / len(logs) for logs in map(_log_ratios, kept)]
    count, pairs = len(kept), sum(len(group) for group in kept)
    centre = math.fsum(means) / count
    own, weight = pair_noise(kept), math.sqrt(math.fsum(1 / len(group) for group in kept)) / count
    if pairs >= MIN_PAIRS and own.freedom >= MIN_FREEDOM:
        used, spread = own, "pairs"
    elif noise is not None and pairs >= MIN_PAIRS_WITH_NOISE and noise.freedom >= MIN_FREEDOM:
        used, spread = noise, "noise"
    elif pairs >= MIN_PAIRS and count - 1 >= MIN_FREEDOM:
        squares = math.fsum((mean - centre) ** 2 for mean in means)
        used, spread, weight = Noise(variance=squares / (count - 1), freedom=count - 1), "groups", 1 / math.sqrt(count)
    else:
        return Ratio(value=math.exp(centre), low=None, high=None, pairs=pairs, groups=count, spread=None)
    reach = student_t(0.975, used.freedom) * math.sqrt(used.variance) * weight
    return Ratio(
        value=math.exp(centre), low=math.exp(centre - reach), high=math.exp(centre + reach), pairs=pairs, groups=count, spread=spread
    )


def _log_ratios(group: Sequence[tuple[float, float]]) -> list[float]:
    return [_log(a) - _log(b) for a, b in group]


@lru_cache(maxsize=1024)
def student_t(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution, ``probability`` in [0.5, 1), by bisection on its distribution function."""
    if not 0.5 <= probability < 1:
        raise ValueError(f"probability must lie in [0.5, 1), got {probability}")
    if freedom < 1:
        raise ValueError(f"freedom must be at least 1, got {freedom}")
    low, high = 0.0, 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if student_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_cdf(t: float, freedom: int) -> float:
    """P(T <= t): the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    theta = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    term, total = 1.0, 0.0
    if freedom % 2:
        term = cosine
        for k in range(3, freedom + 1, 2):
            total += term
            term *= cosine * cosine * (k - 1) / k
        area = 2 / math.pi * (theta + sine * total)
    else:
        for k in range(2, freedom + 1, 2):
            total += term
            term *= cosine * cosine * (k - 1) / k
        area = sine * total
    return 0.5 + area / 2


def _log(value: float) -> float:
    if not value > 0 or math.isinf(value):
        raise ValueError(f"ratios and geometric means need finite values above zero, got {value}")
    return math.log(value)
