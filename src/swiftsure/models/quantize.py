"""Rows of weights to Q8_0, Q4_0 and Q4_1, and rows of any type that runs here back to floats.

A block is 32 neighbouring columns of a row: a float16 scale d, for Q4_1 a float16 minimum m, and 32 integers q in ``low..high``; it stands
for d * q + m. Two methods choose them:

``rtn``     rounds to nearest between the block's extremes: the same bytes as ``gguf.quants.quantize``.
``search``  minimises the squared error of the block, each weight's own counted in proportion to w^2 + mean(w^2). Several scales (for Q4_1:
            pairs of ends), from wider than the extremes to well inside them, are tried; for each the integers are rounded, and the best is
            refined by turns: least squares gives the scale and the minimum that suit the integers best, rounding gives the integers that
            suit these best. Everything is done with the float16 values that are stored, and the plain scale is kept where nothing beats
            it, so in this measure no block comes out worse than with ``rtn``.

Why not every weight alike: the largest weights of a model sit in the few columns whose activations are largest too, and a search that may
clip them at no extra cost does so in every row. That lowers the plain error and moves the logits further than rounding does; see
docs/decisions.

Both are deterministic: single IEEE operations in a fixed order on each block alone, so the bytes depend neither on how rows are cut nor on
threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.kernels import reference
from swiftsure.models.tensors import MATRIX_TYPES

Float32 = NDArray[np.float32]
Bytes = NDArray[np.uint8]

BLOCK = 32
METHODS = ("search", "rtn")
DEFAULT_METHOD = "search"
FLOAT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}

_TILE_BLOCKS = 2048  # blocks worked on at a time: 256 kB an array, so that a handful stay in a core's own cache
_REFINEMENTS = 2


@dataclass(frozen=True, slots=True)
class _Kind:
    low: int
    high: int
    minimum: bool
    bytes: int  # of a block


_KINDS = {"Q8_0": _Kind(-127, 127, False, 34), "Q4_0": _Kind(-8, 7, False, 18), "Q4_1": _Kind(0, 15, True, 20)}
QUANTIZED_TYPES = tuple(_KINDS)

# What is tried, relative to the plain choice.
_Q8_0_SCALES = np.linspace(0.97, 1.02, 11, dtype=np.float32)
_Q4_0_SCALES = np.float32(8) / np.linspace(7, 12, 11, dtype=np.float32)
_Q4_1_ENDS = tuple(product(np.linspace(0.65, 1.05, 5, dtype=np.float32), repeat=2))


def encoded_bytes(tensor_type: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of ``shape`` in one of ``QUANTIZED_TYPES``. Raises UsageError when the rows are not whole blocks."""
    kind = _kind(tensor_type)
    if shape[-1] % BLOCK:
        raise UsageError(f"rows must have a multiple of {BLOCK} columns for {tensor_type}, got {shape[-1]}")
    return int(np.prod(shape[:-1], dtype=np.int64)) * (shape[-1] // BLOCK) * kind.bytes


def quantize_rows(tensor_type: str, rows: Float32, *, method: str = DEFAULT_METHOD) -> Bytes:
    """The blocks of ``rows`` as a GGUF file holds them.

    Args:
        tensor_type: Q8_0, Q4_0 or Q4_1.
        rows: float32 (n, k), k a multiple of 32.
        method: ``search`` (least squared error) or ``rtn`` (round to nearest).

    Returns:
        uint8 (n, k / 32 * bytes of a block).

    Raises:
        UsageError: an argument breaks a rule.
        ModelFileError: a weight is not finite, or too large for a float16 scale.
    """
    kind = _kind(tensor_type)
    if method not in METHODS:
        raise UsageError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if rows.ndim != 2 or rows.dtype != np.float32:
        raise UsageError(f"rows must be float32 of two dimensions, got {rows.dtype} of shape {rows.shape}")
    n, k = rows.shape
    encoded_bytes(tensor_type, rows.shape)
    blocks = rows.reshape(-1, BLOCK)
    out = np.empty((blocks.shape[0], kind.bytes), np.uint8)
    for first in range(0, blocks.shape[0], _TILE_BLOCKS):
        # Blocks side by side, so that each step is one pass over contiguous lanes and a sum over a block adds 32 rows in order.
        w = np.ascontiguousarray(blocks[first : first + _TILE_BLOCKS].T)
        if not np.isfinite(w).all():
            raise ModelFileError(f"weights must be finite to be quantized, got {w[~np.isfinite(w)][0]}")
        with np.errstate(all="ignore"):  # what overflows gives a scale that is refused
            scale, minimum, integers = _plain(tensor_type, w) if method == "rtn" else _search(tensor_type, w)
            _encode(tensor_type, scale, minimum, integers, out[first : first + w.shape[1]])
    return out.reshape(n, k // BLOCK * kind.bytes)


def dequantize_rows(tensor_type: str, raw: Bytes, k: int) -> Float32:
    """The values of whole rows of k columns: float32 (n, k), exact but for types with minima, whose sums are rounded once.

    ``raw`` holds the file's bytes, of any shape; types: those whose matrices run.
    """
    data = np.ascontiguousarray(raw).reshape(-1)
    if tensor_type == "F32":
        return data.view("<f4").reshape(-1, k)
    if tensor_type == "F16":
        return data.view("<f2").astype(np.float32).reshape(-1, k)
    if tensor_type == "BF16":  # the upper half of a float32
        return (data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(-1, k)
    kind = _KINDS.get(tensor_type)
    if kind is None and tensor_type in MATRIX_TYPES:  # never written here, and seldom read: the float64 twin does
        values64 = reference.dequantize(tensor_type, data, (data.size // reference.tensor_bytes(tensor_type, (k,)), k))
        return values64.astype(np.float32)
    if kind is None:
        raise UnsupportedModelError(f"rows of type {tensor_type} cannot be read as floats; supported: {', '.join(MATRIX_TYPES)}")
    blocks = data.reshape(-1, kind.bytes)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    if tensor_type == "Q8_0":
        return (blocks[:, 2:].view(np.int8) * scale).reshape(-1, k)
    packed = blocks[:, -16:]
    values = np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)
    if kind.minimum:
        return (values * scale + blocks[:, 2:4].copy().view("<f2").astype(np.float32)).reshape(-1, k)
    return ((values + np.float32(kind.low)) * scale).reshape(-1, k)


def _kind(tensor_type: str) -> _Kind:
    if tensor_type not in _KINDS:
        raise UsageError(f"type must be one of {', '.join(_KINDS)}, got {tensor_type!r}")
    return _KINDS[tensor_type]


# --- round to nearest ---------------------------------------------------------------------------------------------------------------


def _plain(tensor_type: str, w: Float32) -> tuple[Float32, Float32, Float32]:
    """Scale and minimum (blocks,) before they are stored, integers (32, blocks)."""
    scale, minimum = _plain_scale(tensor_type, w)
    inverse = _inverse(scale)
    if tensor_type == "Q8_0":
        t = w * inverse
        return scale, minimum, np.copysign(np.floor(np.abs(t) + np.float32(0.5)), t)
    if tensor_type == "Q4_0":
        return scale, minimum, np.clip(np.trunc(w * inverse + np.float32(8.5)), 0, 15) - np.float32(8)
    return scale, minimum, np.clip(np.trunc((w - minimum) * inverse + np.float32(0.5)), 0, 15)


def _plain_scale(tensor_type: str, w: Float32) -> tuple[Float32, Float32]:
    if tensor_type == "Q4_1":
        minimum = w.min(axis=0)
        return (w.max(axis=0) - minimum) / np.float32(15), minimum
    zero = np.zeros(w.shape[1], np.float32)
    size = np.abs(w)
    if tensor_type == "Q8_0":
        return size.max(axis=0) / np.float32(127), zero
    largest = np.take_along_axis(w, size.argmax(axis=0)[None], axis=0)[0]
    return largest / np.float32(-8), zero  # the largest weight, whichever its sign, gets the integer that has no opposite


# --- the search ---------------------------------------------------------------------------------------------------------------------


def _search(tensor_type: str, w: Float32) -> tuple[Float32, Float32, Float32]:
    target = _Target(tensor_type, w)
    scale, minimum = _plain_scale(tensor_type, w)
    best = _Fit(target, _stored(scale), _stored(minimum))
    trial_scale, trial_minimum = _best_start(target, scale, minimum)
    for _ in range(_REFINEMENTS):
        trial_scale, trial_minimum = _Sums(target, _rounded(target.kind, w, trial_scale, trial_minimum)).least_squares()
    trial = _Fit(target, _stored(trial_scale), _stored(trial_minimum))
    better = trial.error < best.error
    return (
        np.where(better, trial.scale, best.scale),
        np.where(better, trial.minimum, best.minimum),
        np.where(better, trial.integers, best.integers),
    )


class _Target:
    """What is approximated: weights w (32, blocks), what the error of each counts, and the sums over a block that no trial changes."""

    def __init__(self, tensor_type: str, w: Float32) -> None:
        self.type = tensor_type
        self.kind = _KINDS[tensor_type]
        self.w = w
        self.importance = _importance(w)
        self.weighted = self.importance * w
        self.size = _sum(self.importance)
        self.total = _sum(self.weighted)


def _importance(w: Float32) -> Float32:
    """1 on average over a block and at least 1/2."""
    squares = w * w
    twice = _sum(squares) * np.float32(2 / BLOCK)
    usable = twice > 0
    squares *= np.where(usable, 1 / np.where(usable, twice, np.float32(1)), 0)
    squares += np.where(usable, np.float32(0.5), np.float32(1))
    return squares


class _Fit:
    """The best integers for a stored scale and minimum, and their error (blocks,)."""

    def __init__(self, target: _Target, scale: Float32, minimum: Float32) -> None:
        self.scale = scale
        self.minimum = minimum
        self.integers = _rounded(target.kind, target.w, scale, minimum)
        miss = self.integers * scale
        if target.kind.minimum:
            miss += minimum
        miss -= target.w
        miss *= miss
        miss *= target.importance
        self.error = _sum(miss)


class _Sums:
    """The sums over a block of integers, counted by importance, from which least squares and its gain follow."""

    def __init__(self, target: _Target, q: Float32) -> None:
        weighted = target.importance * q
        self.target = target
        self.squares = _sum(weighted * q)
        self.products = _sum(target.weighted * q)
        if target.kind.minimum:
            self.total = _sum(weighted)
            # 0 when all integers are the same, else well above 1, as importance is at least 1/2.
            self.spread = self.squares * target.size - self.total * self.total
            self.slope = self.products * target.size - self.total * target.total

    def gain(self) -> Float32:
        """How much of the weights' squares the integers explain after the fit, up to what a block's trials have in common."""
        top, bottom = (self.slope, self.spread) if self.target.kind.minimum else (self.products, self.squares)
        gain: Float32 = np.divide(top * top, _at_least_one(bottom))
        return gain

    def least_squares(self) -> tuple[Float32, Float32]:
        """The scale and the minimum that bring scale * q + minimum nearest to the weights."""
        if not self.target.kind.minimum:
            return self.products / _at_least_one(self.squares), np.zeros_like(self.products)
        scale: Float32 = np.divide(self.slope, _at_least_one(self.spread))
        minimum: Float32 = np.divide(self.target.total - scale * self.total, self.target.size)
        return scale, minimum


def _best_start(target: _Target, scale: Float32, minimum: Float32) -> tuple[Float32, Float32]:
    """Of the scales and minima that are tried, those that do best before refinement."""
    best_scale, best_minimum, best = scale, minimum, np.full(scale.shape, -np.inf, np.float32)
    if target.kind.minimum:
        middle = minimum + np.float32(7.5) * scale
        trials = [(scale * (a + b) / 2, middle - np.float32(7.5) * scale * a) for a, b in _Q4_1_ENDS]
    else:
        trials = [(scale * factor, minimum) for factor in (_Q8_0_SCALES if target.type == "Q8_0" else _Q4_0_SCALES)]
    for trial_scale, trial_minimum in trials:
        if target.type == "Q8_0":  # integers explain nearly all of the squares, more than a float32 can tell apart: take the error itself
            gain = -_eight_bit_error(target, trial_scale)
        else:
            gain = _Sums(target, _rounded(target.kind, target.w, trial_scale, trial_minimum)).gain()
        better = gain > best
        best = np.where(better, gain, best)
        best_scale = np.where(better, trial_scale, best_scale)
        best_minimum = np.where(better, trial_minimum, best_minimum)
    return best_scale, best_minimum


def _eight_bit_error(target: _Target, scale: Float32) -> Float32:
    miss = target.w * _inverse(scale)
    miss -= np.clip(np.rint(miss), target.kind.low, target.kind.high)
    miss *= miss
    miss *= target.importance
    return _sum(miss) * scale * scale


def _rounded(kind: _Kind, w: Float32, scale: Float32, minimum: Float32) -> Float32:
    q = (w - minimum) if kind.minimum else w.copy()
    q *= _inverse(scale)
    np.rint(q, out=q)
    return np.clip(q, kind.low, kind.high, out=q)


def _inverse(scale: Float32) -> Float32:
    """1 / scale, and 0 where a float32 cannot hold that: such a scale is stored as 0 anyway."""
    usable = np.abs(scale) > np.float32(3e-39)
    inverse = np.zeros_like(scale)
    np.divide(np.float32(1), scale, out=inverse, where=usable)
    return inverse


def _sum(values: Float32) -> Float32:
    total: Float32 = np.add.reduce(values, axis=0)
    return total


def _at_least_one(values: Float32) -> Float32:
    larger: Float32 = np.maximum(values, np.float32(1))
    return larger


def _stored(values: Float32) -> Float32:
    """As a float16 holds it."""
    return values.astype(np.float16).astype(np.float32)


# --- bytes --------------------------------------------------------------------------------------------------------------------------


def _encode(tensor_type: str, scale: Float32, minimum: Float32, integers: Float32, out: Bytes) -> None:
    """Writes blocks (blocks, bytes)."""
    kind = _KINDS[tensor_type]
    stored = [scale.astype("<f2"), minimum.astype("<f2")][: 1 + kind.minimum]
    for at, values in enumerate(stored):
        if not np.isfinite(values).all():
            raise ModelFileError(f"weights must fit float16 scales (65504) to be quantized to {tensor_type}, got a scale that does not")
        out[:, 2 * at : 2 * at + 2] = values.view(np.uint8).reshape(-1, 2)
    if tensor_type == "Q8_0":
        out[:, 2:] = integers.astype(np.int8).view(np.uint8).T
        return
    nibbles = (integers - np.float32(kind.low)).astype(np.uint8)
    out[:, -16:] = (nibbles[:16] | nibbles[16:] << 4).T
