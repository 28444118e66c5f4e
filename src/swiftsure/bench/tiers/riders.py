"""Requests with their own prompts and a moment at which each arrives; all of it follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_OPENINGS = (
    "The {a} by the {b} had been closed since spring, and nobody in the village could say when it would open again.",
    "Every morning the {a} left the harbour before the {b}, carrying letters, flour and news from the other shore.",
    "In the second year of the drought a {a} was found under the {b}, and with it a map that nobody could read.",
    "Dear colleague, about the {a}: the measurements of the {b} differ from those of last week, and here is why.",
    "To repair a {a} you need patience, a sharp knife and some oil; take the {b} off first and keep its screws.",
    "My grandmother kept the {a} in a box beside the {b}, and on Sundays she told us how it had come into the house.",
)
_THINGS = (
    *("bridge", "clock", "engine", "ferry", "forest", "garden", "ladder", "lamp", "library"),
    *("mill", "mountain", "orchard", "piano", "quarry", "river", "station", "tower", "window"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rider:
    """A request: it arrives ``arrives_s`` seconds after the start and takes exactly ``tokens`` new tokens."""

    prompt_ids: tuple[int, ...]
    tokens: int
    arrives_s: float = 0.0


def prompts(count: int, length: int, *, encode: Callable[[str], Sequence[int]], seed: int) -> list[tuple[int, ...]]:
    """So many prompts of exactly ``length`` tokens, each with a beginning of its own, so that none shares another's cached prefix."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        ids: list[int] = []
        text = f"Chapter {draw.randrange(10**6)}.{number}. "
        while len(ids) < length:
            text += draw.choice(_OPENINGS).format(a=draw.choice(_THINGS), b=draw.choice(_THINGS)) + " "
            ids = list(encode(text))
        found.append(tuple(ids[:length]))
    return found


def arrivals(count: int, *, per_s: float, seed: int) -> list[float]:
    """Moments in seconds, the first at 0: arrivals that do not know of each other (Poisson), ``per_s`` a second in the mean."""
    draw = random.Random(seed)
    at, moments = 0.0, []
    for _ in range(count):
        moments.append(at)
        at += draw.expovariate(per_s)
    return moments
