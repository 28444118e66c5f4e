"""How long a draft to verify: measured acceptance against the measured cost of rows.

A draft of wrong value never alters output (design section 2: the token is sampled first, then compared), so all of this is about time only.
With ``p_j`` the chance that draft token j is right given that all before it were, a draft of d tokens brings
``1 + p_1 + p_1 p_2 + ...`` tokens for the price of ``1 + d`` rows; the length with the best ratio is taken, often zero.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_DRAFT = 15

# Match lengths are counted in these classes. The prior chances are a first guess that a few drafts' outcomes outweigh.
_CLASS_STARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_PRIOR_CHANCE = (0.20, 0.35, 0.50, 0.60, 0.70, 0.80, 0.88, 0.93)
_PRIOR_WEIGHT = 4.0
_DECAY = 0.97  # of what was counted, per draft
_DECLINED_DECAY = 0.99  # forgetting while nothing is tried, so that a bad spell does not end speculation for good

# Time of M rows over that of one, before anything was measured: weights are read once, arithmetic grows with M.
PRIOR_SHAPE: Mapping[int, float] = {1: 1.0, 2: 1.3, 4: 1.9, 8: 3.1, 16: 5.5, 32: 10.5}


class Acceptance:
    """Decaying counts of draft tokens right and tried, by length of the match that they continue."""

    __slots__ = ("_right", "_tried")

    def __init__(self) -> None:
        self._right = [0.0] * len(_CLASS_STARTS)
        self._tried = [0.0] * len(_CLASS_STARTS)

    def chance(self, match_length: int, parent: Acceptance | None = None) -> float:
        """Probability that the token after a match this long is the sampled one. ``parent`` (all requests) replaces the prior."""
        at = _class_of(match_length)
        prior = parent.chance(match_length) if parent is not None else _PRIOR_CHANCE[at]
        return (self._right[at] + _PRIOR_WEIGHT * prior) / (self._tried[at] + _PRIOR_WEIGHT)

    def record(self, match_length: int, drafted: int, accepted: int) -> None:
        """A draft of ``drafted`` tokens was verified; its first ``accepted`` were right. Later ones count only if all before were."""
        for at in range(len(_CLASS_STARTS)):
            self._right[at] *= _DECAY
            self._tried[at] *= _DECAY
        for j in range(min(accepted + 1, drafted)):
            at = _class_of(match_length + j)
            self._tried[at] += 1.0
            self._right[at] += 1.0 if j < accepted else 0.0

    def forget(self, match_length: int) -> None:
        """An offered draft was declined."""
        at = _class_of(match_length)
        self._right[at] *= _DECLINED_DECAY
        self._tried[at] *= _DECLINED_DECAY


class StepCost:
    """Time of a pass by its rows: a shape over 1, relative and slowly learnt, times a scale that follows context and machine load."""

    __slots__ = ("_rows", "_scale_s", "_shape")

    def __init__(self, seconds_by_rows: Mapping[int, float] | None = None) -> None:
        measured = dict(seconds_by_rows) if seconds_by_rows else {}
        one = measured.get(1)
        shape = {rows: s / one for rows, s in measured.items()} if one else dict(PRIOR_SHAPE)
        self._rows = sorted(shape)
        self._shape: list[float] = []
        for rows in self._rows:  # more rows never cost less; a measurement that says so was disturbed
            self._shape.append(max(shape[rows], self._shape[-1] if self._shape else 1.0))
        self._scale_s = one

    @property
    def one_row_s(self) -> float | None:
        return self._scale_s

    def relative(self, rows: int) -> float:
        """Time of ``rows`` rows over that of one; linear between and beyond the measured points."""
        at = min(max(bisect.bisect_left(self._rows, rows), 1), len(self._rows) - 1)
        r0, r1 = self._rows[at - 1], self._rows[at]
        s0, s1 = self._shape[at - 1], self._shape[at]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def observe(self, rows: int, seconds: float) -> None:
        """A pass of decode rows took ``seconds``. Outliers (a descheduled thread) move little."""
        expected = self.relative(rows)
        if self._scale_s is None:
            self._scale_s = seconds / expected
            return
        ratio = min(max(seconds / (self._scale_s * expected), 0.5), 2.0)
        if rows != 1:  # the gauge: shape(1) stays 1, so one row's time sets the scale and others mostly their own point
            self._scale_s *= 1.0 + 0.02 * (ratio - 1.0)
            at = bisect.bisect_left(self._rows, rows)
            for near in {min(at, len(self._rows) - 1), max(at - 1, 0)} - {0}:
                if abs(self._rows[near] - rows) <= rows // 4:
                    self._shape[near] = max(1.0, self._shape[near] * (1.0 + 0.05 * (ratio - 1.0)))
        else:
            self._scale_s *= 1.0 + 0.1 * (ratio - 1.0)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one decoding sequence could verify in the next pass."""

    acceptance: Acceptance
    match_length: int
    available: int  # draft tokens offered, at least 1


class DraftPolicy:
    """Chooses draft lengths and learns from what came of them."""

    def __init__(self, cost: StepCost | None = None) -> None:
        self.cost = cost or StepCost()
        self.acceptance = Acceptance()

    def reset(self) -> None:
        """Forgets what earlier requests taught about acceptance."""
        self.acceptance = Acceptance()

    def choose(self, offers: Sequence[Offer], *, base_rows: int, max_rows: int) -> list[int]:
        """Draft length for every offer, in a pass that runs ``base_rows`` rows anyway and at most ``max_rows``.

        Adds draft rows one at a time, the likeliest first, and keeps the point where tokens per time is best.
        """
        lengths = [0] * len(offers)
        best, best_lengths = base_rows / self.cost.relative(base_rows), lengths.copy()
        reach = [self._chance(offer, 0) for offer in offers]
        tokens, rows = float(base_rows), base_rows
        for _ in range(max_rows - base_rows):
            i = max(range(len(offers)), key=reach.__getitem__)
            if reach[i] <= 0.02:
                break
            tokens += reach[i]
            rows += 1
            lengths[i] += 1
            reach[i] = reach[i] * self._chance(offers[i], lengths[i]) if lengths[i] < offers[i].available else 0.0
            rate = tokens / self.cost.relative(rows)
            if rate > best:
                best, best_lengths = rate, lengths.copy()
        return best_lengths

    def record(self, acceptance: Acceptance, match_length: int, drafted: int, accepted: int) -> None:
        acceptance.record(match_length, drafted, accepted)
        self.acceptance.record(match_length, drafted, accepted)

    def decline(self, acceptance: Acceptance, match_length: int) -> None:
        acceptance.forget(match_length)
        self.acceptance.forget(match_length)

    def _chance(self, offer: Offer, depth: int) -> float:
        return offer.acceptance.chance(offer.match_length + depth, self.acceptance)


def _class_of(match_length: int) -> int:
    return max(0, bisect.bisect_right(_CLASS_STARTS, match_length) - 1)
