"""Whether this process stood still: for a client that has no event loop whose lag would tell."""

from __future__ import annotations

import threading
from time import perf_counter
from types import TracebackType
from typing import Self

_PERIOD_S = 0.05
_NOTED_S = 0.1  # a thread that comes less late than this shared processors with the passes that it watches


class StopMeter:
    """A thread beside the one that stamps. It wakes every 50 ms and notes when it came late by more than 0.1 s: the machine was stopped, or
    had no processor for this process."""

    def __init__(self) -> None:
        self._stops: list[tuple[float, float]] = []  # (moment of waking, seconds late)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stop-meter", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def worst_since(self, moment: float) -> float:
        """The longest stop that ended after ``moment`` of ``perf_counter``, seconds; 0 where there was none."""
        return max((late_s for at, late_s in tuple(self._stops) if at >= moment), default=0.0)

    def _run(self) -> None:
        due = perf_counter() + _PERIOD_S
        while not self._ended.wait(_PERIOD_S):
            now = perf_counter()
            if now - due > _NOTED_S:
                self._stops.append((now, now - due))
            due = now + _PERIOD_S
