"""Random and extreme tensors in the layouts of model files, for tests of packed matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

QUANTIZED = ("Q8_0", "Q4_0", "Q4_1")
FLOATS = ("F32", "F16", "BF16")
TYPES = (*QUANTIZED, *FLOATS)

HALF_EXTREMES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01, 0x3C00], dtype=np.uint16)
"""Float16 zeros, subnormals, largest values, infinities, a NaN and 1."""

FLOAT_EXTREMES = np.array([0.0, -0.0, 1e-45, -1e-39, 3e38, -3e38, np.inf, -np.inf, np.nan, 1.0, 1e-31], dtype=np.float32)


def _halves(rng: np.random.Generator, shape: tuple[int, ...], *, extreme: bool) -> NDArray[np.uint8]:
    values = rng.choice(HALF_EXTREMES, shape) if extreme else rng.normal(0, 0.02, shape).astype(np.float16).view(np.uint16)
    return values.astype("<u2")[..., None].view(np.uint8)


def _integers(rng: np.random.Generator, shape: tuple[int, ...], *, extreme: bool) -> NDArray[np.uint8]:
    # 0xFF: every nibble 15, or -1; 0x80: int8 -128; 0x00: Q4_0's -8.
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
    blocks = (n, k // 32)
    parts = [_halves(rng, blocks, extreme=extreme_floats)]
    if tensor_type == "Q4_1":
        parts.append(_halves(rng, blocks, extreme=extreme_floats))
    parts.append(_integers(rng, (*blocks, 32 if tensor_type == "Q8_0" else 16), extreme=extreme_integers))
    return np.concatenate(parts, axis=-1).reshape(-1)
