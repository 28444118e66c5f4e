"""How late an event loop is: what decides whether its stamps may be believed."""

from __future__ import annotations

import asyncio
from array import array
from time import perf_counter

from swiftsure.bench.percentiles import percentile

PERIOD_S = 0.005


class LagMeter:
    """Wakes every few milliseconds and notes by how much it came late. A read that waited for the loop was stamped no later than that.

    The kernel's timer counts whole milliseconds, so up to one of a lag may be its rounding; it is not taken off.
    """

    def __init__(self) -> None:
        self.lags_s = array("d")
        self._start = perf_counter()
        self._worst: list[float] = []  # of each second since the start
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._start = perf_counter()
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def worst_since(self, moment: float) -> float:
        """The largest lag from the second on that holds ``moment``, seconds."""
        return max(self._worst[max(0, int(moment - self._start)) :], default=0.0)

    def percentile(self, percent: float) -> float:
        """Of all lags; 0 before the first was taken."""
        return percentile(self.lags_s, percent) if self.lags_s else 0.0

    def _arm(self) -> None:
        self._due = perf_counter() + PERIOD_S
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._note)

    def _note(self) -> None:
        now = perf_counter()
        lag = max(0.0, now - self._due)
        self.lags_s.append(lag)
        second = int(now - self._start)
        while len(self._worst) <= second:
            self._worst.append(0.0)
        first = max(0, min(int(self._due - self._start), second))
        for index in range(first, second + 1):  # a stop of seconds belongs to each of them
            self._worst[index] = max(self._worst[index], lag)
        self._arm()
