"""Attention over int16 keys and values: bits of the portable path, distance to the float64 twin, and what may not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import _core, reference, supported_isas

isas = pytest.mark.parametrize("isa", supported_isas())
Floats = NDArray[np.float32]


def inputs(seed: int, heads: int, head_dim: int, length: int, sharpness: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """Queries (heads, head_dim), already scaled; keys and values (length, head_dim) with outliers as real ones have."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, head_dim)) * sharpness / np.sqrt(head_dim)
    keys = rng.standard_t(4, (length, head_dim))
    values = rng.standard_t(4, (length, head_dim))
    return q.astype(np.float32), keys.astype(np.float32), values.astype(np.float32)


def int16_rows(x: Floats) -> NDArray[np.float64]:
    """The values that a cache of int16 with one scale per row stands for, rounded as the kernels round: in float32, ties to even."""
    largest = np.abs(x).max(axis=1, keepdims=True)
    safe = np.where(largest == 0, np.float32(1), largest)
    quantized = np.rint(x * (np.float32(32767) / safe))
    return np.asarray(quantized.astype(np.float64) * (largest / np.float32(32767)).astype(np.float64))


def truth_of(q: Floats, keys: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return reference.attention(q[None].astype(np.float64), keys[:, None], values[:, None], [len(keys) - 1], 1.0)[0]


@isas
@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.integers(1, 9),
    head_dim=st.sampled_from([16, 32, 48, 64, 80, 128, 256]),
    length=st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 511, 600])),
    block_size=st.sampled_from([16, 32, 64, 256]),
    sharpness=st.sampled_from([0.1, 1.0, 30.0]),
)
@settings(max_examples=25, deadline=None)
def test_any_shape_gives_portable_bits_close_to_the_twin(
    isa: str, seed: int, heads: int, head_dim: int, length: int, block_size: int, sharpness: float
) -> None:
    q, keys, values = inputs(seed, heads, head_dim, length, sharpness)
    out = _core.attention(isa, q, keys, values, block_size)
    assert out.tobytes() == _core.attention("portable", q, keys, values, block_size).tobytes()
    # Against the cached values themselves only float32 arithmetic is left: e^score magnifies a score's rounding by its size.
    largest = float(np.abs(values).max())
    score = float(np.abs(q.astype(np.float64) @ keys.T.astype(np.float64)).max())
    np.testing.assert_allclose(out, truth_of(q, int16_rows(keys), int16_rows(values)), rtol=0, atol=largest * 6e-6 * (4 + score))


@pytest.mark.parametrize("head_dim", [64, 128])
def test_int16_keys_and_values_cost_less_than_float16_would(head_dim: int) -> None:
    q, keys, values = inputs(7, 8, head_dim, 500, sharpness=4.0)
    truth = truth_of(q, keys.astype(np.float64), values.astype(np.float64))
    half = truth_of(q, keys.astype(np.float16).astype(np.float64), values.astype(np.float16).astype(np.float64))
    ours = _core.attention("portable", q, keys, values, 32)
    assert reference.relative_l2(ours, truth) < 0.5 * reference.relative_l2(half, truth)


@isas
def test_block_size_and_neighbouring_heads_change_no_bit(isa: str) -> None:
    q, keys, values = inputs(3, 7, 64, 300)
    whole = _core.attention(isa, q, keys, values, 32)
    assert _core.attention(isa, q, keys, values, 128).tobytes() == whole.tobytes()
    for head in range(7):
        assert _core.attention(isa, q[head : head + 1], keys, values, 32).tobytes() == whole[head : head + 1].tobytes()


@isas
def test_a_key_far_below_the_best_adds_exactly_nothing(isa: str) -> None:
    q, keys, values = inputs(5, 3, 64, 40)
    keys[20] = -q[0] * 4000.0
    changed = values.copy()
    changed[20] *= -3.0
    first = _core.attention(isa, q[:1], keys, values, 32)
    assert first.tobytes() == _core.attention(isa, q[:1], keys, changed, 32).tobytes()


@isas
def test_zero_vectors_are_cached_as_zeros(isa: str) -> None:
    q, keys, values = inputs(6, 2, 32, 33)
    keys[:] = 0.0
    values[1:] = 0.0
    out = _core.attention(isa, q, keys, values, 32)
    np.testing.assert_allclose(out, np.tile(int16_rows(values)[:1] / 33, (2, 1)), rtol=1e-5, atol=0)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    q, keys, values = inputs(0, 2, 32, 5)
    with pytest.raises(ValueError, match="a value per key: got 5 and 4"):
        _core.attention("portable", q, keys, values[:4], 32)
    with pytest.raises(ValueError, match="head_dim must be a multiple of 16 from 16 to 256, got 24"):
        _core.attention("portable", q[:, :24].copy(), keys[:, :24].copy(), values[:, :24].copy(), 32)
    with pytest.raises(ValueError, match="block_size must be 16, 32, 64, 128 or 256, got 48"):
        _core.attention("portable", q, keys, values, 48)


@isas
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "keys", "values"])
def test_whoever_attends_to_what_is_not_finite_becomes_nan(isa: str, bad: float, where: str) -> None:
    q, keys, values = inputs(5, 4, 32, 300)
    {"q": q, "keys": keys, "values": values}[where][2, 7] = bad
    out = _core.attention(isa, q, keys, values, 32)
    hidden = slice(2, 3) if where == "q" else slice(None)  # a query's fault is its own head's
    assert np.isnan(out[hidden]).all()
    assert np.isnan(out).sum() == out[hidden].size
