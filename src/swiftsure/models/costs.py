"""What each step of a schedule costs: the bytes it reads and the arithmetic it does in one decode pass (one row, one sequence)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from swiftsure.models.kv_size import KV_BITS, key_value_bytes
from swiftsure.models.schedule import (
    AddBias,
    Attention,
    Embed,
    GatedActivation,
    HeadNorm,
    Input,
    Matmul,
    Op,
    RMSNorm,
    Rope,
    Schedule,
    SelectRows,
    StoreKV,
)
from swiftsure.models.tensors import TensorSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """One step of the program. ``operations`` counts additions and multiplications of the plain mathematics."""

    name: str  # "matmul"
    reads: tuple[str, ...]  # buffers and tensors
    writes: str  # a buffer, or the cache of a layer
    shape: str  # of the work for one row
    weight_bytes: int  # as the file stores them
    kv_bytes: int  # of the key-value cache, read or written
    operations: int


def step_costs(schedule: Schedule, tensors: TensorSource, *, positions: int, kv_bits: int = KV_BITS) -> tuple[StepCost, ...]:
    """The cost of every step when one token is decoded at the end of ``positions`` cached positions of ``kv_bits`` bits a value."""
    return tuple(_cost(op, schedule, tensors, positions, kv_bits) for op in schedule.ops)


def decode_bytes_per_token(tensors: TensorSource, schedule: Schedule) -> int:
    """Bytes of weights that a decode pass of one row reads, as the file stores them: matrices and vectors, and a row of the embedding."""
    return sum(cost.weight_bytes for cost in step_costs(schedule, tensors, positions=1))


def pass_costs(
    schedule: Schedule, tensors: TensorSource, *, positions: int, rows: int, wanted: int, kv_bits: int = KV_BITS
) -> tuple[StepCost, ...]:
    """The cost of every step of a pass of ``rows`` neighbouring rows of one sequence, the last of which sees ``positions`` positions.

    Weights and cached positions are read once for all rows; ``wanted`` rows of logits are handed back. ``shape`` stays that of one row.
    """
    costs = []
    for op, cost in zip(schedule.ops, step_costs(schedule, tensors, positions=positions, kv_bits=kv_bits), strict=True):
        if isinstance(op, SelectRows):
            rows = wanted
        times = rows
        if isinstance(op, Embed | StoreKV):  # a row of the table, a vector of the cache, for each row
            cost = replace(cost, weight_bytes=cost.weight_bytes * rows, kv_bytes=cost.kv_bytes * rows)
        elif isinstance(op, Attention):
            last = keys_seen(op, positions)
            cost = replace(cost, operations=cost.operations // last, kv_bytes=cost.kv_bytes // last * min(positions, last + rows - 1))
            times = sum(keys_seen(op, seen) for seen in range(positions - rows + 1, positions + 1))  # earlier rows see fewer positions
        elif rows == 0:
            cost = replace(cost, weight_bytes=0)
        costs.append(replace(cost, operations=cost.operations * times))
    return tuple(costs)


def keys_seen(op: Attention, positions: int) -> int:
    """How many of the positions up to its own the last of ``positions`` positions attends to."""
    return positions if op.window is None else min(op.window, positions)


def _cost(op: Op, schedule: Schedule, tensors: TensorSource, positions: int, kv_bits: int) -> StepCost:
    width = schedule.buffers
    position_bytes = schedule.kv_heads * key_value_bytes(schedule.head_dim, kv_bits)  # of one layer
    match op:
        case Embed():
            rows, columns = tensors.info(op.weight).shape
            row_bytes = tensors.info(op.weight).nbytes // rows
            return _step("embed", (op.weight,), op.out, f"1 of {rows} x {columns}", row_bytes, 0, columns * (1 + (op.scale != 1.0)))
        case Input():
            return _step("input", ("features",), op.out, f"{width[op.out]}", 0, 0, 0)
        case RMSNorm():
            n = width[op.x]
            out, added = (f"{op.out} +=", n) if op.accumulate else (op.out, 0)
            return _step("rms_norm", (op.x, op.weight), out, f"{n}", tensors.info(op.weight).nbytes, 0, 4 * n + added)
        case Matmul():
            infos = [tensors.info(weight) for weight in op.weights]
            n, k = sum(info.shape[0] for info in infos), infos[0].shape[1]
            kinds = "+".join(dict.fromkeys(info.type for info in infos))
            weights, out = sum(info.nbytes for info in infos), f"{op.out} +=" if op.accumulate else op.out
            return _step("matmul", (op.x, *op.weights), out, f"{n} x {k} {kinds}", weights, 0, 2 * n * k)
        case AddBias():
            n = width[op.x]
            return _step("add_bias", (op.x, *op.weights), op.x, f"{n}", sum(tensors.info(weight).nbytes for weight in op.weights), 0, n)
        case HeadNorm():
            shape, n = f"{op.heads} x {op.head_dim} at {op.offset}", op.heads * op.head_dim
            return _step("head_norm", (op.x, op.weight), op.x, shape, tensors.info(op.weight).nbytes, 0, 4 * n)
        case Rope():
            turned = op.heads * op.rotary_dim
            shape = f"{op.heads} x {op.rotary_dim} at {op.offset}{', slowed' if op.factors else ''}"
            return _step("rope", (op.x,), op.x, shape, 0, 0, 3 * turned)
        case StoreKV():
            vectors = 2 * schedule.kv_heads
            return _step("store_kv", (op.x,), f"cache {op.layer}", f"{vectors} x {schedule.head_dim}", 0, position_bytes, 0)
        case Attention():
            seen = keys_seen(op, positions)
            read = position_bytes * seen
            work = 4 * op.heads * schedule.head_dim * seen
            return _step("attention", (op.x, f"cache {op.layer}"), op.out, f"{op.heads} heads x {seen} keys", 0, read, work)
        case GatedActivation():
            n = width[op.out]
            return _step("activation", (op.x,), op.out, f"{n} {op.kind}", 0, 0, (5 if op.kind == "silu" else 9) * n)
        case SelectRows():
            return _step("select_rows", (op.x,), op.out, f"{width[op.x]}", 0, 0, 0)


def _step(name: str, reads: tuple[str, ...], writes: str, shape: str, weight_bytes: int, kv_bytes: int, operations: int) -> StepCost:
    return StepCost(name=name, reads=reads, writes=writes, shape=shape, weight_bytes=weight_bytes, kv_bytes=kv_bytes, operations=operations)
