"""How much context fits: a plan made before anything is allocated, that says what it chose and why."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swiftsure import machine
from swiftsure.errors import CapacityError, UsageError
from swiftsure.kernels import KV_BLOCK_SIZE
from swiftsure.models.kv_size import KV_BITS, kv_bytes_per_position
from swiftsure.models.schedule import Schedule
from swiftsure.models.tensors import TensorSource

KV_SHARE = 0.5  # of what is available beside the weights: the rest is the system's and other programs'
MIN_CONTEXT = 256  # positions; less is refused unless asked for
WORK_BYTES = 128 << 20  # activations, tokenizer, interpreter
_UNSTATED_BYTES = 4 << 30  # where the system does not say

_UNITS = {"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """Memory that this process can still get, and what sets the limit."""

    bytes: int
    limited_by: str  # "system", "cgroup", or "data size" for RLIMIT_DATA


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
    draft_weight_bytes: int = 0
    draft_kv_bytes: int = 0  # of a draft model's own cache, as many positions

    @property
    def fitted(self) -> bool:
        """Nobody asked for less than the model's context, and less is what there is room for."""
        return self.context < self.model_context and self.limited_by != "request"

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.draft_weight_bytes + self.draft_kv_bytes

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


def plan_memory(
    schedule: Schedule,
    *,
    weight_bytes: int,
    available: Available,
    context: int | None = None,
    kv_memory: int | str | None = None,
    kv_contexts: int = 1,
    kv_bits: int = KV_BITS,
    block_size: int = KV_BLOCK_SIZE,
    draft_weight_bytes: int = 0,
    draft_kv_bytes_per_token: int = 0,
) -> MemoryPlan:
    """Fits the context to memory.

    An explicit context or memory limit is kept to or refused with the numbers, never cut; without one the context is the model's, or as
    much of it as fits. ``kv_contexts``: how many requests of the whole context the cache is to hold at once; as many of their blocks as
    fit the limit, at least one context's. A draft model's cache holds as many positions as the model's, within the same limit. Raises
    UsageError (rules) and CapacityError (memory).
    """
    own_per_token = kv_bytes_per_position(schedule, kv_bits)
    per_token = own_per_token + draft_kv_bytes_per_token
    fixed = weight_bytes + draft_weight_bytes + WORK_BYTES
    if isinstance(kv_contexts, bool) or not isinstance(kv_contexts, int) or kv_contexts < 1:
        raise UsageError(f"kv_contexts must be an integer of at least 1, got {kv_contexts!r}")
    if kv_memory is not None:
        limit, source = parse_bytes(kv_memory), "kv_memory"
    else:
        limit, source = max(0, int((available.bytes - fixed) * KV_SHARE)), available.limited_by
    fitting = limit // (per_token * block_size) * block_size  # positions
    model_context = schedule.context_length
    if context is not None:
        chosen, limited_by = _asked_context(context, model_context), "request"
    else:
        chosen = min(model_context, max(fitting, MIN_CONTEXT))
        limited_by = "model" if chosen == model_context else source
    blocks = -(-chosen // block_size)
    kv_bytes = blocks * block_size * per_token
    if blocks * block_size > fitting or kv_bytes + fixed > available.bytes:
        raise CapacityError(
            f"a context of {chosen} tokens needs {_mb(kv_bytes)} of key-value memory, beside {_mb(fixed)} for weights and work; "
            f"{_mb(available.bytes)} are available by {available.limited_by}, the key-value limit is {_mb(limit)} "
            f"({'kv_memory' if kv_memory is not None else f'{KV_SHARE:.0%} of the rest'}): room for {fitting} tokens"
        )
    room = min(limit, available.bytes - fixed) // (per_token * block_size)
    blocks = max(blocks, min(kv_contexts * blocks, room))
    kv_bytes = blocks * block_size * per_token
    return MemoryPlan(
        context=chosen,
        model_context=model_context,
        kv_blocks=blocks,
        kv_block_size=block_size,
        kv_bytes=blocks * block_size * own_per_token,
        kv_bytes_per_token=own_per_token,
        kv_limit_bytes=limit,
        weight_bytes=weight_bytes,
        available_bytes=available.bytes,
        limited_by=limited_by,
        reason=_reason(chosen, model_context, limited_by, kv_bytes, limit, positions=blocks * block_size),
        draft_weight_bytes=draft_weight_bytes,
        draft_kv_bytes=blocks * block_size * draft_kv_bytes_per_token,
    )


def memory_by_mode(
    schedule: Schedule, tensors: TensorSource, *, available: Available, context: int | None = None
) -> dict[str, MemoryPlan | str]:
    """The plan of each mode that can be had, or why there is no room. ``context``: as for :func:`plan_memory`, whose rules it keeps."""
    from swiftsure.engine.modes import MODES
    from swiftsure.engine.numerics import packed_weight_bytes, plan_numerics

    plans: dict[str, MemoryPlan | str] = {}
    for name, spec in MODES.items():
        if spec.reason is not None:
            continue
        numerics = plan_numerics(schedule, tensors, spec.levers)
        weight_bytes = packed_weight_bytes(schedule, tensors, numerics)
        try:
            plans[name] = plan_memory(schedule, weight_bytes=weight_bytes, available=available, context=context, kv_bits=numerics.kv_bits)
        except CapacityError as error:
            plans[name] = str(error)
    return plans


def available_memory(root: Path = machine.ROOT) -> Available:
    """The least of what the system has available, what this process's cgroups leave, and what its own limit of data leaves."""
    system = machine.memory_bytes("MemAvailable", root)
    limits = {"system": system, "cgroup": machine.cgroup_memory_left(root), "data size": machine.data_limit_left(root)}
    stated = [Available(bytes=left, limited_by=name) for name, left in limits.items() if left is not None]
    return min(stated, key=lambda one: one.bytes, default=Available(bytes=_UNSTATED_BYTES, limited_by="system"))


def _asked_context(context: int, model_context: int) -> int:
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise UsageError(f"context must be an integer of at least 1, got {context!r}")
    if context > model_context:
        raise UsageError(f"context must be at most the model's {model_context}, got {context}")
    return context


def _reason(context: int, model_context: int, limited_by: str, kv_bytes: int, limit: int, *, positions: int) -> str:
    shared = f" for {positions} tokens of all requests" if positions >= 2 * context else ""
    size = f"key-value cache {_mb(kv_bytes)}{shared}"
    if limited_by == "request":
        return f"context {context} as asked; {size}"
    if limited_by == "model":
        return f"context {context}, all of the model's; {size}"
    return f"context {context} of the model's {model_context}, as much as fits the {limited_by} limit of {_mb(limit)}; {size}"


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
