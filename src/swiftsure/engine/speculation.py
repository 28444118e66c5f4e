"""How long a draft to verify: measured acceptance against the measured cost of rows.

A draft of wrong value never alters output (design section 2: the token is sampled first, then compared), so all of this is about time only.
With ``p_j`` the chance that draft token j is right given that all before it were, a draft of d tokens brings
``1 + p_1 + p_1 p_2 + ...`` tokens for the price of ``1 + d`` rows; the length with the best ratio is taken, often zero.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import inf, log2, prod

MAX_DRAFT = 15

# A source states a chance for each token; outcomes are counted by classes of it, finer towards certainty.
_CLASS_EDGES = (0.03, 0.06, 0.10, 0.16, 0.24, 0.33, 0.43, 0.53, 0.63, 0.72, 0.80, 0.86, 0.91, 0.95, 0.98)
_CLASSES = len(_CLASS_EDGES) + 1
USUAL_TRUST = 8.0  # drafts that a chance stands for which was stated, or expected, before any was seen
_PRIOR_DEPTH_CHANCE = 0.6  # of a token that is not drafted yet, before any was
_GROWTH = 1.0 / 0.98  # a new draft counts this much more than the one before it: the same as letting old ones fade
_DECLINED_DECAY = 0.99  # forgetting while nothing is tried, so that a bad spell does not end speculation for good
_UNLIKELY = 0.02  # a draft token that is reached less often is not worth a row

_CONTEXT_STEP = 1024  # tokens
_FOLLOW_SPEED, _FOLLOW_SPEED_BY_MANY = 0.15, 0.02  # of a change seen in a step of one row, of more: how much is the machine's
_FOLLOW_ROWS = 0.10  # of a change seen in a step of several rows: how much is the price of rows, once for all sizes and once for near ones

# Time of M rows over that of one, before anything was measured: weights are read once, arithmetic grows with M.
PRIOR_SHAPE: Mapping[int, float] = {1: 1.0, 2: 1.3, 4: 1.9, 8: 3.1, 16: 5.5, 32: 10.5}


class Acceptance:
    """Fading counts of one source's draft tokens, right and tried: by the chance it stated, and by depth in the draft."""

    __slots__ = ("_depth_right", "_depth_tried", "_parent", "_right", "_tried", "_trust", "_weight")

    def __init__(self, parent: Acceptance | None = None, *, trust: float = USUAL_TRUST) -> None:
        """``parent`` (all requests together) takes the place of the prior. ``trust``: drafts that a stated chance stands for."""
        self._parent = parent
        self._trust = trust
        self._weight = 1.0  # of the next draft
        self._right = [0.0] * _CLASSES
        self._tried = [0.0] * _CLASSES
        self._depth_right = [0.0] * MAX_DRAFT
        self._depth_tried = [0.0] * MAX_DRAFT

    def chances(self, stated: Sequence[float]) -> list[float]:
        """Probability of each token to be the sampled one, given that all before it were, where its source says ``stated``."""
        return self._chances(stated, [bisect_right(_CLASS_EDGES, said) for said in stated])

    def _chances(self, stated: Sequence[float], classes: Sequence[int]) -> list[float]:
        priors = stated if self._parent is None else self._parent._chances(stated, classes)
        right, tried, prior_weight = self._right, self._tried, self._trust * self._weight
        return [(right[at] + prior_weight * prior) / (tried[at] + prior_weight) for at, prior in zip(classes, priors, strict=True)]

    def chance_at(self, depth: int) -> float:
        """The same of a token that is not drafted yet, from 0 on."""
        prior = _PRIOR_DEPTH_CHANCE if self._parent is None else self._parent.chance_at(depth)
        prior_weight = USUAL_TRUST * self._weight
        return (self._depth_right[depth] + prior_weight * prior) / (self._depth_tried[depth] + prior_weight)

    def record(self, stated: Sequence[float], accepted: int) -> None:
        """A draft of tokens with ``stated`` chances was verified; its first ``accepted`` were right. Later ones count only if all before
        were."""
        weight = self._weight
        for j in range(min(accepted + 1, len(stated))):
            at = bisect_right(_CLASS_EDGES, stated[j])
            self._tried[at] += weight
            self._depth_tried[j] += weight
            if j < accepted:
                self._right[at] += weight
                self._depth_right[j] += weight
        self._outweigh(_GROWTH)

    def fade(self) -> None:
        """The source was not asked: what it once did says ever less, so that it is tried again after a while."""
        self._outweigh(1.0 / _DECLINED_DECAY)

    def _outweigh(self, growth: float) -> None:
        """Lets the next draft, and the prior, count so much more."""
        self._weight *= growth
        if self._weight > 1e6:
            for counts in (self._right, self._tried, self._depth_right, self._depth_tried):
                counts[:] = [count / self._weight for count in counts]
            self._weight = 1.0

    def forget(self, stated: float) -> None:
        """An offered draft was declined."""
        at = bisect_right(_CLASS_EDGES, stated)
        for counts, i in ((self._right, at), (self._tried, at), (self._depth_right, 0), (self._depth_tried, 0)):
            counts[i] *= _DECLINED_DECAY


