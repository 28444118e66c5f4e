"""How much of the machine others used while the contenders took their turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClock:
    """Processor seconds since some start: of the whole machine, of all work on it, and of the contenders' processes."""

    all_s: float
    busy_s: float
    own_s: float


def read_clock(pids: Sequence[int], root: Path = Path("/proc")) -> CpuClock:
    ticks = os.sysconf("SC_CLK_TCK")
    # user nice system idle iowait irq softirq steal; guest times are contained in user and nice.
    fields = [int(value) for value in (root / "stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return CpuClock(all_s=sum(fields) / ticks, busy_s=(sum(fields) - idle) / ticks, own_s=sum(_own(root, pid) for pid in pids) / ticks)


def _own(root: Path, pid: int) -> int:
    # The command name in parentheses may hold blanks: fields are counted from behind it.
    fields = (root / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])  # utime, stime


def others_share(before: CpuClock, after: CpuClock) -> float:
    """Between 0 and 1: processor time of everyone else over all processor time there was. Ticks of 10 ms blur short spans."""
    elapsed = after.all_s - before.all_s
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(1.0, max(0.0, others / elapsed)) if elapsed > 0 else 0.0


def priority(root: Path = Path("/proc")) -> dict[str, int | str | None]:
    """What this process, and so the workers, have over others: niceness, and the scheduler's group with the niceness of that."""
    try:
        group = (root / "self" / "autogroup").read_text().strip() or None
    except OSError:
        group = None
    return {"niceness": os.nice(0), "autogroup": group}


def wait_until_quiet(clock: Callable[[], CpuClock], *, share: float, at_most_s: float, look_s: float = 2.0) -> bool:
    """Returns True once others used less than ``share`` of the machine over ``look_s``, False when ``at_most_s`` are over."""
    end = time.monotonic() + at_most_s
    while time.monotonic() < end:
        before = clock()
        time.sleep(look_s)
        if others_share(before, clock()) < share:
            return True
    return False
