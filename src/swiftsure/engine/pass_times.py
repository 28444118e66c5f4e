"""From the raw times of a compiled pass to what each operation took. Pure arithmetic.

A stage lasts from the end of the stage before it to the end of its own last chunk. Within that time each thread works, or waits: for a
chunk that another thread holds, for the gate, for the scheduler. So with T threads the time of a pass is exactly

    plan + sum over stages of (work of all threads + waiting of all threads) / T + return
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

_MATMUL_KINDS: Mapping[str, str] = {"attn_q": "qkv", "attn_output": "o", "ffn_gate": "gate_up", "ffn_down": "down"}
_LAYER = re.compile(r"^blk\.(\d+)\.(.+)\.(?:weight|bias)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One thing that a pass does: an operation of the schedule, or its part that the program put elsewhere."""

    stage: int
    name: str  # "matmul", "quantize", ...
    op: int  # index in the schedule
    kind: str  # what it is counted under: "qkv", "norms+quantize", ...
    layer: int | None  # None: before or after the layers
    packed_bytes: int  # of weights, that a matmul reads
    whole: bool  # False: a part (quantize, merge) of the operation, whose cost is counted with the other part


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTimes:
    """What the compiled core measured in one pass, in nanoseconds since it began (``Program.times``)."""

    planned_ns: int
    wall_ns: int
    shares: NDArray[np.int64]  # (threads, stages, 3) begin of the first chunk, end of the last, chunks
    work: NDArray[np.int64]  # (threads, pieces) time spent


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """One pass, in seconds. ``call_s`` + the sums of ``work_s`` and ``wait_s`` over pieces and threads / threads = ``wall_s``."""

    wall_s: float
    call_s: float  # planning, waking and the way back: outside every stage
    work_s: NDArray[np.float64]  # (threads, pieces)
    wait_s: NDArray[np.float64]  # (threads, pieces) waiting in the stage of the piece, shared among its pieces by their work


@dataclass(frozen=True, slots=True, kw_only=True)
class TypicalTimes:
    """Medians over repeats of a pass, in seconds. A neighbour who takes a processor for a moment hits another piece in every repeat and
    so none of their medians, but it lengthens them all: what ``wall_s`` has beyond its parts is ``interrupted_s``."""

    wall_s: float
    call_s: float
    work_s: NDArray[np.float64]  # (pieces,) mean over threads
    wait_s: NDArray[np.float64]  # (pieces,) the same
    threads: tuple[tuple[float, float], ...]  # (work, waiting) of each thread in all pieces

    @property
    def interrupted_s(self) -> float:
        return self.wall_s - self.call_s - float(self.work_s.sum() + self.wait_s.sum())


def pieces_of(schedule: Schedule, named: Iterable[tuple[int, str, int]]) -> tuple[Piece, ...]:
    """The pieces of a program that was built from ``schedule``, from its list of ``(stage, name, packed bytes)``.

    A "quantize" belongs to the matmul after it, a "merge" to the attention before it; all others follow the schedule one by one. Raises
    ValueError when they do not.
    """
    places = list(_places(schedule.ops))
    pieces, op = [], 0
    for stage, name, packed_bytes in named:
        part = name in ("quantize", "merge")
        index = op - 1 if name == "merge" else op
        if not 0 <= index < len(places):
            raise ValueError(f"the program has a piece {name!r} past the {len(places)} operations of the schedule")
        kind, layer = places[index]
        pieces.append(
            Piece(
                stage=stage,
                name=name,
                op=index,
                kind="norms+quantize" if name == "quantize" else kind,
                layer=layer,
                packed_bytes=packed_bytes,
                whole=not part,
            )
        )
        op += not part
    if op != len(places):
        raise ValueError(f"the program has pieces for {op} of the {len(places)} operations of the schedule")
    return tuple(pieces)


def _places(ops: Sequence[Op]) -> Iterator[tuple[str, int | None]]:
    """Kind and layer of every operation. One that names no layer is in that of the operation before it."""
    layer: int | None = None
    selected = False
    for op in ops:
        selected = selected or isinstance(op, SelectRows)
        layer = None if selected else _layer_of(op, layer)
        yield _kind_of(op, selected), layer


def _layer_of(op: Op, before: int | None) -> int | None:
    if isinstance(op, StoreKV | Attention):
        return op.layer
    name = op.weights[0] if isinstance(op, Matmul | AddBias) else op.weight if isinstance(op, Embed | RMSNorm | HeadNorm) else ""
    match = _LAYER.match(name)
    return int(match[1]) if match else before


def _kind_of(op: Op, selected: bool) -> str:
    match op:
        case Embed() | Input() | SelectRows():
            return "embed+select"
        case RMSNorm() | HeadNorm():
            return "norms+quantize"
        case AddBias() | Rope() | StoreKV():
            return "rope+cache"
        case Attention():
            return "attention"
        case GatedActivation():
            return "activation"
        case Matmul():
            match = _LAYER.match(op.weights[0])
            return "head" if selected else _MATMUL_KINDS.get(match[2], match[2]) if match else op.weights[0]


def pass_times(pieces: Sequence[Piece], raw: RawTimes) -> PassTimes:
    """Work and waiting by thread and piece."""
    stages = raw.shares.shape[1]
    busy = raw.shares[..., 2] > 0
    ends = np.where(busy, raw.shares[..., 1], 0).max(axis=0)  # (stages,)
    stage_of = np.array([piece.stage for piece in pieces])
    wait = np.zeros(raw.work.shape)
    before = raw.planned_ns
    for stage in range(stages):
        if not busy[:, stage].any():
            continue
        own = np.flatnonzero(stage_of == stage)
        work = raw.work[:, own]  # (threads, pieces of the stage)
        idle = (ends[stage] - before) - work.sum(axis=1)  # (threads,)
        total = work.sum()
        parts = work.sum(axis=0) / total if total else np.full(len(own), 1 / len(own))
        wait[:, own] = idle[:, None] * parts
        before = int(ends[stage])
    call = raw.planned_ns + raw.wall_ns - before
    return PassTimes(wall_s=raw.wall_ns * 1e-9, call_s=call * 1e-9, work_s=raw.work.astype(np.float64) * 1e-9, wait_s=wait * 1e-9)


def together(passes: Sequence[PassTimes]) -> PassTimes:
    """Passes that follow each other, as one."""
    return PassTimes(
        wall_s=sum(times.wall_s for times in passes),
        call_s=sum(times.call_s for times in passes),
        work_s=np.sum([times.work_s for times in passes], axis=0),
        wait_s=np.sum([times.wait_s for times in passes], axis=0),
    )


def typical(passes: Sequence[PassTimes]) -> TypicalTimes:
    """The median of every part over repeats of a pass."""
    if not passes:
        raise ValueError("there is no typical pass without passes")
    work, wait = np.array([times.work_s for times in passes]), np.array([times.wait_s for times in passes])  # (repeats, threads, pieces)
    of_threads = zip(np.median(work.sum(axis=2), axis=0).tolist(), np.median(wait.sum(axis=2), axis=0).tolist(), strict=True)
    return TypicalTimes(
        wall_s=float(np.median([times.wall_s for times in passes])),
        call_s=float(np.median([times.call_s for times in passes])),
        work_s=np.median(work.mean(axis=1), axis=0),
        wait_s=np.median(wait.mean(axis=1), axis=0),
        threads=tuple(of_threads),
    )
