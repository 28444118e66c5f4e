"""How many of something there are at once, on average over time."""

from __future__ import annotations

from time import perf_counter


class Occupancy:
    """``now`` of them; ``area`` is their count times seconds so far."""

    def __init__(self) -> None:
        self.now = 0
        self._area = 0.0
        self._changed = perf_counter()

    def change(self, by: int) -> None:
        self._area = self.area
        self._changed = perf_counter()
        self.now += by

    @property
    def area(self) -> float:
        return self._area + self.now * (perf_counter() - self._changed)