@dataclass(slots=True)
class _CostTable:
    """``one_row_s * slope * shape[rows]`` is the time of a step. None: no step was timed yet."""

    one_row_s: float | None
    shape: list[float]  # by rows, from 0; over one row
    slope: float = 1.0  # on all sizes above one alike


class StepCost:
    """Time of a step by the rows that it runs.

    Steps of one row say how fast the machine is at present, and all sizes follow that. Steps of more rows say what rows cost over one: for
    all sizes alike (as when the calibration's one row was disturbed) and for their own and near sizes. A size that is not run keeps its
    place among the others. Attention grows with the context and not as the rest does with rows, so each doubling of the context from 1,024
    tokens on has a table of its own, which starts from its neighbour's.
    """

    __slots__ = ("_now", "_tables")

    def __init__(self, seconds_by_rows: Mapping[int, float] | None = None) -> None:
        measured = seconds_by_rows if seconds_by_rows is not None and len(seconds_by_rows) > 1 else None
        points = dict(measured or PRIOR_SHAPE)
        rising: dict[int, float] = {}
        for rows in sorted(points, reverse=True):  # fewer rows never cost more; disturbances only add time, so the smaller value counts
            rising[rows] = min(points[rows], *rising.values(), inf)
        one = rising[min(rising)]
        shape = _interpolate({rows: seconds / one for rows, seconds in rising.items()})
        self._now = _CostTable(one if measured else None, shape)
        self._tables = {0: self._now}

    def enter(self, context: int) -> None:
        """The steps to come are at so many tokens of context."""
        at = (context // _CONTEXT_STEP).bit_length()
        table = self._tables.get(at)
        if table is None:
            nearest = self._tables[min(self._tables, key=lambda known: abs(known - at))]
            table = self._tables[at] = replace(nearest, shape=nearest.shape.copy())
        self._now = table

    @property
    def one_row_s(self) -> float | None:
        return self._now.one_row_s

    def relative(self, rows: int) -> float:
        """Time of ``rows`` rows over that of one; beyond the measured points as steep as at their end."""
        if rows == 1:
            return 1.0
        shape = self._now.shape
        last = len(shape) - 1
        over_one = shape[rows] if rows <= last else shape[last] + (rows - last) * (shape[last] - shape[last // 2]) / (last - last // 2)
        return max(1.0, self._now.slope * over_one)

    def further(self, rows: int, count: int) -> list[float]:
        """``relative`` of ``rows`` and up to ``count`` more, all at once."""
        if rows + count >= len(self._now.shape):
            return [self.relative(r) for r in range(rows, rows + count + 1)]
        slope = self._now.slope
        found = [over if (over := slope * over_one) > 1.0 else 1.0 for over_one in self._now.shape[rows : rows + count + 1]]
        if rows == 1:
            found[0] = 1.0
        return found

    def observe(self, rows: int, seconds: float) -> None:
        """A step of decode rows took ``seconds``. An outlier (a descheduled thread) moves little."""
        now, expected = self._now, self.relative(rows)
        if now.one_row_s is None:
            for table in self._tables.values():
                table.one_row_s = seconds / expected
            return
        change = min(max(seconds / (now.one_row_s * expected), 0.6), 1.5) - 1.0
        if rows == 1:
            now.one_row_s *= 1.0 + _FOLLOW_SPEED * change
            return
        now.one_row_s *= 1.0 + _FOLLOW_SPEED_BY_MANY * change
        now.slope *= 1.0 + _FOLLOW_ROWS * change
        nearness = _nearness(min(rows, len(now.shape) - 1), len(now.shape))
        now.shape[:] = [over_one * (1.0 + _FOLLOW_ROWS * near * change) for over_one, near in zip(now.shape, nearness, strict=True)]


@cache
def _nearness(rows: int, sizes: int) -> tuple[float, ...]:
    """By rows, how far they are alike ``rows``: 1 for itself, 0 from half an octave on."""
    return tuple(max(0.0, 1.0 - 2.0 * abs(log2(max(other, 1) / rows))) for other in range(sizes))


@dataclass(frozen=True, slots=True)
class Offer:
    """What one decoding sequence could verify in the next pass: the measured chance of each draft token, given those before it."""

    chances: Sequence[float]

    @property
    def available(self) -> int:
        return len(self.chances)


@dataclass(slots=True)
class _SourceTime:
    """Seconds of one more draft token, the first of a draft (with the catching up it takes) and later ones."""

    first_s: float
    later_s: float


class DraftPolicy:
    """Chooses draft lengths and learns from what came of them. Costs are counted in passes of one row."""

    def __init__(self, cost: StepCost | None = None) -> None:
        self.cost = cost or StepCost()
        self._acceptance: dict[str, Acceptance] = {}
        self._times: dict[str, _SourceTime] = {}

    def acceptance(self, source: str, *, trust: float = USUAL_TRUST) -> Acceptance:
        """Of a source, all requests together. ``trust``: of a source that was not heard yet."""
        found = self._acceptance.get(source)
        if found is None:
            found = self._acceptance[source] = Acceptance(trust=trust)
        return found

    def reset(self) -> None:
        """Forgets what earlier requests taught about acceptance."""
        self._acceptance = {}

    # --- what drafting costs ----------------------------------------------------------------------------------------------

    def time_source(self, source: str, seconds: float) -> None:
        """A token of a stepwise source took ``seconds``, tried out."""
        self._times[source] = _SourceTime(seconds, seconds)

    def time_step(self, source: str, seconds: float, *, first: bool, sequences: int) -> None:
        """A step of drafting took ``seconds`` for so many sequences. An outlier moves little."""
        share = seconds / sequences
        times = self._times.setdefault(source, _SourceTime(share, share))
        old = times.first_s if first else times.later_s
        new = old + 0.1 * (min(max(share, 0.5 * old), 2.0 * old) - old)
        if first:
            times.first_s = new
        else:
            times.later_s = new

    def step_cost(self, source: str, *, first: bool) -> float:
        """One more draft token, over a pass of one row; nothing before either was measured."""
        times, one_row_s = self._times.get(source), self.cost.one_row_s
        if times is None or one_row_s is None:
            return 0.0
        return (times.first_s if first else times.later_s) / one_row_s

    # --- before a draft is made -------------------------------------------------------------------------------------------

    def expected(self, acceptance: Acceptance, length: int) -> list[float]:
        """Chances of a draft that does not exist yet."""
        return [acceptance.chance_at(depth) for depth in range(length)]

    def worth(self, chances: Sequence[float], base_rows: int) -> float:
        """Tokens gained by the best length of a draft, less what its rows cost, in a pass that runs ``base_rows`` rows anyway."""
        return self._worth(chances, base_rows, 0.0, 0.0)

    def worth_by_steps(self, source: str, chances: Sequence[float], base_rows: int) -> float:
        """The same where each token must first be drafted."""
        return self._worth(chances, base_rows, self.step_cost(source, first=True), self.step_cost(source, first=False))

    def one_more(self, source: str, acceptance: Acceptance, chances: Sequence[float], base_rows: int) -> bool:
        """Whether a draft with these chances should be a token longer."""
        relative, rows = self.cost.relative, base_rows + len(chances)
        price = relative(rows + 1) - relative(rows) + self.step_cost(source, first=False)
        return prod(chances) * acceptance.chance_at(len(chances)) > price * base_rows / relative(base_rows)

    def _worth(self, chances: Sequence[float], base_rows: int, first: float, later: float) -> float:
        base, *costs = self.cost.further(base_rows, len(chances))
        rate = base_rows / base
        best, reach, tokens, drafting = 0.0, 1.0, 0.0, first
        for chance, cost in zip(chances, costs, strict=True):
            reach *= chance
            tokens += reach
            gain = tokens - (cost - base + drafting) * rate
            if gain > best:
                best = gain
            drafting += later
        return best

    # --- once it is made --------------------------------------------------------------------------------------------------

    def choose(self, offers: Sequence[Offer], *, base_rows: int, max_rows: int) -> list[int]:
        """Draft length for every offer, in a pass that runs ``base_rows`` rows anyway and at most ``max_rows``.

        Adds draft rows one at a time, the likeliest first, and keeps the point where tokens per time is best.
        """
        if len(offers) == 1:
            return [self._choose_one(offers[0].chances, base_rows, max_rows)]
        relative = self.cost.relative
        lengths = [0] * len(offers)
        best, best_lengths = base_rows / relative(base_rows), lengths.copy()
        reach = [offer.chances[0] for offer in offers]
        tokens = float(base_rows)
        for rows in range(base_rows + 1, max_rows + 1):
            i = reach.index(max(reach))
            if reach[i] <= _UNLIKELY:
                break
            tokens += reach[i]
            lengths[i] += 1
            chances = offers[i].chances
            reach[i] *= chances[lengths[i]] if lengths[i] < len(chances) else 0.0
            rate = tokens / relative(rows)
            if rate > best:
                best, best_lengths = rate, lengths.copy()
        return best_lengths

    def _choose_one(self, chances: Sequence[float], base_rows: int, max_rows: int) -> int:
        most = min(len(chances), max_rows - base_rows)
        base, *costs = self.cost.further(base_rows, most)
        best, length = base_rows / base, 0
        reach, tokens = 1.0, float(base_rows)
        for drafted, cost in enumerate(costs, start=1):
            reach *= chances[drafted - 1]
            if reach <= _UNLIKELY:
                break
            tokens += reach
            rate = tokens / cost
            if rate > best:
                best, length = rate, drafted
        return length

    def record(self, source: str, acceptance: Acceptance, stated: Sequence[float], accepted: int) -> None:
        """What became of a draft, for the request and for all."""
        acceptance.record(stated, accepted)
        self.acceptance(source).record(stated, accepted)

    def pass_over(self, source: str, unasked: Sequence[Acceptance], *, by_all: bool) -> None:
        """A source was not worth asking for some requests, or for any."""
        for acceptance in unasked:
            acceptance.fade()
        if by_all:
            self.acceptance(source).fade()

    def decline(self, source: str, acceptance: Acceptance, stated: float) -> None:
        acceptance.forget(stated)
        self.acceptance(source).forget(stated)


def _interpolate(points: Mapping[int, float]) -> list[float]:
    """Values for 0 to the greatest key, linear between the points; below the first as at the first."""
    keys = sorted(points)
    values = [points[keys[0]]] * (keys[0] + 1)
    for a, b in pairwise(keys):
        values += [points[a] + (points[b] - points[a]) * (r - a) / (b - a) for r in range(a + 1, b + 1)]
    return values
