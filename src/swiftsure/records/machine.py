"""What the machine is: the facts that every absolute figure carries."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from swiftsure import machine

FLAGS_THAT_MATTER = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
LIBRARIES = ("swiftsure", "numpy", "tokenizers", "safetensors", "jinja2", "huggingface-hub")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """One cache as the first processor sees it; ``size_bytes`` is shared by ``shared_by`` logical processors."""

    level: int
    kind: str  # "data", "instruction" or "unified"
    size_bytes: int
    shared_by: str  # a processor list, for example "0-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Absent facts are ``None``: the system does not tell them."""

    cpu_model: str
    architecture: str
    cpu_flags: tuple[str, ...]  # of FLAGS_THAT_MATTER
    logical_cpus: int
    physical_cores: int | None
    usable_cpus: int  # by affinity
    cgroup_cpus: float | None  # quota in processors
    memory_bytes: int | None
    cgroup_memory_bytes: int | None
    caches: tuple[Cache, ...]
    hypervisor: bool
    system: str
    transparent_huge_pages: str | None
    load_average: tuple[float, float, float] | None
    python: str
    libraries: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_machine(root: Path = machine.ROOT) -> MachineFacts:
    """Reads the facts from ``/proc`` and ``/sys`` under ``root`` (another folder only in tests)."""
    cpuinfo = machine.read_text(root / "proc/cpuinfo")
    flags = set((_cpuinfo_field(cpuinfo, "flags") or _cpuinfo_field(cpuinfo, "Features") or "").split())
    logical = os.cpu_count() or 1
    return MachineFacts(
        cpu_model=machine.processor_name(root),
        architecture=platform.machine(),
        cpu_flags=tuple(flag for flag in FLAGS_THAT_MATTER if flag in flags),
        logical_cpus=logical,
        physical_cores=_physical_cores(cpuinfo),
        usable_cpus=len(machine.allowed_cpus()),
        cgroup_cpus=machine.cgroup_cpus(root),
        memory_bytes=machine.memory_bytes("MemTotal", root),
        cgroup_memory_bytes=machine.cgroup_memory_limit(root),
        caches=_caches(root / "sys/devices/system/cpu/cpu0/cache"),
        hypervisor="hypervisor" in flags,
        system=f"{platform.system()} {platform.release()}",
        transparent_huge_pages=_chosen(machine.read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        load_average=os.getloadavg() if hasattr(os, "getloadavg") else None,
        python=platform.python_version(),
        libraries=library_versions(LIBRARIES),
    )


def library_versions(names: tuple[str, ...]) -> dict[str, str]:
    """The installed versions; libraries that are not installed are left out."""
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def peak_rss_bytes(process: str = "self") -> int | None:
    """The largest resident size of a process since it began (VmHWM), or ``None`` where ``/proc`` does not tell.

    ``getrusage`` will not do: on Linux its figure survives exec, so a child reports its parent's size.
    """
    return machine.memory_bytes("VmHWM", file=f"proc/{process}/status")


def _cpuinfo_field(cpuinfo: str, name: str) -> str | None:
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _physical_cores(cpuinfo: str) -> int | None:
    cores = set()
    for block in cpuinfo.split("\n\n"):
        package, core = _cpuinfo_field(block, "physical id"), _cpuinfo_field(block, "core id")
        if package is not None and core is not None:
            cores.add((package, core))
    return len(cores) or None


def _caches(folder: Path) -> tuple[Cache, ...]:
    caches = []
    for index in sorted(folder.glob("index*")) if folder.is_dir() else ():
        size, level, kind = machine.read_text(index / "size"), machine.read_text(index / "level"), machine.read_text(index / "type")
        if not (size.endswith("K") and size[:-1].isdigit() and level.isdigit()):
            continue
        shared_by = machine.read_text(index / "shared_cpu_list")
        caches.append(Cache(level=int(level), kind=kind.lower(), size_bytes=int(size[:-1]) * 1024, shared_by=shared_by))
    return tuple(caches)


def _chosen(setting: str) -> str | None:
    """The bracketed word of ``always [madvise] never``."""
    if "[" not in setting:
        return setting or None
    return setting.partition("[")[2].partition("]")[0]
