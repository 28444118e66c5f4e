"""The truth: every kernel again in float64 NumPy, slow and readable.

Nothing here shares a line with the compiled core. A numeric path states its distance to these functions; invariance is checked on the
compiled core alone. Arrays are float64 and row-major; shapes stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swiftsure.errors import UsageError

Float64 = NDArray[np.float64]

SMALL_KEY_GROUP = 32  # dimensions of an int8 key that share a scale
Activation = Literal["silu", "gelu_tanh"]

# --- weights ------------------------------------------------------------------------------------------------------------------------


def dequantize(tensor_type: str, data: NDArray[np.uint8], shape: tuple[int, ...]) -> Float64:
    """The exact values of a tensor's bytes.

    Exact, not merely close: scale (11 significant bits) times factor (at most 7) times integer (at most 8) plus minimum (as many) fits the
    53 bits of a float64.

    Args:
        tensor_type: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K.
        data: the file's bytes, one-dimensional.
        shape: row-major; for block types the last dimension is a multiple of 32, for the last three of 256.
    """
    decode = _DECODERS.get(tensor_type)
    if decode is None:
        raise UsageError(f"tensor_type must be one of {', '.join(_DECODERS)}, got {tensor_type!r}")
    raw = np.ascontiguousarray(data, dtype=np.uint8).reshape(-1)
    expected = tensor_bytes(tensor_type, shape)
    if raw.size != expected:
        raise UsageError(f"{tensor_type} of shape {shape} takes {expected} bytes, got {raw.size}")
    return decode(raw).reshape(shape)


def tensor_bytes(tensor_type: str, shape: tuple[int, ...]) -> int:
    """Bytes that ``shape`` takes in a file."""
    values = int(np.prod(shape, dtype=np.int64))
    if tensor_type in _BLOCKS:
        columns, block_bytes = _BLOCKS[tensor_type]
        if shape[-1] % columns:
            raise UsageError(f"the last dimension of a {tensor_type} tensor must be a multiple of {columns}, got {shape[-1]}")
        return values // columns * block_bytes
    return values * (4 if tensor_type == "F32" else 2)


def _f32(raw: NDArray[np.uint8]) -> Float64:
    return raw.view("<f4").astype(np.float64)


def _f16(raw: NDArray[np.uint8]) -> Float64:
    return raw.view("<f2").astype(np.float64)


def _bf16(raw: NDArray[np.uint8]) -> Float64:
    # The upper half of a float32.
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def _q8_0(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 34)  # float16 scale, 32 int8
    return _f16(blocks[:, :2].copy()) * blocks[:, 2:].view(np.int8)


def _nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # (blocks, 16) -> (blocks, 32): low nibbles are values 0..15, high nibbles values 16..31.
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _q4_0(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 18)  # float16 scale, 16 bytes of nibbles
    return _f16(blocks[:, :2].copy()) * (_nibbles(blocks[:, 2:]).astype(np.float64) - 8.0)


def _q4_1(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 20)  # float16 scale, float16 minimum, 16 bytes of nibbles
    return _f16(blocks[:, :2].copy()) * _nibbles(blocks[:, 4:]) + _f16(blocks[:, 2:4].copy())


def _five_bits(fifth: NDArray[np.uint8], packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Bit c of the four bytes belongs to value c.
    return np.asarray(_nibbles(packed) | np.unpackbits(fifth, axis=1, bitorder="little") << 4)


def _q5_0(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 22)  # float16 scale, 4 bytes of fifth bits, 16 of nibbles
    return _f16(blocks[:, :2].copy()) * (_five_bits(blocks[:, 2:6], blocks[:, 6:]).astype(np.float64) - 16.0)


def _q5_1(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 24)  # float16 scale, float16 minimum, 4 bytes of fifth bits, 16 of nibbles
    return _f16(blocks[:, :2].copy()) * _five_bits(blocks[:, 4:8], blocks[:, 8:]) + _f16(blocks[:, 2:4].copy())


def _shared_nibbles(packed: NDArray[np.uint8], columns: int) -> NDArray[np.uint8]:
    # Each `columns` bytes hold twice as many values: first all low nibbles, then all high ones. -> (blocks, 256)
    parts = packed.reshape(len(packed), -1, 1, columns)
    return np.concatenate([parts & 15, parts >> 4], axis=2).reshape(len(packed), 256)


def _factors(packed: NDArray[np.uint8]) -> tuple[Float64, Float64]:
    # Six bits each: (blocks, 12) -> scales and minima of eight groups. Groups 0..3 have theirs in bytes 0..3 and 4..7, whose upper two
    # bits are the upper bits of groups 4..7; the lower four of these are nibbles of bytes 8..11.
    scale, minimum, lower = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([scale & 63, lower & 15 | scale >> 6 << 4], axis=1)
    minima = np.concatenate([minimum & 63, lower >> 4 | minimum >> 6 << 4], axis=1)
    return scales.astype(np.float64), minima.astype(np.float64)


def _with_minima(blocks: NDArray[np.uint8], integers: NDArray[np.uint8]) -> Float64:
    # float16 d and dmin, 12 bytes of factors: d * scale * integer - dmin * minimum for eight groups of 32.
    scales, minima = _factors(blocks[:, 4:16])
    d, dmin = _f16(blocks[:, :2].copy()) * scales, _f16(blocks[:, 2:4].copy()) * minima
    return np.asarray(d[..., None] * integers.reshape(-1, 8, 32) - dmin[..., None])


def _q4_k(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 144)  # the above, then 128 bytes of nibbles
    return _with_minima(blocks, _shared_nibbles(blocks[:, 16:], 32))


def _q5_k(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 176)  # the above, 32 bytes of fifth bits (bit g of byte c: column c of group g), 128 of nibbles
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1
    return _with_minima(blocks, np.asarray(_shared_nibbles(blocks[:, 48:], 32) | fifth.reshape(-1, 256) << 4, dtype=np.uint8))


def _q6_k(raw: NDArray[np.uint8]) -> Float64:
    blocks = raw.reshape(-1, 210)  # 128 bytes of nibbles, 64 of two bits each, 16 int8 factors, float16 scale
    upper = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], dtype=np.uint8)[:, None] & 3
    integers = (_shared_nibbles(blocks[:, :128], 64) | upper.reshape(-1, 256) << 4).astype(np.float64) - 32.0
    scales = _f16(blocks[:, 208:].copy()) * blocks[:, 192:208].view(np.int8)
    return np.asarray(scales[..., None] * integers.reshape(-1, 16, 16))


# Values and bytes of a block.
_BLOCKS = {
    "Q8_0": (32, 34),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
_DECODERS: dict[str, Callable[[NDArray[np.uint8]], Float64]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


# --- the forward pass ---------------------------------------------------------------------------------------------------------------


def embed(weight: Float64, tokens: ArrayLike) -> Float64:
    """Rows of ``weight`` (vocab, hidden) for ``tokens`` (rows,)."""
    return np.asarray(weight[np.asarray(tokens, dtype=np.int64)])


def rmsnorm(x: Float64, weight: Float64, eps: float) -> Float64:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last axis (Zhang and Sennrich, 2019)."""
    return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight)


