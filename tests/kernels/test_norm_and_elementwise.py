"""RMS normalization and gated activations: every instruction set gives the portable bits, and those are close to the float64 twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import KVCache, PackedMatrix, Program, _core, reference, supported_isas

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
def test_gating_by_silu_gives_portable_bits_close_to_the_twin(isa: str, seed: int, width: int) -> None:
    gate, up = vectors(seed, width, 2)
    out = _core.gated_activation(isa, "silu", gate, up)
    assert out.tobytes() == _core.gated_activation("portable", "silu", gate, up).tobytes()
    truth = reference.gated_activation("silu", gate.astype(np.float64), up.astype(np.float64))
    np.testing.assert_allclose(out, truth, rtol=6 * EPSILON, atol=1e-34 * float(np.abs(up).max()))


@isas
def test_silu_of_extreme_gates_is_finite_and_right(isa: str) -> None:
    gate = np.array([-np.inf, -3e38, -1000.0, -88.0, -87.0, -0.0, 0.0, 87.0, 88.5, 3e38], dtype=np.float32)
    out = _core.gated_activation(isa, "silu", gate, np.ones_like(gate))
    assert np.all(out[:4] == 0.0)
    assert out[4] == pytest.approx(-87.0 * np.exp(-87.0), rel=1e-6)
    assert out[5] == 0.0
    assert out[6] == 0.0
    np.testing.assert_array_equal(out[7:], gate[7:])
    assert np.isnan(_core.gated_activation(isa, "silu", np.array([np.nan], dtype=np.float32), np.ones(1, dtype=np.float32))[0])


@isas
def test_exponential_is_within_one_ulp_where_silu_shows_it(isa: str) -> None:
    """For g < -20, 1 + e^g rounds to 1, so silu(g) = g e^g with one rounding more than e^g has."""
    gate = np.linspace(-86.9, -20.0, 200_000).astype(np.float32)
    out = _core.gated_activation(isa, "silu", gate, np.ones_like(gate)).astype(np.float64)
    truth = gate.astype(np.float64) * np.exp(gate.astype(np.float64))
    ulps = np.abs(out - truth) / np.spacing(np.abs(truth).astype(np.float32)).astype(np.float64)
    assert ulps.max() < 2.1


@isas
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 400))
@settings(max_examples=60, deadline=None)
def test_gating_by_gelu_gives_portable_bits_close_to_the_twin(isa: str, seed: int, width: int) -> None:
    gate, up = vectors(seed, width, 2)
    out = _core.gated_activation(isa, "gelu_tanh", gate, up)
    assert out.tobytes() == _core.gated_activation("portable", "gelu_tanh", gate, up).tobytes()
    # e^-|z| magnifies the rounding of z, twice the argument of tanh, by its size; far below 0 the twin's 1 + tanh is a rounded 0.
    g = gate.astype(np.float64)
    z = np.minimum(np.abs(2 * np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)), 90.0)
    truth = reference.gated_activation("gelu_tanh", g, up.astype(np.float64))
    allowed = EPSILON * (6 + 4 * z) * np.abs(truth) + 4e-16 * np.abs(g * up)
    assert (np.abs(out - truth) <= allowed).all()


@isas
def test_gelu_of_extreme_gates_is_finite_and_right(isa: str) -> None:
    gate = np.array([-np.inf, -3e38, -1e19, -1000.0, -20.0, -0.0, 0.0, 20.0, 1e19, 3e38], dtype=np.float32)
    out = _core.gated_activation(isa, "gelu_tanh", gate, np.ones_like(gate))
    assert np.all(out[:7] == 0.0)
    np.testing.assert_array_equal(out[7:], gate[7:])
    assert np.isnan(_core.gated_activation(isa, "gelu_tanh", np.array([np.nan], dtype=np.float32), np.ones(1, dtype=np.float32))[0])


@isas
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 200), threads=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_norm_that_accumulates_adds_the_plain_one_with_one_rounding(isa: str, seed: int, width: int, threads: int) -> None:
    """Rows of an embedding are looked up and scaled; their norm is added to what is there."""
    table, weight = np.stack(vectors(seed, width, 5)), vectors(seed + 1, width, 1)[0]
    scale = np.float32(np.sqrt(640))
    program = Program(isa, threads, 5, 5, KVCache(1, 1, 16, 32, 1))
    for name, columns in (("x", width), ("residual", width), ("last", width), ("logits", 5)):
        program.buffer(name, columns)
    matrix = PackedMatrix("F32", 5, width)
    matrix.pack_rows(0, 5, table.reshape(-1).view(np.uint8))
    program.embed(matrix, "x", float(scale))
    program.embed(matrix, "residual")
    program.rmsnorm("x", weight, "residual", 1e-6, True)
    program.select_rows("residual", "last")
    program.matmul("last", [matrix], "logits", False)
    rows = np.arange(5, dtype=np.int32)
    program.run(rows, rows, np.zeros_like(rows), np.zeros((1, 1), np.int32), rows)
    normed = np.stack([_core.rmsnorm("portable", row * scale, weight, 1e-6) for row in table])
    np.testing.assert_array_equal(program.selected_rows("last"), table + normed)


def test_operands_of_different_widths_are_refused_with_both_named() -> None:
    with pytest.raises(ValueError, match=r"one width: got 3 and 4"):
        _core.rmsnorm("portable", np.zeros(3, dtype=np.float32), np.zeros(4, dtype=np.float32), 1e-5)
    with pytest.raises(ValueError, match=r"isa must be one of .*portable on this machine, got 'sse9'"):
        _core.gated_activation("sse9", "silu", np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32))
    with pytest.raises(ValueError, match="activation must be silu or gelu_tanh, got 'relu'"):
        _core.gated_activation("portable", "relu", np.zeros(1, dtype=np.float32), np.zeros(1, dtype=np.float32))
