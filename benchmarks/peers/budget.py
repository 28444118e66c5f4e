"""Who may take another turn: what failed, what has spent its time, what would take too long. Pure but for the clock it is given."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable


class Budget:
    """Seconds for the run, for each contender and for each cell of a table.

    A turn that its contender's last one says would take longer than a cell may is not begun, and a cell is repeated only while it stays
    within a third of its seconds. ``why_not`` gives the reason in words that stand in the cell.
    """

    def __init__(self, *, run_s: float, peer_s: float, cell_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._peer_s, self._cell_s, self._run_s = peer_s, cell_s, run_s
        self._clock = clock
        self._end = clock() + run_s
        self._spent: dict[str, float] = defaultdict(float)
        self._cells: dict[tuple[str, str], float] = defaultdict(float)
        self._failed: dict[str, str] = {}

    def fail(self, name: str, reason: str) -> None:
        """From now on the contender takes no turn."""
        self._failed.setdefault(name, reason)

    def failed(self, name: str) -> str | None:
        return self._failed.get(name)

    def spend(self, name: str, cell: str, seconds: float) -> None:
        self._spent[name] += seconds
        self._cells[name, cell] += seconds

    def why_not(self, name: str, expected_s: float = 0.0) -> str | None:
        """Why the contender may not begin a turn of about ``expected_s``; None: it may."""
        if name in self._failed:
            return self._failed[name]
        if expected_s > self._cell_s:
            return f"too slow: a turn of about {expected_s:.0f} s, {self._cell_s:g} s allowed"
        if self._spent[name] + expected_s > self._peer_s:
            return f"too slow: {self._spent[name]:.0f} of its {self._peer_s:g} s were spent"
        if self._clock() + expected_s > self._end:
            return f"the run's {self._run_s:g} s were over"
        return None

    def repeat(self, name: str, cell: str, last_s: float) -> bool:
        """Whether the cell may be measured once more."""
        return self.why_not(name, last_s) is None and self._cells[name, cell] + last_s <= self._cell_s / 3
