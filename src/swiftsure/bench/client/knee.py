"""The load beyond which an endpoint serves no more: raised step by step until it is over-saturated, then looked at more closely."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from swiftsure.errors import UsageError

Stopped = Literal["over_saturated", "errors", "client", "last"]

GAIN = 0.05
"""More is served only where it is more by this share: smaller differences are noise."""
_DROP = 0.1  # a loss by this share ends the search at once
_MOST_FAILED = 0.1
_BEHIND = 0.9  # of an open loop: an endpoint that answers less than this share of what arrives piles requests up


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One load and what came of it.

    ``load``: users, or requests a second. ``served``: useful work a second, in any unit: answers within their limits (goodput) where
    there are limits, else tokens. ``failed``: share of requests. ``answered``: of an open loop, answers a second over requests a second.
    ``saturated``: why the client limited the step, if it did; such a step is no measurement.
    """

    load: float
    served: float
    failed: float = 0.0
    answered: float | None = None
    saturated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """``knee``: the smallest load that served as much as the best one did, within 5 %; None where no step is a measurement.

    ``found``: the knee lies between tried loads; otherwise more load might serve more. ``words`` says why the search stopped.
    """

    steps: tuple[Step, ...]
    knee: float | None
    stopped: Stopped
    words: str

    @property
    def found(self) -> bool:
        return self.stopped in ("over_saturated", "errors")


def find_knee(
    try_load: Callable[[float], Step], *, first: float, last: float, factor: float = 2.0, whole: bool = False, closer: int = 2
) -> Sweep:
    """Multiplies the load by ``factor`` from ``first`` on, at most to ``last``, and stops as soon as the endpoint is over-saturated.

    That is: what is served fell by 10 %, or did not rise by 5 % twice in a row, or 10 % of the requests failed, or arrivals piled up.
    Then ``closer`` further loads are tried, each in the middle (geometrically) between the knee so far and a neighbour. ``whole``:
    loads are whole numbers, as users are. Raises UsageError for bounds that leave nothing to try.
    """
    if not 0 < first <= last < math.inf or not factor > 1 or (whole and first < 1):
        raise UsageError(f"a sweep goes up from first to last by a factor above 1, got {first:g}, {last:g} and {factor:g}")
    steps: dict[float, Step] = {}
    stopped, words = _climb(try_load, steps, first=first, last=last, factor=factor, whole=whole)
    if stopped in ("over_saturated", "errors"):
        for _ in range(closer):
            load = _between(steps, whole)
            if load is None:
                break
            steps[load] = try_load(load)
    return Sweep(steps=tuple(steps[load] for load in sorted(steps)), knee=_knee(steps), stopped=stopped, words=words)


def _climb(
    try_load: Callable[[float], Step], steps: dict[float, Step], *, first: float, last: float, factor: float, whole: bool
) -> tuple[Stopped, str]:
    load, best, idle = _fitting(first, whole), 0.0, 0
    while True:
        step = steps[load] = try_load(load)
        if step.saturated is not None:
            return "client", f"at {load:g} the client was the limit: {step.saturated}"
        if step.failed >= _MOST_FAILED:
            return "errors", f"at {load:g} {step.failed:.0%} of the requests failed"
        if step.answered is not None and step.answered < _BEHIND:
            return "over_saturated", f"at {load:g} requests pile up: {step.answered:.0%} of what arrives is answered in the same time"
        if best and step.served < (1 - _DROP) * best:
            return "over_saturated", f"at {load:g} less is served: {step.served:.4g} a second after {best:.4g}"
        idle = idle + 1 if step.served < (1 + GAIN) * best else 0
        if idle >= 2:
            return "over_saturated", f"up to {load:g} no more is served: {step.served:.4g} a second after {best:.4g}"
        best = max(best, step.served)
        if load >= last:
            return "last", f"{load:g} is the largest load asked for, and the endpoint was not yet over-saturated"
        load = min(max(_fitting(load * factor, whole), load + 1 if whole else 0), last)


def _sound(steps: dict[float, Step]) -> dict[float, Step]:
    """Steps that are measurements of a load that the endpoint can bear for long."""

    def bears(step: Step) -> bool:
        return step.saturated is None and step.failed < _MOST_FAILED and (step.answered is None or step.answered >= _BEHIND)

    return {load: step for load, step in steps.items() if bears(step)}


def _knee(steps: dict[float, Step]) -> float | None:
    sound = _sound(steps)
    best = max((step.served for step in sound.values()), default=0.0)
    return min((load for load, step in sound.items() if step.served >= (1 - GAIN) * best), default=None) if best else None


def _between(steps: dict[float, Step], whole: bool) -> float | None:
    """The load to try next: above the knee where the load above serves less, since the best may lie between; else below it."""
    knee = _knee(steps)
    if knee is None:
        return None
    loads = sorted(steps)
    at = loads.index(knee)
    above = loads[at + 1] if at + 1 < len(loads) else None
    peak = above is not None and (above not in _sound(steps) or steps[above].served < (1 - GAIN) * steps[knee].served)
    side = loads[at : at + 2] if peak else loads[max(0, at - 1) : at + 1]
    if len(side) < 2:
        return None
    middle = _fitting(math.sqrt(side[0] * side[1]), whole)
    return middle if side[0] < middle < side[1] and side[1] / side[0] > 1 + GAIN else None


def _fitting(load: float, whole: bool) -> float:
    return float(round(load)) if whole else load
