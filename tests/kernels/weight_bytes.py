"""Random and extreme tensors in the layouts of model files, for tests of packed matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

QUANTIZED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
FLOATS = ("F32", "F16", "BF16")
TYPES = (*QUANTIZED, *FLOATS)
SUPER = ("Q4_K", "Q5_K", "Q6_K")  # blocks of 256 columns

# The parts of a block in a file: a float16, and so many bytes of factors or integers.
_HALF = "half"
_PARTS: dict[str, tuple[str | int, ...]] = {
    "Q8_0": (_HALF, 32),
    "Q4_0": (_HALF, 16),
    "Q4_1": (_HALF, _HALF, 16),
    "Q5_0": (_HALF, 4, 16),
    "Q5_1": (_HALF, _HALF, 4, 16),
    "Q4_K": (_HALF, _HALF, 12, 128),
    "Q5_K": (_HALF, _HALF, 12, 32, 128),
    "Q6_K": (128, 64, 16, _HALF),
}

HALF_EXTREMES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x3C00], dtype=np.uint16)
"""Float16 zeros, subnormals, largest values, infinities, a NaN and 1."""

FLOAT_EXTREMES = np.array([0.0, -0.0, 1e-45, -1e-39, 3e38, -3e38, np.inf, -np.inf, np.nan, 1.0, 1e-31], dtype=np.float32)


def columns(tensor_type: str, groups: int) -> int:
    """``groups`` groups of 32 columns, or as few more as the type's rows can have."""
    return -(-groups // 8) * 256 if tensor_type in SUPER else 32 * groups


def _halves(rng: np.random.Generator, shape: tuple[int, ...], *, extreme: bool) -> NDArray[np.uint8]:
    values = rng.choice(HALF_EXTREMES, shape) if extreme else rng.normal(0, 0.02, shape).astype(np.float16).view(np.uint16)
    return values.astype("<u2")[..., None].view(np.uint8)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], *, extreme: bool) -> NDArray[np.uint8]:
    # 0xFF: every bit of an integer or factor set, or -1; 0x80: int8 -128; 0x00: Q4_0's -8.
    return rng.choice(np.array([0x00, 0x7F, 0x80, 0xFF], dtype=np.uint8), shape) if extreme else rng.integers(0, 256, shape, dtype=np.uint8)


def weight_bytes(
    tensor_type: str, n: int, k: int, rng: np.random.Generator, *, extreme_integers: bool = False, extreme_floats: bool = False
) -> NDArray[np.uint8]:
    """One-dimensional bytes of a tensor of shape (n, k)."""
    if tensor_type == "F32":
        values = rng.choice(FLOAT_EXTREMES, (n, k)) if extreme_floats else rng.normal(0, 1, (n, k)).astype(np.float32)
        return values.astype("<f4").view(np.uint8).reshape(-1)
    if tensor_type == "F16":
        return _halves(rng, (n, k), extreme=extreme_floats).reshape(-1)
    if tensor_type == "BF16":
        values = rng.choice(FLOAT_EXTREMES, (n, k)) if extreme_floats else rng.normal(0, 1, (n, k)).astype(np.float32)
        return np.ascontiguousarray(values.view(np.uint16).reshape(n, k, 2)[..., 1]).view(np.uint8).reshape(-1)
    blocks = (n, k // columns(tensor_type, 1))
    parts = [
        _halves(rng, blocks, extreme=extreme_floats) if part == _HALF else _integers(rng, (*blocks, part), extreme=extreme_integers)
        for part in _PARTS[tensor_type]
    ]
    return np.concatenate(parts, axis=-1).reshape(-1)