def matmul(x: Float64, weight: Float64) -> Float64:
    """``x`` (rows, k) times the transpose of ``weight`` (n, k): (rows, n)."""
    return np.asarray(x @ weight.T)


def row_grid_matmul(x: Float64, integers: ArrayLike, scales: ArrayLike) -> Float64:
    """``x`` (rows, k) times weights on one grid a row: ``integers`` (n, k) times ``scales`` (n,), which R8 and R4 hold."""
    return matmul(x, np.asarray(integers, dtype=np.float64) * np.asarray(scales, dtype=np.float64)[:, None])


def add_bias(x: Float64, biases: Sequence[Float64]) -> Float64:
    """``x`` (rows, width) plus the concatenated ``biases``, (width,) together."""
    return np.asarray(x + np.concatenate(biases))


def rope_angles(positions: ArrayLike, rotary_dim: int, theta: float, factors: ArrayLike = ()) -> Float64:
    """Angles (rows, rotary_dim / 2): position times ``theta ** (-2 i / rotary_dim)`` (Su et al., 2021), over factor i if there are any."""
    inverse = theta ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    if np.size(factors):
        inverse = inverse / np.asarray(factors, dtype=np.float64)
    return np.asarray(positions, dtype=np.float64)[:, None] * inverse


def rope(
    x: Float64,
    positions: ArrayLike,
    *,
    rotary_dim: int,
    theta: float,
    style: Literal["interleaved", "halves"],
    factors: ArrayLike = (),
) -> Float64:
    """Rotates ``x`` (rows, heads, head_dim); dimensions past ``rotary_dim`` stay.

    ``interleaved`` pairs dimensions (2i, 2i + 1), ``halves`` pairs (i, i + rotary_dim / 2).
    """
    angles = rope_angles(positions, rotary_dim, theta, factors)[:, None, :]  # (rows, 1, pairs)
    cos, sin = np.cos(angles), np.sin(angles)
    half = rotary_dim // 2
    first = slice(0, rotary_dim, 2) if style == "interleaved" else slice(0, half)
    second = slice(1, rotary_dim, 2) if style == "interleaved" else slice(half, rotary_dim)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def attention(q: Float64, keys: Float64, values: Float64, positions: ArrayLike, scale: float, window: int | None = None) -> Float64:
    """Causal grouped-query attention.

    Args:
        q: (rows, heads, head_dim).
        keys, values: (length, kv_heads, head_dim); query head h reads key-value head ``h // (heads / kv_heads)``.
        positions: (rows,) row r sees keys 0..positions[r].
        scale: multiplies the scores.
        window: row r sees at most this many keys, those up to its own position; None: all of them.

    Returns:
        (rows, heads, head_dim).
    """
    rows, heads, head_dim = q.shape
    length, kv_heads, _ = keys.shape
    grouped = q.reshape(rows, kv_heads, heads // kv_heads, head_dim)
    scores = np.einsum("rghd,lgd->rghl", grouped, keys, optimize=True) * scale
    behind = np.asarray(positions, dtype=np.int64)[:, None] - np.arange(length)[None, :]  # keys after a row's position are below 0
    hidden = behind < 0 if window is None else (behind < 0) | (behind >= window)
    scores[np.broadcast_to(hidden[:, None, None, :], scores.shape)] = -np.inf
    weights = softmax(scores)
    out = np.einsum("rghl,lgd->rghd", weights, values, optimize=True)
    return np.asarray(out).reshape(rows, heads, head_dim)


def cached_keys(x: ArrayLike, bits: int) -> Float64:
    """What a cache of ``bits`` keeps of the keys ``x`` (count, head_dim): at 8 bits every 32 dimensions have a scale of their own."""
    keys = np.asarray(x, dtype=np.float32)
    width = keys.shape[1] if bits == 16 else SMALL_KEY_GROUP
    return np.concatenate([cached(keys[:, at : at + width], bits) for at in range(0, keys.shape[1], width)], axis=1)


def cached(x: ArrayLike, bits: int) -> Float64:
    """What a cache of ``bits`` (16 or 8) with one scale per vector keeps of the vectors ``x`` (count, head_dim): of values, and of keys
    at 16 bits.

    Which integer is nearest is part of the definition, so the scaling is in float32 as in the kernels; the result is exact.
    """
    vectors = np.asarray(x, dtype=np.float32)
    most = np.float32(2 ** (bits - 1) - 1)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    integers = np.rint(vectors * (most / np.where(largest == 0, np.float32(1), largest)))
    return np.asarray(integers.astype(np.float64) * (largest / most).astype(np.float64))


def silu(x: Float64) -> Float64:
    """``x * sigmoid(x)`` without overflow for large negative x."""
    exp = np.exp(-np.abs(x))
    return np.asarray(x * np.where(x >= 0, 1.0, exp) / (1.0 + exp))


def gelu_tanh(x: Float64) -> Float64:
    """``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`` (Hendrycks and Gimpel, 2016)."""
    return np.asarray(x / 2 * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def gated_activation(kind: Activation, gate: Float64, up: Float64) -> Float64:
    return np.asarray({"silu": silu, "gelu_tanh": gelu_tanh}[kind](gate) * up)


# --- probabilities and sampling -----------------------------------------------------------------------------------------------------


def softmax(x: Float64) -> Float64:
    """Over the last axis; entries of -infinity get exactly 0."""
    exp = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return np.asarray(exp / np.sum(exp, axis=-1, keepdims=True))


def log_softmax(x: Float64) -> Float64:
    """Natural logarithm of :func:`softmax` over the last axis."""
    shifted = x - np.max(x, axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True)))


