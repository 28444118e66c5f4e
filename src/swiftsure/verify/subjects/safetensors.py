"""Arrays of ``.safetensors`` files. The library is not needed, and NumPy has no bfloat16 that it could return."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from swiftsure.errors import ModelError
from swiftsure.models.safetensors_header import read_header
from swiftsure.verify.compare.elements import BFLOAT16, Array

_TYPES: dict[str, Any] = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8", "I64": "<i8",
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "BF16": BFLOAT16,
}  # fmt: skip


def read_safetensors(path: Path) -> dict[str, Array]:
    """Tensors by name in the order of their bytes, memory-mapped. bfloat16 keeps its bits, see ``compare.elements``.

    Raises ValueError that states the rule, as :func:`swiftsure.models.safetensors_header.read_header` does; types that NumPy has no
    elements for (floats of 8 and fewer bits) are refused by name.
    """
    dtypes = {name: np.dtype(kind) for name, kind in _TYPES.items()}
    with path.open("rb") as file:
        try:
            size = os.fstat(file.fileno()).st_size
            entries = read_header(file.fileno(), size, element_bytes={name: dtype.itemsize for name, dtype in dtypes.items()})
        except ModelError as error:
            raise ValueError(str(error)) from None
    return {
        name: np.asarray(np.memmap(path, dtypes[entry.dtype], "r", entry.offset, entry.shape))
        if entry.nbytes
        else np.zeros(entry.shape, dtypes[entry.dtype])
        for name, entry in entries.items()
    }
