"""How much context fits: a plan made before anything is allocated, that says what it chose and why."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swiftsure.errors import CapacityError, UsageError
from swiftsure.models.schedule import Schedule

KV_BLOCK_SIZE = 32  # positions; part of the numerics (spans are whole blocks)
KV_SHARE = 0.5  # of what is available beside the weights: the rest is the system's and other programs'
MIN_CONTEXT = 256  # positions; less is refused unless asked for
_WORK_BYTES = 128 << 20  # activations, tokenizer, interpreter

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """Memory that this process can still get, and what sets the limit."""

    bytes: int
    limited_by: str  # "system" or "cgroup"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What will be allocated. ``reason`` is one sentence for the user."""

    context: int  # positions a request can use, prompt and output together
    model_context: int
    kv_blocks: int
    kv_block_size: int
    kv_bytes: int
    kv_bytes_per_token: int
    kv_limit_bytes: int
    weight_bytes: int
    available_bytes: int
    limited_by: str  # "request", "model", "kv_memory", "system" or "cgroup"
    reason: str

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_bytes(value: int | str) -> int:
    """``1500000``, ``"512MB"``, ``"1.5GiB"``. Raises UsageError."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value)
        unit = _UNITS.get(match[2].lower()) if match else None
        if match is None or unit is None:
            raise UsageError(f"a memory size is a number with an optional unit (MB, MiB, GB, GiB, ...), got {value!r}")
        return int(float(match[1]) * unit)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"a memory size must be a number of bytes, at least 0, got {value!r}")
    return value


def kv_bytes_per_token(schedule: Schedule) -> int:
    """int16 keys and values with one float32 scale per head vector."""
    return schedule.layers * schedule.kv_heads * 2 * (2 * schedule.head_dim + 4)


def plan_memory(
    schedule: Schedule,
    *,
    weight_bytes: int,
    available: Available,
    context: int | None = None,
    kv_memory: int | str | None = None,
    block_size: int = KV_BLOCK_SIZE,
) -> MemoryPlan:
    """Fits the context to memory.

    An explicit context or memory limit is kept to or refused with the numbers, never cut; without one the context is the model's, or as
    much of it as fits. Raises UsageError (rules) and CapacityError (memory).
    """
    per_token = kv_bytes_per_token(schedule)
    weights_and_work = weight_bytes + _WORK_BYTES
    if kv_memory is not None:
        limit, source = parse_bytes(kv_memory), "kv_memory"
    else:
        limit, source = max(0, int((available.bytes - weights_and_work) * KV_SHARE)), available.limited_by
    fitting = limit // (per_token * block_size) * block_size
    if context is not None:
        chosen, limited_by = _asked_context(context, schedule.context_length), "request"
        needed = -(-chosen // block_size) * block_size
    else:
        chosen = min(schedule.context_length, fitting)
        limited_by = "model" if chosen == schedule.context_length else source
        needed = max(-(-chosen // block_size), 1) * block_size
        chosen = max(chosen, min(MIN_CONTEXT, schedule.context_length))
    needed = max(needed, -(-chosen // block_size) * block_size)
    if needed > fitting:
        raise CapacityError(
            f"a context of {chosen} tokens needs {_mb(needed * per_token)} of key-value memory; the limit is {_mb(limit)} "
            + (f"(kv_memory), room for {fitting} tokens" if source == "kv_memory" else
               f"({KV_SHARE:.0%} of the {_mb(available.bytes)} available by {source}, less {_mb(weights_and_work)} for weights and work), "
               f"room for {fitting} tokens")
        )  # fmt: skip
    kv_bytes = needed * per_token
    if kv_memory is not None and kv_bytes + weights_and_work > available.bytes:
        raise CapacityError(
            f"weights and work ({_mb(weights_and_work)}) and a context of {chosen} tokens ({_mb(kv_bytes)}) need more than the "
            f"{_mb(available.bytes)} available by {available.limited_by}"
        )
    return MemoryPlan(
        context=chosen,
        model_context=schedule.context_length,
        kv_blocks=needed // block_size,
        kv_block_size=block_size,
        kv_bytes=kv_bytes,
        kv_bytes_per_token=per_token,
        kv_limit_bytes=limit,
        weight_bytes=weight_bytes,
        available_bytes=available.bytes,
        limited_by=limited_by,
        reason=_reason(chosen, schedule.context_length, limited_by, kv_bytes, limit),
    )


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> Available:
    """The smaller of what the system has available and what the cgroup leaves."""
    system = _meminfo_available(meminfo)
    group = _cgroup_available(cgroup)
    if group is not None and (system is None or group < system):
        return Available(bytes=group, limited_by="cgroup")
    return Available(bytes=system if system is not None else 4 << 30, limited_by="system")


def _asked_context(context: int, model_context: int) -> int:
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise UsageError(f"context must be an integer of at least 1, got {context!r}")
    if context > model_context:
        raise UsageError(f"context must be at most the model's {model_context}, got {context}")
    return context


def _meminfo_available(path: Path) -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _cgroup_available(root: Path) -> int | None:
    """Version 2, then version 1; page cache that can be dropped counts as available."""
    for folder, limit_name, used_name, stat_key in (
        (root, "memory.max", "memory.current", "inactive_file"),
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit, used = _number(folder / limit_name), _number(folder / used_name)
        if limit is None or used is None or limit >= 1 << 60:
            continue
        return max(0, limit - used + (_stat(folder / "memory.stat", stat_key) or 0))
    return None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _stat(path: Path, key: str) -> int | None:
    try:
        match = re.search(rf"^{key} (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(match[1]) if match else None


def _reason(context: int, model_context: int, limited_by: str, kv_bytes: int, limit: int) -> str:
    size = f"key-value cache {_mb(kv_bytes)}"
    if limited_by == "request":
        return f"context {context} as asked; {size}"
    if limited_by == "model":
        return f"context {context}, all of the model's; {size}"
    return f"context {context} of the model's {model_context}, as much as fits the {limited_by} limit of {_mb(limit)}; {size}"


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
