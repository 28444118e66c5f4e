"""How long a draft to verify: measured acceptance against the measured cost of rows.

A draft of wrong value never alters output (design section 2: the token is sampled first, then compared), so all of this is about time only.
With ``p_j`` the chance that draft token j is right given that all before it were, a draft of d tokens brings
``1 + p_1 + p_1 p_2 + ...`` tokens for the price of ``1 + d`` rows; the length with the best ratio is taken, often zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_DRAFT = 15

# Match lengths are counted in these classes. The prior chances are a first guess that a few drafts' outcomes outweigh.
_CLASS_STARTS = (1, 2, 3, 4, 6, 8, 12, 16)
_PRIOR_CHANCE = (0.20, 0.35, 0.50, 0.60, 0.70, 0.80, 0.88, 0.93)
_CLASS_OF = [max(0, sum(start <= length for start in _CLASS_STARTS) - 1) for length in range(_CLASS_STARTS[-1] + 1)]
_PRIOR_WEIGHT = 4.0  # drafts
_GROWTH = 1.0 / 0.97  # a new draft counts this much more than the one before it: the same as letting old ones fade
_DECLINED_DECAY = 0.99  # forgetting while nothing is tried, so that a bad spell does not end speculation for good
_UNLIKELY = 0.02  # a draft token that is reached less often is not worth a row

# Time of M rows over that of one, before anything was measured: weights are read once, arithmetic grows with M.
PRIOR_SHAPE: Mapping[int, float] = {1: 1.0, 2: 1.3, 4: 1.9, 8: 3.1, 16: 5.5, 32: 10.5}


class Acceptance:
    """Fading counts of draft tokens right and tried, by length of the match that they continue."""

    __slots__ = ("_parent", "_right", "_tried", "_weight")

    def __init__(self, parent: Acceptance | None = None) -> None:
        """``parent`` (all requests together) takes the place of the prior."""
        self._parent = parent
        self._right = [0.0] * len(_CLASS_STARTS)
        self._tried = [0.0] * len(_CLASS_STARTS)
        self._weight = 1.0  # of the next draft

    def chance(self, match_length: int) -> float:
        """Probability that the token after a match this long is the sampled one."""
        return self._class_chance(_CLASS_OF[min(match_length, _CLASS_STARTS[-1])])

    def _class_chance(self, at: int) -> float:
        prior = _PRIOR_CHANCE[at] if self._parent is None else self._parent._class_chance(at)
        prior_weight = _PRIOR_WEIGHT * self._weight
        return (self._right[at] + prior_weight * prior) / (self._tried[at] + prior_weight)

    def record(self, match_length: int, drafted: int, accepted: int) -> None:
        """A draft of ``drafted`` tokens was verified; its first ``accepted`` were right. Later ones count only if all before were."""
        weight = self._weight
        for j in range(min(accepted + 1, drafted)):
            at = _CLASS_OF[min(match_length + j, _CLASS_STARTS[-1])]
            self._tried[at] += weight
            if j < accepted:
                self._right[at] += weight
        self._weight = weight * _GROWTH
        if self._weight > 1e6:
            self._right = [count / self._weight for count in self._right]
            self._tried = [count / self._weight for count in self._tried]
            self._weight = 1.0

    def forget(self, match_length: int) -> None:
        """An offered draft was declined."""
        at = _CLASS_OF[min(match_length, _CLASS_STARTS[-1])]
        self._right[at] *= _DECLINED_DECAY
        self._tried[at] *= _DECLINED_DECAY


class StepCost:
    """Time of a pass by its rows: a shape over that of one row, slowly learnt, times a scale that follows context and machine load."""

    __slots__ = ("_scale_s", "_shape")

    def __init__(self, seconds_by_rows: Mapping[int, float] | None = None) -> None:
        measured = dict(seconds_by_rows) if seconds_by_rows and len(seconds_by_rows) > 1 else {}
        self._scale_s = measured.get(1)
        points = {rows: s / self._scale_s for rows, s in measured.items()} if self._scale_s else dict(PRIOR_SHAPE)
        rising: dict[int, float] = {}
        for rows in sorted(points):  # more rows never cost less; a measurement that says so was disturbed
            rising[rows] = max(points[rows], *rising.values(), 1.0)
        self._shape = _interpolate(rising)  # by rows, from 0

    @property
    def one_row_s(self) -> float | None:
        return self._scale_s

    def relative(self, rows: int) -> float:
        """Time of ``rows`` rows over that of one; beyond the measured points as steep as at their end."""
        shape, last = self._shape, len(self._shape) - 1
        return shape[rows] if rows <= last else shape[last] + (rows - last) * (shape[last] - shape[last // 2]) / (last - last // 2)

    def observe(self, rows: int, seconds: float) -> None:
        """A pass of decode rows took ``seconds``. An outlier (a descheduled thread) moves little."""
        expected = self.relative(rows)
        if self._scale_s is None:
            self._scale_s = seconds / expected
            return
        ratio = min(max(seconds / (self._scale_s * expected), 0.5), 2.0) - 1.0
        if rows == 1:  # one row's time is the scale; others mostly move their own point of the shape
            self._scale_s *= 1.0 + 0.1 * ratio
            return
        self._scale_s *= 1.0 + 0.02 * ratio
        near = rows // 8
        for r in range(max(2, rows - near), min(rows + near + 1, len(self._shape))):
            self._shape[r] = max(1.0, self._shape[r] * (1.0 + 0.05 * ratio))


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
        relative = self.cost.relative
        lengths = [0] * len(offers)
        best, best_lengths = base_rows / relative(base_rows), lengths.copy()
        reach = [offer.acceptance.chance(offer.match_length) for offer in offers]
        tokens = float(base_rows)
        for rows in range(base_rows + 1, max_rows + 1):
            i = reach.index(max(reach))
            if reach[i] <= _UNLIKELY:
                break
            tokens += reach[i]
            lengths[i] += 1
            offer = offers[i]
            more = lengths[i] < offer.available
            reach[i] *= offer.acceptance.chance(offer.match_length + lengths[i]) if more else 0.0
            rate = tokens / relative(rows)
            if rate > best:
                best, best_lengths = rate, lengths.copy()
        return best_lengths

    def record(self, acceptance: Acceptance, match_length: int, drafted: int, accepted: int) -> None:
        """What became of a draft, for the request and for all."""
        acceptance.record(match_length, drafted, accepted)
        self.acceptance.record(match_length, drafted, accepted)

    def decline(self, acceptance: Acceptance, match_length: int) -> None:
        acceptance.forget(match_length)
        self.acceptance.forget(match_length)


def _interpolate(points: Mapping[int, float]) -> list[float]:
    """Values for 0 to the greatest key, linear between the points; below the first as at the first."""
    keys = sorted(points)
    values = [points[keys[0]]] * (keys[0] + 1)
    for a, b in pairwise(keys):
        values += [points[a] + (points[b] - points[a]) * (r - a) / (b - a) for r in range(a + 1, b + 1)]
    return values