def gumbel(uniform: Float64) -> Float64:
    """Standard Gumbel noise from uniforms strictly between 0 and 1."""
    return np.asarray(-np.log(-np.log(uniform)))


def gumbel_argmax(logits: Float64, temperature: float, uniform: Float64) -> int:
    """The sampled token: argmax(logits / temperature + Gumbel noise), ties to the lowest id; temperature 0 is greedy.

    With independent uniforms the token is distributed as softmax(logits / temperature) (Gumbel, 1954; Maddison et al., 2014).
    """
    if temperature == 0.0:
        return int(np.argmax(logits))
    return int(np.argmax(logits / temperature + gumbel(uniform)))


# --- distances ----------------------------------------------------------------------------------------------------------------------


def relative_l2(measured: ArrayLike, truth: ArrayLike) -> float:
    """``|measured - truth| / |truth|`` over all entries."""
    exact = np.asarray(truth, dtype=np.float64)
    return float(np.linalg.norm(np.asarray(measured, dtype=np.float64) - exact) / np.linalg.norm(exact))


def kl_divergence(p_logits: ArrayLike, q_logits: ArrayLike) -> Float64:
    """KL(softmax(p) || softmax(q)) in nats, one value per row."""
    log_p = log_softmax(np.asarray(p_logits, dtype=np.float64))
    log_q = log_softmax(np.asarray(q_logits, dtype=np.float64))
    return np.asarray(np.sum(np.exp(log_p) * (log_p - log_q), axis=-1))
