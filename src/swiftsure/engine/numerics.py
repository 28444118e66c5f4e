"""The levers that change the function a model computes: how its matrices are packed and its keys and values stored.

A lever so changes *which* function, never lets company change it: schedule invariance holds in every mode.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from swiftsure import kernels
from swiftsure.models.kv_size import KV_BITS, SMALL_KV_BITS
from swiftsure.models.schedule import AddBias, Embed, HeadNorm, Matmul, RMSNorm, Schedule
from swiftsure.models.tensors import TensorInfo, TensorSource

ROW_INTEGERS, INT8_KV = "row_integers", "int8_kv"
NUMERIC_LEVERS = (ROW_INTEGERS, INT8_KV)

_IDS = {ROW_INTEGERS: "row_integers", INT8_KV: "int8_kv32"}
"""What a lever adds to the numerics id; another function of the same lever is another id. int8_kv32: a scale per 32 dimensions of keys."""

FOUR_BIT_TYPES = ("Q4_0", "Q4_1", "Q4_K")
ROW_GRID_4, ROW_GRID_8 = "R4", "R8"  # packed types with one grid of integers per output row


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """``packing``: tensor -> packed type, where a matmul reads it otherwise than the file has it. ``id`` names the whole function."""

    id: str = kernels.NUMERICS
    variant: str = "file"  # of the packed weights
    packing: Mapping[str, str] = field(default_factory=dict)
    kv_bits: int = KV_BITS


FULL_NUMERICS = Numerics()

_GRID_COLUMNS = 64  # of a block; rows are filled up to whole ones
_GRID_BLOCK_BYTES = {ROW_GRID_4: 36, ROW_GRID_8: 64}  # of one row
_GRID_SCALE_BYTES = 4  # of a row


def plan_numerics(schedule: Schedule, tensors: TensorSource, levers: Collection[str]) -> Numerics:
    """What the numeric levers among ``levers`` make of a model; without any, full numerics."""
    changed = [name for name in NUMERIC_LEVERS if name in levers]
    packing: dict[str, str] = {}
    if ROW_INTEGERS in changed:
        names = [name for op in schedule.ops if isinstance(op, Matmul) for name in op.weights]
        packing = {name: ROW_GRID_4 if tensors.info(name).type in FOUR_BIT_TYPES else ROW_GRID_8 for name in names}
    return Numerics(
        id="+".join((kernels.NUMERICS, *(_IDS[name] for name in changed))),
        variant=ROW_INTEGERS if packing else "file",
        packing=packing,
        kv_bits=SMALL_KV_BITS if INT8_KV in changed else KV_BITS,
    )


def packed_weight_bytes(schedule: Schedule, tensors: TensorSource, numerics: Numerics) -> int:
    """Bytes of weights in memory, up to what fills strips of rows. A tensor that is read in two forms (an embedding that is the head too,
    where matmuls read integers by row) counts in both."""
    forms: set[tuple[str, str | None]] = {(op.weight, None) for op in schedule.ops if isinstance(op, Embed | RMSNorm | HeadNorm)}
    forms |= {(name, numerics.packing.get(name)) for op in schedule.ops if isinstance(op, Matmul | AddBias) for name in op.weights}
    return sum(_packed_bytes(tensors.info(name), form) for name, form in forms)


def _packed_bytes(info: TensorInfo, form: str | None) -> int:
    if form is None:
        return info.nbytes
    rows, columns = info.shape
    return rows * (-(-columns // _GRID_COLUMNS) * _GRID_BLOCK_BYTES[form] + _GRID_SCALE_BYTES)
