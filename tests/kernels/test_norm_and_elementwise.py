"""RMS normalization and SiLU gating: every instruction set gives the portable bits, and those are close to the float64 twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import _core, reference, supported_isas

EPSILON = float(np.finfo(np.float32).eps)
isas = pytest.mark.parametrize("isa", supported_isas())


def vectors(seed: int, width: int, count: int, spread: float = 1.0) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(width) * 10.0 ** rng.uniform(-spread, spread, width)).astype(np.float32) for _ in range(count)]


@isas
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 700), eps=st.sampled_from([0.0, 1e-6, 1e-5, 1e-2]))
@settings(max_examples=60, deadline=None)
def test_rmsnorm_of_any_width_gives_portable_bits_close_to_the_twin(isa: str, seed: int, width: int, eps: float) -> None:
    x, weight = vectors(seed, width, 2)
    out = _core.rmsnorm(isa, x, weight, eps)
    assert out.tobytes() == _core.rmsnorm("portable", x, weight, eps).tobytes()
    truth = reference.rmsnorm(x.astype(np.float64), weight.astype(np.float64), float(np.float32(eps)))
    # A sum of ceil(width / 16) + 4 roundings, halved by the root, and four more.
    np.testing.assert_allclose(out, truth, rtol=EPSILON * (width / 32 + 6), atol=0)


@isas
def test_rmsnorm_reads_nothing_past_the_end_of_a_row(isa: str) -> None:
    row = np.full(64, np.nan, dtype=np.float32)
    row[:19] = np.arange(1, 20, dtype=np.float32)
    weight = np.ones(19, dtype=np.float32)
    assert np.isfinite(_core.rmsnorm(isa, row[:19], weight, 1e-5)).all()


@isas
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_silu_mul_gives_portable_bits_close_to_the_twin(isa: str, seed: int, width: int) -> None:
    gate, up = vectors(seed, width, 2)
    out = _core.silu_mul(isa, gate, up)
    assert out.tobytes() == _core.silu_mul("portable", gate, up).tobytes()
    truth = reference.silu_mul(gate.astype(np.float64), up.astype(np.float64))
    np.testing.assert_allclose(out, truth, rtol=6 * EPSILON, atol=1e-34 * float(np.abs(up).max()))


@isas
def test_silu_of_extreme_gates_is_finite_and_right(isa: str) -> None:
    gate = np.array([-np.inf, -3e38, -1000.0, -88.0, -87.0, -0.0, 0.0, 87.0, 88.5, 3e38], dtype=np.float32)
    out = _core.silu_mul(isa, gate, np.ones_like(gate))
    assert np.all(out[:4] == 0.0)
    assert out[4] == pytest.approx(-87.0 * np.exp(-87.0), rel=1e-6)
    assert out[5] == 0.0
    assert out[6] == 0.0
    np.testing.assert_array_equal(out[7:], gate[7:])
    assert np.isnan(_core.silu_mul(isa, np.array([np.nan], dtype=np.float32), np.ones(1, dtype=np.float32))[0])


@isas
def test_exponential_is_within_one_ulp_where_silu_shows_it(isa: str) -> None:
    """For g < -20, 1 + e^g rounds to 1, so silu(g) = g e^g with one rounding more than e^g has."""
    gate = np.linspace(-86.9, -20.0, 200_000).astype(np.float32)
    out = _core.silu_mul(isa, gate, np.ones_like(gate)).astype(np.float64)
    truth = gate.astype(np.float64) * np.exp(gate.astype(np.float64))
    ulps = np.abs(out - truth) / np.spacing(np.abs(truth).astype(np.float32)).astype(np.float64)
    assert ulps.max() < 2.1


def test_operands_of_different_widths_are_refused_with_both_named() -> None:
    with pytest.raises(ValueError, match=r"one width: got 3 and 4"):
        _core.rmsnorm("portable", np.zeros(3, dtype=np.float32), np.zeros(4, dtype=np.float32), 1e-5)
    with pytest.raises(ValueError, match=r"isa must be one of .*portable on this machine, got 'sse9'"):
        _core.silu_mul("sse9", np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32))
