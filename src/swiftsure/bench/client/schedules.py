"""When requests leave: arrival times of open loops."""

from __future__ import annotations

import random

from swiftsure.errors import UsageError


def constant(count: int, *, rate_per_s: float) -> list[float]:
    """Leaving times in seconds from the load's start, evenly spaced. Raises UsageError unless count and rate are above 0."""
    _check(count, rate_per_s)
    return [index / rate_per_s for index in range(count)]


def poisson(count: int, *, rate_per_s: float, seed: int) -> list[float]:
    """Leaving times with independent exponential gaps of mean 1 / rate, the same for the same seed. Raises UsageError as ``constant``."""
    _check(count, rate_per_s)
    draw = random.Random(seed)
    times, now_s = [], 0.0
    for _ in range(count):
        now_s += draw.expovariate(rate_per_s)
        times.append(now_s)
    return times


def _check(count: int, rate_per_s: float) -> None:
    if count < 1:
        raise UsageError(f"a schedule needs at least 1 request, got {count}")
    if not 0 < rate_per_s < float("inf"):
        raise UsageError(f"a rate must be above 0 requests a second, got {rate_per_s}")
