"""How many threads a program should use here, and why."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swiftsure import machine
from swiftsure.errors import UsageError

AUTO = "auto"
MAX_THREADS = 256
LOOK_S = 0.05  # the clock of /proc/stat ticks every 10 ms
_WHOLE = 0.9  # of a processor: less than this is not a neighbour that stays
# What a core is worth while threads of a pass wait for one that shares its core: on two cores beside one busy process two threads decoded
# 0.85 times as fast as one, though they had 1.5 cores; beside two 0.96 times, beside four 1.45 times.
_SHARED_WORTH = 0.57


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChoice:
    """A number of threads, what was seen, and which limit decided."""

    threads: int
    decided_by: str  # "request", "cores", "affinity", "quota", "neighbours" or "limit"
    reason: str  # one line
    logical_cpus: int
    allowed_cpus: int
    cores: int  # behind the allowed ones
    quota_cpus: float | None
    others_busy_cpus: float | None  # of the allowed ones, kept busy by other processes while a model was being opened
    load_average: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class NeighbourLook:
    """How busy other processes keep the processors that this one may use, between its making and :meth:`busy_cpus`."""

    def __init__(self, cpus: frozenset[int] | None = None, root: Path = machine.ROOT) -> None:
        self._cpus = machine.allowed_cpus() if cpus is None else cpus
        self._root = root
        self._since = self._now()

    def busy_cpus(self) -> float | None:
        """Waits until the look is ``LOOK_S`` long. None where the system does not tell."""
        time.sleep(max(0.0, self._since[0] + LOOK_S - time.perf_counter()))
        (began, own_before, busy_before), (ended, own, busy) = self._since, self._now()
        if busy is None or busy_before is None:
            return None
        return max(0.0, busy - busy_before - (own - own_before)) / (ended - began)

    def _now(self) -> tuple[float, float, float | None]:
        return time.perf_counter(), time.process_time(), machine.busy_seconds(self._cpus, self._root)


def check_threads(threads: int | str | None) -> int | None:
    """A number of threads as asked for; None for ``"auto"`` and None. Raises UsageError."""
    if threads is None or threads == AUTO:
        return None
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"threads must be an integer from 1 to {MAX_THREADS} or 'auto', got {threads!r}")
    return threads


def choose_threads(
    threads: int | str | None = AUTO, *, look: NeighbourLook | None = None, cpus: frozenset[int] | None = None, root: Path = machine.ROOT
) -> ThreadChoice:
    """What was asked for, or with ``"auto"``: the physical cores that this process may use, no more than the whole CPUs of its cgroup
    quota, less those that others keep busy, at least 1.

    Hyperthreads share the units that matmuls keep busy; threads beyond a container's quota are throttled in the middle of a pass. Few cores
    that other processes keep busy are left to them, since a pass waits for its slowest thread; where most are busy a thread a core has the
    larger share. Without ``look`` neighbours are not asked for. Raises UsageError.
    """
    asked = check_threads(threads)
    allowed = machine.allowed_cpus() if cpus is None else cpus
    logical = len(_cpu_folders(root)) or len(allowed)
    cores, quota = machine.physical_cores(allowed, root), machine.cgroup_cpus(root)
    load = machine.load_average(root)
    idle = load is not None and load < _WHOLE  # no neighbour that stays: nothing to wait for
    busy = look.busy_cpus() if look is not None and asked is None and not idle else None
    chosen, decided_by = max(1, min(cores, MAX_THREADS)), "affinity" if len(allowed) < logical else "cores"
    if cores > MAX_THREADS:
        decided_by = "limit"
    if quota is not None and int(quota) < chosen:
        chosen, decided_by = max(1, int(quota)), "quota"
    # A neighbour that stays: it fills the look, and the last minute knows of it too. A short one must not decide for a long run.
    steady = min(busy, load) if busy is not None and load is not None else 0.0
    left = cores - int(steady + 1 - _WHOLE)
    if 1 <= left < chosen and cores - steady >= _SHARED_WORTH * (cores - steady / 2):
        chosen, decided_by = left, "neighbours"
    if asked is not None:
        chosen, decided_by = asked, "request"
    return ThreadChoice(
        threads=chosen,
        decided_by=decided_by,
        reason=_reason(chosen, decided_by, len(allowed), logical, cores, quota, busy, load),
        logical_cpus=logical,
        allowed_cpus=len(allowed),
        cores=cores,
        quota_cpus=quota,
        others_busy_cpus=None if busy is None else round(busy, 2),
        load_average=load,
    )


def _reason(
    chosen: int, decided_by: str, allowed: int, logical: int, cores: int, quota: float | None, busy: float | None, load: float | None
) -> str:
    decided = {
        "request": "as asked",
        "cores": "a thread a core",
        "affinity": "a thread a core that this process may use",
        "quota": "the whole CPUs of the cgroup's quota",
        "neighbours": "cores that others keep busy are left to them",
        "limit": f"at most {MAX_THREADS}",
    }[decided_by]
    seen = [f"{cores} cores behind {allowed} of {logical} CPUs", "no quota" if quota is None else f"quota {quota:g} CPUs"]
    if busy is not None:
        seen.append(f"others keep {busy:.1f} CPUs busy")
    elif load is not None:
        seen.append(f"load average {load:.1f}")
    return f"{chosen}, {decided} ({', '.join(seen)})"


def _cpu_folders(root: Path) -> list[Path]:
    return [path for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*") if path.name[3:].isdecimal()]
