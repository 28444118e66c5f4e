"""How many threads a program should use here: physical cores that this process may really have."""

from __future__ import annotations

import os
from pathlib import Path


def default_threads() -> int:
    """Physical cores in this process's affinity mask, no more than the whole CPUs of its cgroup quota, at least 1.

    Hyperthreads share the units that matmuls keep busy, and threads beyond a container's quota are throttled in the middle of a pass.
    """
    allowed = _allowed_cpus()
    cores = physical_cores(allowed)
    quota = cgroup_cpus()
    return max(1, cores if quota is None else min(cores, int(quota)))


def physical_cores(cpus: set[int], root: Path = Path("/sys/devices/system/cpu")) -> int:
    """Distinct cores behind the logical ``cpus``; a CPU whose topology is not stated counts as a core of its own."""
    return len({_core_of(cpu, root) for cpu in cpus})


def cgroup_cpus(proc: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> float | None:
    """CPUs that the tightest quota of this process's cgroups allows (version 2, then version 1); None without one."""
    limits = []
    for line in _read(proc).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            limits += [_quota_v2(group / "cpu.max") for group in cgroup_folders(mount, path)]
        elif "cpu" in controllers.split(","):
            for base in (mount / "cpu", mount / controllers):
                limits += [_quota_v1(group) for group in cgroup_folders(base, path)]
    stated = [limit for limit in limits if limit is not None]
    return min(stated) if stated else None


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _core_of(cpu: int, root: Path) -> tuple[str, ...]:
    topology = root / f"cpu{cpu}" / "topology"
    package, core = _read(topology / "physical_package_id").strip(), _read(topology / "core_id").strip()
    return (package, core) if core else ("cpu", str(cpu))


def cgroup_folders(mount: Path, path: str) -> list[Path]:
    """The cgroup and all groups above it. Inside a container the path may not exist below the mount; then the mount is the group."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota_v2(file: Path) -> float | None:
    fields = _read(file).split()
    if len(fields) != 2 or fields[0] == "max":
        return None
    return int(fields[0]) / int(fields[1])


def _quota_v1(group: Path) -> float | None:
    quota, period = _read(group / "cpu.cfs_quota_us").strip(), _read(group / "cpu.cfs_period_us").strip()
    if not quota or not period or int(quota) <= 0:
        return None
    return int(quota) / int(period)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""  # not there: this system states no such limit
