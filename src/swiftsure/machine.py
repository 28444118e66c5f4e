"""What this process may use of the machine: processors, quotas, memory, and how busy others keep them. Linux's own files, read once a call.

``root`` is another folder only in tests. What a system does not state is ``None`` or absent, never an error.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Collection, Iterable
from pathlib import Path

ROOT = Path("/")
_NO_LIMIT_BYTES = 1 << 60  # version 1 writes a number beyond this for "no limit"


def read_text(file: Path) -> str:
    """Empty where the file is not there: this system states no such fact."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def allowed_cpus() -> frozenset[int]:
    """Logical processors of this process's affinity mask."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def physical_cores(cpus: Iterable[int], root: Path = ROOT) -> int:
    """Distinct cores behind the logical ``cpus``; a CPU whose topology is not stated counts as a core of its own."""
    return len({_core_of(cpu, root / "sys/devices/system/cpu") for cpu in cpus})


def processor_name(root: Path = ROOT) -> str:
    """The model of the first processor, as the system calls it."""
    try:
        with (root / "proc/cpuinfo").open("rb") as file:
            head = file.read(4096).decode(errors="replace")  # the file has as many parts as there are processors
    except OSError:
        head = ""
    match = re.search(r"^model name\s*: (.+)$", head, re.MULTILINE)
    return match[1].strip() if match else platform.processor() or platform.machine()


def cgroup_cpus(root: Path = ROOT) -> float | None:
    """CPUs that the tightest quota of this process's cgroups allows (versions 1 and 2); None without one."""
    limits = [_quota_v2(group / "cpu.max") if version == 2 else _quota_v1(group) for version, group in _cgroups("cpu", root)]
    return min((limit for limit in limits if limit is not None), default=None)


def cgroup_memory_limit(root: Path = ROOT) -> int | None:
    """Bytes that the tightest of this process's cgroups allows; None without a limit."""
    limits = [_memory_limit(version, group) for version, group in _cgroups("memory", root)]
    return min((limit for limit in limits if limit is not None), default=None)


def cgroup_memory_left(root: Path = ROOT) -> int | None:
    """Bytes that the tightest cgroup still leaves; page cache that can be dropped counts as left. None without a limit."""
    left = []
    for version, group in _cgroups("memory", root):
        limit = _memory_limit(version, group)
        used = _number(group / ("memory.current" if version == 2 else "memory.usage_in_bytes"))
        if limit is not None and used is not None:
            droppable = "inactive_file" if version == 2 else "total_inactive_file"
            found = re.search(rf"^{droppable} (\d+)$", read_text(group / "memory.stat"), re.MULTILINE)
            left.append(max(0, limit - used + (int(found[1]) if found else 0)))
    return min(left, default=None)


def data_limit_left(root: Path = ROOT) -> int | None:
    """Bytes of private writable memory that ``ulimit -d`` (RLIMIT_DATA) still leaves this process; None without a limit."""
    limit = re.search(r"^Max data size\s+(\d+)\s", read_text(root / "proc/self/limits"), re.MULTILINE)
    used = memory_bytes("VmData", root, "proc/self/status")
    return max(0, int(limit[1]) - used) if limit and used is not None else None


def memory_bytes(field: str, root: Path = ROOT, file: str = "proc/meminfo") -> int | None:
    """A field of ``/proc/meminfo`` (``MemTotal``, ``MemAvailable``) or of a file of that form."""
    match = re.search(rf"^{field}:\s+(\d+) kB", read_text(root / file), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def busy_seconds(cpus: Collection[int], root: Path = ROOT) -> float | None:
    """Seconds since the start of the system that ``cpus`` together ran anything, niced work and interrupts too."""
    ticks = 0
    found = re.findall(r"^cpu(\d+) (.+)$", read_text(root / "proc/stat"), re.MULTILINE)
    for cpu, text in found:
        if int(cpu) in cpus:
            user, nice, system, _idle, _iowait, irq, softirq = map(int, text.split()[:7])
            ticks += user + nice + system + irq + softirq
    return ticks / os.sysconf("SC_CLK_TCK") if found else None


def load_average(root: Path = ROOT) -> float | None:
    """Threads that ran or wanted to, averaged over about a minute."""
    first = read_text(root / "proc/loadavg").split(" ")[0]
    return float(first) if re.fullmatch(r"\d+\.\d+", first) else None


def _core_of(cpu: int, folder: Path) -> tuple[str, ...]:
    topology = folder / f"cpu{cpu}" / "topology"
    package, core = read_text(topology / "physical_package_id"), read_text(topology / "core_id")
    return (package, core) if core else ("cpu", str(cpu))


def _cgroups(controller: str, root: Path) -> list[tuple[int, Path]]:
    """Version and folder of every cgroup that governs this process, up to the top.

    Inside a container the stated path may not exist below the mount; then the mount is the group.
    """
    mount = root / "sys/fs/cgroup"
    groups = []
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        if controllers == "":
            bases = [(2, mount)]
        elif controller in controllers.split(","):
            bases = [(1, mount / name) for name in dict.fromkeys((controller, controllers))]
        else:
            continue
        groups += [(version, base.joinpath(*parts[:depth])) for version, base in bases for depth in range(len(parts), -1, -1)]
    return groups


def _quota_v2(file: Path) -> float | None:
    fields = read_text(file).split()
    return _ratio(fields[0], fields[1]) if len(fields) == 2 else None


def _quota_v1(group: Path) -> float | None:
    return _ratio(read_text(group / "cpu.cfs_quota_us"), read_text(group / "cpu.cfs_period_us"))


def _ratio(quota: str, period: str) -> float | None:
    """None for "max", -1 and what is no number."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(quota) and int(period) else None


def _memory_limit(version: int, group: Path) -> int | None:
    limit = _number(group / ("memory.max" if version == 2 else "memory.limit_in_bytes"))
    return None if limit is None or limit >= _NO_LIMIT_BYTES else limit


def _number(file: Path) -> int | None:
    text = read_text(file)
    return int(text) if text.isdecimal() else None  # not there, or "max"
