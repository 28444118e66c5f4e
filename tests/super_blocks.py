"""Super-blocks of 256 columns (GGUF: Q4_K, Q5_K, Q6_K) by plain rounding: the ``gguf`` package reads them and writes none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COLUMNS = 256
SUPER_TYPES = ("Q4_K", "Q5_K", "Q6_K")

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]


def quantize(values: Floats, tensor_type: str) -> Bytes:
    """The blocks of ``values`` (..., a multiple of 256), uint8 (blocks, bytes of a block)."""
    blocks = np.asarray(values, dtype=np.float64).reshape(-1, COLUMNS)
    return _six_bits(blocks) if tensor_type == "Q6_K" else _with_minima(blocks, 4 if tensor_type == "Q4_K" else 5)


def _halves(values: Floats) -> tuple[Bytes, Floats]:
    """(blocks,) as float16: bytes (blocks, 2), and what they stand for (blocks, 1)."""
    stored = values.astype("<f2")
    return stored.view(np.uint8).reshape(-1, 2), stored.astype(np.float64)[:, None]


def _integers(values: Floats, scale: Floats, low: int, high: int) -> Bytes:
    """``values`` over ``scale``, where that is not 0, to the nearest integer from ``low`` to ``high``, counted from ``low``."""
    steps = np.divide(values, scale, out=np.zeros_like(values), where=scale != 0)
    return (np.clip(np.rint(steps), low, high) - low).astype(np.uint8)


def _with_minima(blocks: Floats, bits: int) -> Bytes:
    groups = blocks.reshape(-1, 8, 32)
    levels = 2**bits - 1
    below = np.maximum(-groups.min(axis=-1), 0)
    wanted = np.maximum(groups.max(axis=-1) + below, 0) / levels
    d_bytes, d = _halves(wanted.max(axis=-1) / 63)
    dmin_bytes, dmin = _halves(below.max(axis=-1) / 63)
    scale, minimum = _integers(wanted, d, 0, 63), _integers(below, dmin, 0, 63)
    q = _integers(groups + (dmin * minimum)[..., None], (d * scale)[..., None], 0, levels)
    upper = [((q[:, :, :] >> 4) << np.arange(8, dtype=np.uint8)[None, :, None]).sum(axis=1, dtype=np.uint8)] if bits == 5 else []
    nibbles = (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).reshape(len(q), -1)
    first = np.concatenate([scale[:, :4] | (scale[:, 4:] >> 4) << 6, minimum[:, :4] | (minimum[:, 4:] >> 4) << 6], axis=1)
    return np.concatenate([d_bytes, dmin_bytes, first, scale[:, 4:] & 15 | (minimum[:, 4:] & 15) << 4, *upper, nibbles], axis=1)


def _six_bits(blocks: Floats) -> Bytes:
    groups = blocks.reshape(-1, 16, 16)
    wanted = np.abs(groups).max(axis=-1) / 31
    d_bytes, d = _halves(wanted.max(axis=-1) / 127)
    scale = _integers(wanted, d, 0, 127)
    q = _integers(groups, (d * scale)[..., None], -32, 31).reshape(-1, 2, 4, 32)  # (blocks, halves, quarters, columns)
    nibbles = q[:, :, :2] & 15 | (q[:, :, 2:] & 15) << 4
    upper = ((q >> 4) << np.array([0, 2, 4, 6], dtype=np.uint8)[None, None, :, None]).sum(axis=2, dtype=np.uint8)
    return np.concatenate([nibbles.reshape(len(q), -1), upper.reshape(len(q), -1), scale, d_bytes], axis=1)
