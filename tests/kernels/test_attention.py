"""Attention over int16 and int8 keys and values: bits of the portable path, distance to the float64 twin, and what may not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import _core, reference, supported_isas

isas = pytest.mark.parametrize("isa", supported_isas())
kv_bits = pytest.mark.parametrize("kv_bits", [16, 8])
Floats = NDArray[np.float32]


def inputs(seed: int, heads: int, head_dim: int, length: int, sharpness: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """Queries (heads, head_dim), already scaled; keys and values (length, head_dim) with outliers as real ones have."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, head_dim)) * sharpness / np.sqrt(head_dim)
    keys = rng.standard_t(4, (length, head_dim))
    values = rng.standard_t(4, (length, head_dim))
    return q.astype(np.float32), keys.astype(np.float32), values.astype(np.float32)


def truth_of(q: Floats, keys: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return reference.attention(q[None].astype(np.float64), keys[:, None], values[:, None], [len(keys) - 1], 1.0)[0]


@isas
@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.integers(1, 26),
    head_dim=st.sampled_from([16, 32, 48, 64, 80, 128, 256]),
    length=st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 511, 600])),
    block_size=st.sampled_from([16, 32, 64, 256]),
    sharpness=st.sampled_from([0.1, 1.0, 30.0]),
    kv_bits=st.sampled_from([16, 8]),
)
@settings(max_examples=40, deadline=None)
def test_any_shape_gives_portable_bits_close_to_the_twin(
    isa: str, seed: int, heads: int, head_dim: int, length: int, block_size: int, sharpness: float, kv_bits: int
) -> None:
    q, keys, values = inputs(seed, heads, head_dim, length, sharpness)
    out = _core.attention(isa, q, keys, values, block_size, kv_bits)
    assert out.tobytes() == _core.attention("portable", q, keys, values, block_size, kv_bits).tobytes()
    # Against the cached values themselves only float32 arithmetic is left: e^score magnifies a score's rounding by its size.
    largest = float(np.abs(values).max())
    score = float(np.abs(q.astype(np.float64) @ keys.T.astype(np.float64)).max())
    truth = truth_of(q, reference.cached_keys(keys, kv_bits), reference.cached(values, kv_bits))
    np.testing.assert_allclose(out, truth, rtol=0, atol=largest * 6e-6 * (4 + score))


@pytest.mark.parametrize("head_dim", [64, 128])
def test_int16_keys_and_values_cost_less_than_float16_would(head_dim: int) -> None:
    q, keys, values = inputs(7, 8, head_dim, 500, sharpness=4.0)
    truth = truth_of(q, keys.astype(np.float64), values.astype(np.float64))
    half = truth_of(q, keys.astype(np.float16).astype(np.float64), values.astype(np.float16).astype(np.float64))
    ours = _core.attention("portable", q, keys, values, 32)
    assert reference.relative_l2(ours, truth) < 0.5 * reference.relative_l2(half, truth)


@isas
@kv_bits
@pytest.mark.parametrize("heads", [7, 13])
def test_block_size_and_neighbouring_heads_change_no_bit(isa: str, kv_bits: int, heads: int) -> None:
    q, keys, values = inputs(3, heads, 64, 300)
    whole = _core.attention(isa, q, keys, values, 32, kv_bits)
    assert _core.attention(isa, q, keys, values, 128, kv_bits).tobytes() == whole.tobytes()
    for head in range(heads):
        assert _core.attention(isa, q[head : head + 1], keys, values, 32, kv_bits).tobytes() == whole[head : head + 1].tobytes()


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
    np.testing.assert_allclose(out, np.tile(reference.cached(values, 16)[:1] / 33, (2, 1)), rtol=1e-5, atol=0)


def test_int8_keys_and_values_move_outputs_by_a_few_hundredths() -> None:
    q, keys, values = inputs(7, 8, 64, 500)
    truth = truth_of(q, keys.astype(np.float64), values.astype(np.float64))
    distance = {bits: reference.relative_l2(_core.attention("portable", q, keys, values, 32, bits), truth) for bits in (16, 8)}
    assert 20 * distance[16] < distance[8] < 0.05


def test_int8_keys_keep_what_a_few_large_dimensions_would_drown() -> None:
    """As norms of heads leave them: in one scale for the whole vector, the rest would have a handful of levels."""
    q, keys, values = inputs(9, 8, 256, 500)
    keys[:, [3, 131]] *= 40.0
    q[:, [3, 131]] /= 40.0
    truth = truth_of(q, keys.astype(np.float64), values.astype(np.float64))
    one_scale = truth_of(q, reference.cached(keys, 8), values.astype(np.float64))
    ours = _core.attention("portable", q, keys, values, 32, 8)
    assert reference.relative_l2(ours, truth) < 0.5 * reference.relative_l2(one_scale, truth)


def test_shapes_that_do_not_belong_together_are_refused() -> None:
    q, keys, values = inputs(0, 2, 32, 5)
    with pytest.raises(ValueError, match="a value per key: got 5 and 4"):
        _core.attention("portable", q, keys, values[:4], 32)
    with pytest.raises(ValueError, match="head_dim must be a multiple of 16 from 16 to 256, got 24"):
        _core.attention("portable", q[:, :24].copy(), keys[:, :24].copy(), values[:, :24].copy(), 32)
    with pytest.raises(ValueError, match="block_size must be 16, 32, 64, 128 or 256, got 48"):
        _core.attention("portable", q, keys, values, 48)
    with pytest.raises(ValueError, match="bits of keys and values must be 16 or 8, got 4"):
        _core.attention("portable", q, keys, values, 32, 4)


@isas
@kv_bits
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["q", "keys", "values"])
def test_whoever_attends_to_what_is_not_finite_becomes_nan(isa: str, kv_bits: int, bad: float, where: str) -> None:
    q, keys, values = inputs(5, 4, 32, 300)
    {"q": q, "keys": keys, "values": values}[where][2, 7] = bad
    out = _core.attention(isa, q, keys, values, 32, kv_bits)
    hidden = slice(2, 3) if where == "q" else slice(None)  # a query's fault is its own head's
    assert np.isnan(out[hidden]).all()
    assert np.isnan(out).sum() == out[hidden].size
