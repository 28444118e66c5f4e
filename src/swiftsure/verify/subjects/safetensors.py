"""A bounded reader of ``.safetensors`` files: a length of eight bytes, a JSON header, then the tensors' bytes.

The format: https://github.com/huggingface/safetensors#format. The library is not needed, and NumPy has no bfloat16 that it could return.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from swiftsure.verify.compare.elements import BFLOAT16, Array

_LARGEST_HEADER = 100_000_000  # the library's own limit
_TYPES: dict[str, Any] = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "BF16": BFLOAT16,
}  # fmt: skip


def read_safetensors(path: Path) -> dict[str, Array]:
    """Tensors by name in the order of their bytes, memory-mapped. bfloat16 keeps its bits, see ``compare.elements``.

    Raises ValueError that states the rule: a header within the file, known types (those of 8 bits and fewer floats are refused by name),
    offsets that follow each other without gap or overlap and fill the file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _LARGEST_HEADER):
            raise ValueError(f"the header's length is {length:,} bytes in a file of {size:,}")
        header = json.loads(file.read(length).decode())
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    entries = {name: _entry(name, facts) for name, facts in header.items() if name != "__metadata__"}
    tensors: dict[str, Array] = {}
    end = 0
    for name, (dtype, shape, begin, stop) in sorted(entries.items(), key=lambda item: (item[1][2], item[1][3])):
        if begin != end or stop - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"tensor {name!r} of type {dtype} and shape {shape} cannot lie at bytes {begin} to {stop}")
        end = stop
        at = 8 + length + begin
        if 8 + length + stop > size:
            raise ValueError(f"tensor {name!r} ends at byte {8 + length + stop:,} of a file of {size:,}")
        tensors[name] = np.asarray(np.memmap(path, dtype, "r", at, shape)) if stop > begin else np.zeros(shape, dtype)
    if 8 + length + end != size:
        raise ValueError(f"the tensors end at byte {8 + length + end:,} of a file of {size:,}")
    return tensors


def _entry(name: str, facts: Any) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Type, shape and the range of bytes of one tensor, of the right kinds."""
    if not isinstance(facts, dict) or not {"dtype", "shape", "data_offsets"} <= facts.keys():
        raise ValueError(f"tensor {name!r} must state dtype, shape and data_offsets")
    if not isinstance(facts["dtype"], str) or facts["dtype"] not in _TYPES:
        raise ValueError(f"tensor {name!r} has type {facts['dtype']!r}; read are {', '.join(_TYPES)}")
    numbers = (facts["shape"], facts["data_offsets"])
    if not all(isinstance(part, list) and all(type(n) is int and n >= 0 for n in part) for part in numbers) or len(numbers[1]) != 2:
        raise ValueError(f"tensor {name!r}: shape and data_offsets must be whole numbers of at least 0, got {numbers}")
    begin, stop = numbers[1]
    return np.dtype(_TYPES[facts["dtype"]]), tuple(numbers[0]), begin, stop
