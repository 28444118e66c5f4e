"""The one definition of a percentile in the bench: the second kind of Hyndman and Fan (1996, The American Statistician 50, 361-365).

The smallest value that the share does not fall short of; where it is met exactly, the mean of that value and the next. So the 50th is the
median, none lies between neighbours that were not measured, and infinity ("not reached") is a value like another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

_EXACT = 1e-9  # of a count: 0.95 x 20 is 19


class Ordered(Protocol):
    """A list, an array or the like, in rising order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def percentile(values: Iterable[float], percent: float) -> float:
    """``percent`` in 0..100. Raises ValueError without values."""
    return percentile_of_sorted(sorted(values), percent)


def percentile_of_sorted(ordered: Ordered, percent: float) -> float:
    """Of values in rising order. Raises ValueError without values."""
    count = len(ordered)
    if not count:
        raise ValueError("a percentile needs at least 1 value, got 0")
    aim = count * percent / 100
    reached = max(1, math.ceil(aim - _EXACT))  # so many values are needed to reach the share
    value = float(ordered[reached - 1])
    if reached < count and abs(aim - reached) <= _EXACT:
        value = (value + float(ordered[reached])) / 2
    return value
