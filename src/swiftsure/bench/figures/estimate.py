"""Percentiles with a 95 % interval by the hierarchical bootstrap, vectorised.

Drawn with replacement: prompts, rounds (the same draw for all prompts, for a slow hour hits them all; Owen 2007, Annals of Applied
Statistics 1, 386-411), and within each prompt and round its repeats. So the interval speaks of prompts and hours like these, not only of
repeats of these. Bounds are percentiles of the draws, taken a little wider for few prompts (Hesterberg 2015, The American Statistician
69, 371-386). A drawn percentile is that of :mod:`swiftsure.bench.percentiles`, over values that stand as often as they were drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.bench.percentiles import percentile_of_sorted
from swiftsure.records.statistics import student_t

Floats: TypeAlias = NDArray[np.float64]

MIN_VALUES = 5
"""Fewer exchanges than this make no interval."""
_MOST_WEIGHTS = 8_000_000  # draws x exchanges held at once; above, fewer draws are taken
_FEWEST_DRAWS = 200
_BINS = 2048  # of pooled gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure. ``value`` None: not reached or not measurable, ``words`` says why. ``low``, ``high``: 95 %, None with too few samples.

    ``count``: values it was taken from, ``exchanges``, ``prompts``, ``rounds``: what they come from.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    count: int = 0
    exchanges: int = 0
    prompts: int = 0
    rounds: int = 0
    words: str | None = None

    @property
    def conclusive(self) -> bool:
        return self.value is not None and self.low is not None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"conclusive": self.conclusive}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Estimate:
        values: dict[str, Any] = {name: plain[name] for name in cls.__slots__}
        return cls(**values)


class Sample:
    """Exchanges by prompt and round, with the draws that all of their figures share."""

    def __init__(self, prompts: Sequence[str], rounds: Sequence[int], *, resamples: int, seed: int) -> None:
        self.prompts = np.unique(np.asarray(prompts, dtype=str), return_inverse=True)[1]
        self.rounds = np.unique(np.asarray(rounds, dtype=np.int64), return_inverse=True)[1]
        draws = max(_FEWEST_DRAWS, min(resamples, _MOST_WEIGHTS // max(len(prompts), 1)))
        self.weights = _draw(self.prompts, self.rounds, draws, np.random.Generator(np.random.PCG64(seed)))

    def percentiles(self, values: Floats, percents: Sequence[int]) -> list[Estimate]:
        """``values``: one an exchange, NaN where it has none, infinity where it was not reached."""
        known = np.flatnonzero(~np.isnan(values))
        if not len(known):
            return [Estimate(value=None, words="not measurable in any exchange") for _ in percents]
        order = known[np.argsort(values[known], kind="stable")]
        drawn = np.cumsum(self.weights[:, order], axis=1)
        return [self._estimate(values[order], drawn, percent, len(known), known) for percent in percents]

    def pooled(self, gaps: Sequence[Floats], percents: Sequence[int]) -> list[Estimate]:
        """``gaps``: those of each exchange. Whole exchanges are drawn; values are read to 1 in 2,048 of the pooled ones."""
        known = np.array([i for i, own in enumerate(gaps) if len(own)], dtype=np.int64)
        if not len(known):
            return [Estimate(value=None, words="no exchange has a gap between arrivals") for _ in percents]
        pooled = np.sort(np.concatenate([gaps[i] for i in known]))
        edges = np.unique(pooled[np.minimum((np.arange(1, _BINS + 1) * len(pooled) + _BINS - 1) // _BINS, len(pooled)) - 1])
        counts = np.stack([np.bincount(np.searchsorted(edges, gaps[i]), minlength=len(edges)) for i in known]).astype(np.float64)
        drawn = np.cumsum(self.weights[:, known] @ counts, axis=1)
        exact = [percentile_of_sorted(pooled, percent) for percent in percents]
        found = [self._estimate(edges, drawn, percent, len(pooled), known) for percent in percents]
        return [_with_value(estimate, value) for estimate, value in zip(found, exact, strict=True)]

    def _estimate(self, ordered: Floats, drawn: Floats, percent: int, count: int, known: NDArray[np.int64]) -> Estimate:
        share = percent / 100
        value = percentile_of_sorted(ordered, percent)
        needed = max(MIN_VALUES, math.ceil(1 / min(share, 1 - share) - 1e-9)) if 0 < share < 1 else MIN_VALUES
        prompts, rounds = len(np.unique(self.prompts[known])), len(np.unique(self.rounds[known]))
        low = high = words = None
        if len(known) < MIN_VALUES or count < needed:
            got = f"{len(known)} exchanges" if len(known) < MIN_VALUES else f"{count} values"
            words = f"INCONCLUSIVE: {got}, the {percent}th percentile needs {MIN_VALUES if len(known) < MIN_VALUES else needed}"
        else:
            low, high = bounds(_weighted(ordered, drawn, share), prompts if prompts > 1 else len(known))
        if math.isinf(value):
            missed = f"not reached in {int(np.isinf(ordered).sum())} of {count}"
            return Estimate(value=None, count=count, exchanges=len(known), prompts=prompts, rounds=rounds, words=missed)
        if high is not None and math.isinf(high):
            high, words = None, "the upper bound was not reached"
        return Estimate(value=value, low=low, high=high, count=count, exchanges=len(known), prompts=prompts, rounds=rounds, words=words)


def _with_value(estimate: Estimate, value: float) -> Estimate:
    plain = {name: getattr(estimate, name) for name in estimate.__slots__}
    low, high = plain["low"], plain["high"]
    plain |= {"value": value, "low": None if low is None else min(low, value), "high": None if high is None else max(high, value)}
    return Estimate(**plain)


def _draw(prompts: NDArray[Any], rounds: NDArray[Any], draws: int, rng: np.random.Generator) -> Floats:
    """How often each exchange stands in each draw: ``(draws, exchanges)``."""
    weights = np.zeros((draws, len(prompts)))
    if not len(prompts):
        return weights
    by_prompt, by_round = (rng.multinomial(n, np.full(n, 1 / n), draws) for n in (prompts.max() + 1, rounds.max() + 1))
    cells = prompts * (rounds.max() + 1) + rounds
    for cell in np.unique(cells):
        members = np.flatnonzero(cells == cell)
        times = by_prompt[:, prompts[members[0]]] * by_round[:, rounds[members[0]]]
        weights[:, members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)), draws) * times[:, None]
    return weights


def _weighted(ordered: Floats, drawn: Floats, share: float) -> Floats:
    """The percentile of each draw: ``ordered`` values ``(n,)``, ``drawn`` cumulated weights ``(draws, n)``. Draws without weight: none."""
    totals = drawn[:, -1]
    drawn, totals = drawn[totals > 0], totals[totals > 0]
    aim, last = share * totals, len(ordered) - 1
    first = np.minimum((drawn < aim[:, None] - 1e-6).sum(axis=1), last)
    found: Floats = ordered[first]
    met = np.flatnonzero(drawn[np.arange(len(drawn)), first] <= aim + 1e-6)
    if len(met):
        beyond = np.minimum((drawn[met] <= aim[met, None] + 1e-6).sum(axis=1), last)
        upper = ordered[beyond]
        found[met] = np.where(found[met] == upper, upper, (found[met] + upper) / 2)
    return found


def bounds(values: Floats, units: int) -> tuple[float | None, float | None]:
    """Of draws over ``units`` independent things."""
    if not len(values):
        return None, None
    tail = _tail(units)
    ordered = np.sort(values)
    at = min(int(tail * len(ordered)), len(ordered) // 2)
    return float(ordered[at]), float(ordered[len(ordered) - 1 - at])


@cache
def _tail(units: int) -> float:
    """How much is cut off on each side: 2.5 %, and less for few units."""
    return NormalDist().cdf(-math.sqrt(units / (units - 1)) * student_t(0.975, units - 1)) if units > 1 else 0.025
