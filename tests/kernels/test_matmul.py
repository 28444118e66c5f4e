"""Matmuls: the numerics id's chain of operations to the last bit, on every instruction set, for any rows and strips."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from weight_bytes import FLOAT_EXTREMES, FLOATS, QUANTIZED, SUPER, TYPES, columns, weight_bytes

from swiftsure.kernels import PackedMatrix, _core, reference, supported_isas

MAX_Q = 32639
WITH_MINIMA = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
Float32 = NDArray[np.float32]


def packed(tensor_type: str, n: int, k: int, file_bytes: NDArray[np.uint8]) -> PackedMatrix:
    matrix = PackedMatrix(tensor_type, n, k)
    matrix.pack_rows(0, n, file_bytes)
    return matrix


def product(isa: str, matrix: PackedMatrix, x: Float32) -> Float32:
    out = np.full((len(x), matrix.n), np.float32(77))
    _core.matmul(isa, matrix, x, 0, matrix.strips, False, out)
    return out


def bits(values: Float32) -> NDArray[np.uint32]:
    return values.view(np.uint32)


def activations(rng: np.random.Generator, rows: int, k: int, kind: str) -> Float32:
    x = rng.normal(0, 1, (rows, k)).astype(np.float32)
    if kind == "outliers":
        x[rng.random((rows, k)) < 0.02] *= 1000
    elif kind == "scaled":
        x *= np.exp2(rng.integers(-140, 120, (rows, 1))).astype(np.float32)
    elif kind == "full scale":
        x = np.sign(x) * np.float32(2.5)
    elif kind == "special":
        special = rng.random((rows, k)) < 0.1
        x[special] = rng.choice(FLOAT_EXTREMES, int(special.sum()))
    return x


KINDS = st.sampled_from(["normal", "outliers", "scaled", "full scale", "special"])
SEEDS = st.integers(0, 2**32 - 1)


# --- quantized activations ----------------------------------------------------------------------------------------------------------


def quantized_by_numpy(x: Float32) -> tuple[NDArray[np.int64], Float32]:
    """The rule of the numerics id, one float32 operation at a time: q (rows, groups, 32) and scale (rows, groups)."""
    groups = x.reshape(len(x), -1, 32)
    amax = np.abs(groups).max(axis=-1)
    with np.errstate(all="ignore"):
        inverse = np.float32(MAX_Q) / amax
        q = np.clip(np.rint(groups * inverse[..., None]), -MAX_Q, MAX_Q)
        scale = amax / np.float32(MAX_Q)
    finite = np.isfinite(amax)
    live = finite & (amax >= np.float32(1e-30))
    q = np.where(live[..., None], q, 0).astype(np.int64)
    return q, np.where(live, scale, np.where(finite, np.float32(0), np.float32(np.nan)))


@given(rows=st.integers(1, 5), groups=st.integers(1, 8), seed=SEEDS, kind=KINDS)
@settings(max_examples=60, deadline=None)
def test_quantized_rows_follow_the_rule_on_every_instruction_set(rows: int, groups: int, seed: int, kind: str) -> None:
    x = activations(np.random.default_rng(seed), rows, 32 * groups, kind)
    q, scale = quantized_by_numpy(x)
    for isa in supported_isas():
        got_q, got_scale, got_sum = _core.quantize(isa, x)
        np.testing.assert_array_equal(got_q, q.reshape(x.shape), err_msg=isa)
        np.testing.assert_array_equal(got_scale, scale, err_msg=isa)
        np.testing.assert_array_equal(got_sum, q.sum(axis=-1), err_msg=isa)


def test_quantizing_misses_by_at_most_half_a_step() -> None:
    x = activations(np.random.default_rng(6), 20, 320, "outliers")
    q, scale, _ = _core.quantize(supported_isas()[0], x)
    step = np.repeat(scale, 32, axis=-1).astype(np.float64)
    assert np.all(np.abs(q * step - x) <= step * 0.505)  # 0.005: the float32 rounding of x / scale near 2^15


@pytest.mark.parametrize("value", [0.0, -0.0, 9.9e-31, -1e-40])
def test_a_group_too_small_to_scale_is_zero(value: float) -> None:
    x = np.full((1, 32), value, np.float32)
    for isa in supported_isas():
        q, scale, total = _core.quantize(isa, x)
        assert not q.any()
        assert scale.tolist() == [[0.0]]
        assert total.tolist() == [[0]]


# --- the chain of operations --------------------------------------------------------------------------------------------------------


def rounded(exact: Fraction) -> np.float32:
    """The float32 nearest to an exact value, ties to even."""
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(near, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1))


def fma(a: float, b: float, c: np.float32) -> np.float32:
    return rounded(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def file_integers(tensor_type: str, file_bytes: NDArray[np.uint8], n: int, k: int) -> tuple[NDArray[np.int64], Float32, Float32]:
    """Integers (n, groups, 32), scales of columns 0..15 and 16..31 (n, groups, 2) and minima (n, groups) of a block tensor."""
    if tensor_type in SUPER:
        return super_integers(tensor_type, file_bytes, n, k)
    blocks = file_bytes.reshape(n, k // 32, -1)
    halves = np.ascontiguousarray(blocks[..., :4]).view("<f2").astype(np.float32)
    scales, none = halves[..., :1].repeat(2, axis=-1), np.zeros_like(halves[..., 0])
    if tensor_type == "Q8_0":
        return blocks[..., 2:].view(np.int8).astype(np.int64), scales, none
    nibbles = blocks[..., -16:]
    integers = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).astype(np.int64)
    if tensor_type.startswith("Q5"):
        integers += 16 * np.unpackbits(np.ascontiguousarray(blocks[..., -20:-16]), axis=-1, bitorder="little").astype(np.int64)
    if tensor_type in ("Q4_0", "Q5_0"):
        return integers - (8 if tensor_type == "Q4_0" else 16), scales, none
    return integers, scales, halves[..., 1]


def super_integers(tensor_type: str, file_bytes: NDArray[np.uint8], n: int, k: int) -> tuple[NDArray[np.int64], Float32, Float32]:
    """The same of a super-block tensor. The integers are its values with all scales 1 and no minima."""
    blocks = file_bytes.reshape(n, k // 256, -1)
    bare = blocks.copy()
    one, zero = np.array([1, 0], "<f2").view(np.uint8).reshape(2, 2)
    if tensor_type == "Q6_K":
        bare[..., 192:208], bare[..., 208:] = 1, one
    else:
        bare[..., :2], bare[..., 2:4], bare[..., 4:16] = one, zero, [1] * 4 + [0] * 4 + [1] * 4
    integers = reference.dequantize(tensor_type, bare.reshape(-1), (n, k)).astype(np.int64).reshape(n, -1, 32)
    if tensor_type == "Q6_K":
        d = np.ascontiguousarray(blocks[..., 208:]).view("<f2").astype(np.float32)
        scales = d * blocks[..., 192:208].view(np.int8).astype(np.float32)
        return integers, scales.reshape(n, -1, 2), np.zeros((n, k // 32), np.float32)
    d, dmin = np.moveaxis(np.ascontiguousarray(blocks[..., :4]).view("<f2").astype(np.float32), -1, 0)
    scale, minimum = (part.reshape(n, -1).astype(np.float32) for part in gguf.quants.Q4_K.get_scale_min(blocks[..., 4:16].reshape(-1, 12)))
    scales = d.repeat(8, axis=1) * scale
    return integers, scales[..., None].repeat(2, axis=-1), -(dmin.repeat(8, axis=1) * minimum)


@given(tensor_type=st.sampled_from(QUANTIZED), groups=st.integers(1, 4), seed=SEEDS, extreme=st.booleans())
@settings(max_examples=40, deadline=None)
def test_an_element_is_the_chain_that_the_numerics_id_names(tensor_type: str, groups: int, seed: int, extreme: bool) -> None:
    rng = np.random.default_rng(seed)
    n, k = 3, columns(tensor_type, groups)
    file_bytes = weight_bytes(tensor_type, n, k, rng, extreme_integers=extreme)
    x = activations(rng, 2, k, "full scale" if extreme else "outliers")
    q, scale, total = _core.quantize("portable", x)
    w, d, m = file_integers(tensor_type, file_bytes, n, k)
    out = product("portable", packed(tensor_type, n, k, file_bytes), x)
    for row in range(2):
        for column in range(n):
            acc = np.float32(0)
            for g in range(k // 32):
                if tensor_type in WITH_MINIMA:
                    acc = fma(m[column, g], scale[row, g] * np.float32(total[row, g]), acc)
                width = 16 if tensor_type == "Q6_K" else 32
                for c in range(0, 32, width):
                    integer_sum = int(np.dot(q[row, 32 * g + c : 32 * g + c + width].astype(np.int64), w[column, g, c : c + width]))
                    acc = fma(np.float32(integer_sum), d[column, g, c // 16] * scale[row, g], acc)
            assert bits(out[row, column]) == bits(acc)


@given(tensor_type=st.sampled_from(FLOATS), k=st.integers(1, 40), seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_a_float_element_is_one_chain_of_fused_multiplications(tensor_type: str, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    file_bytes = weight_bytes(tensor_type, 2, k, rng)
    x = activations(rng, 1, k, "normal")
    weights = reference.dequantize(tensor_type, file_bytes, (2, k))
    out = product("portable", packed(tensor_type, 2, k, file_bytes), x)
    for column in range(2):
        acc = np.float32(0)
        for c in range(k):
            acc = fma(weights[column, c], x[0, c], acc)
        assert bits(out[0, column]) == bits(acc)


# --- the same bits, whoever computes them -------------------------------------------------------------------------------------------


@given(
    tensor_type=st.sampled_from(TYPES),
    n=st.integers(1, 70),
    groups=st.integers(1, 5),
    rows=st.integers(1, 40),
    kind=KINDS,
    seed=SEEDS,
    extreme_integers=st.booleans(),
    extreme_floats=st.booleans(),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_bits_do_not_depend_on_instruction_set_rows_or_strips(
    tensor_type: str,
    n: int,
    groups: int,
    rows: int,
    kind: str,
    seed: int,
    extreme_integers: bool,
    extreme_floats: bool,
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(seed)
    k = columns(tensor_type, groups)
    file_bytes = weight_bytes(tensor_type, n, k, rng, extreme_integers=extreme_integers, extreme_floats=extreme_floats)
    matrix = packed(tensor_type, n, k, file_bytes)
    x = activations(rng, rows, k, kind)
    row_by_row = np.concatenate([product("portable", matrix, x[r : r + 1]) for r in range(rows)])
    row_cuts = sorted({0, rows, *data.draw(st.lists(st.integers(0, rows), max_size=4))})
    strip_cuts = sorted({0, matrix.strips, *data.draw(st.lists(st.integers(0, matrix.strips), max_size=4))})
    for isa in supported_isas():
        assert np.array_equal(bits(product(isa, matrix, x)), bits(row_by_row)), isa
        out = np.zeros((rows, n), np.float32)
        for first, last in pairwise(row_cuts):
            for begin, end in pairwise(strip_cuts):
                _core.matmul(isa, matrix, x[first:last], begin, end, False, out[first:last])
        assert np.array_equal(bits(out), bits(row_by_row)), isa


@pytest.mark.parametrize("tensor_type", TYPES)
def test_one_to_seventeen_rows_have_the_bits_of_each_row_alone(tensor_type: str) -> None:
    rng = np.random.default_rng(10)
    k = columns(tensor_type, 12)
    matrix = packed(tensor_type, 35, k, weight_bytes(tensor_type, 35, k, rng))
    x = activations(rng, 17, k, "outliers")
    alone = np.concatenate([product("portable", matrix, x[r : r + 1]) for r in range(17)])
    for isa in supported_isas():
        for rows in range(1, 18):
            assert np.array_equal(bits(product(isa, matrix, x[:rows])), bits(alone[:rows])), (isa, rows)


@given(tensor_type=st.sampled_from(TYPES), n=st.integers(1, 40), rows=st.integers(1, 10), kind=KINDS, seed=SEEDS)
@settings(max_examples=40, deadline=None)
def test_accumulating_adds_the_finished_sum_once(tensor_type: str, n: int, rows: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = columns(tensor_type, 2)
    matrix = packed(tensor_type, n, k, weight_bytes(tensor_type, n, k, rng))
    x = activations(rng, rows, k, kind)
    before = activations(rng, rows, n, kind)
    with np.errstate(all="ignore"):
        expected = before + product("portable", matrix, x)
    expected[np.isnan(expected)] = np.nan
    for isa in supported_isas():
        out = before.copy()
        _core.matmul(isa, matrix, x, 0, matrix.strips, True, out)
        assert np.array_equal(bits(out), bits(expected)), isa


@pytest.mark.parametrize("tensor_type", TYPES)
def test_strips_outside_the_range_are_left_alone(tensor_type: str) -> None:
    rng = np.random.default_rng(7)
    k = columns(tensor_type, 2)
    matrix = packed(tensor_type, 60, k, weight_bytes(tensor_type, 60, k, rng))
    x = activations(rng, 3, k, "normal")
    for isa in supported_isas():
        out = np.full((3, 60), np.float32(5))
        _core.matmul(isa, matrix, x, 1, 3, False, out)
        assert np.array_equal(out[:, 16:48], product(isa, matrix, x)[:, 16:48])
        assert np.all(out[:, :16] == 5)
        assert np.all(out[:, 48:] == 5)


@pytest.mark.parametrize("tensor_type", TYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_overflowed_shows_it_and_its_neighbours_do_not(tensor_type: str, bad: float) -> None:
    rng = np.random.default_rng(8)
    k = columns(tensor_type, 2)
    matrix = packed(tensor_type, 20, k, weight_bytes(tensor_type, 20, k, rng))
    x = activations(rng, 3, k, "normal")
    clean = product("portable", matrix, x)
    x[1, 40] = bad
    for isa in supported_isas():
        out = product(isa, matrix, x)
        assert not np.isfinite(out[1]).any()
        assert np.array_equal(out[::2], clean[::2])


# --- distance to the truth ----------------------------------------------------------------------------------------------------------


@given(
    tensor_type=st.sampled_from(QUANTIZED),
    n=st.integers(1, 40),
    groups=st.integers(1, 20),
    kind=st.sampled_from(["normal", "outliers", "full scale"]),
    seed=SEEDS,
)
@settings(max_examples=60, deadline=None)
def test_error_is_within_half_a_step_of_every_activation(tensor_type: str, n: int, groups: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = columns(tensor_type, groups)
    file_bytes = weight_bytes(tensor_type, n, k, rng)
    x = activations(rng, 4, k, kind)
    weights = reference.dequantize(tensor_type, file_bytes, (n, k))
    integers, d, m = (part.astype(np.float64) for part in file_integers(tensor_type, file_bytes, n, k))
    parts = (np.abs(integers * d.repeat(16, axis=-1)) + np.abs(m)[..., None]).reshape(n, k)  # what the chain adds up, without cancelling
    exact = reference.matmul(x.astype(np.float64), weights)
    step = np.repeat(quantized_by_numpy(x)[1], 32, axis=-1).astype(np.float64)
    rounding = 2.0**-24 * (k // 16 + 8) * (np.abs(x) + step).astype(np.float64) @ parts.T
    bound = step / 2 @ np.abs(weights).T + rounding
    assert np.all(np.abs(product(supported_isas()[0], packed(tensor_type, n, k, file_bytes), x) - exact) <= bound)


@pytest.mark.parametrize("tensor_type", FLOATS)
def test_float_weights_are_as_close_as_float_sums_get(tensor_type: str) -> None:
    rng = np.random.default_rng(9)
    n, k = 50, 333
    file_bytes = weight_bytes(tensor_type, n, k, rng)
    x = activations(rng, 5, k, "outliers")
    weights = reference.dequantize(tensor_type, file_bytes, (n, k))
    exact = reference.matmul(x.astype(np.float64), weights)
    bound = k * 2.0**-24 * 1.01 * (np.abs(x).astype(np.float64) @ np.abs(weights).T)
    assert np.all(np.abs(product(supported_isas()[0], packed(tensor_type, n, k, file_bytes), x) - exact) <= bound)


# --- refusals -----------------------------------------------------------------------------------------------------------------------


def test_arguments_that_do_not_fit_are_refused_by_rule_and_value() -> None:
    matrix = PackedMatrix("Q8_0", 20, 64)
    x, out = np.zeros((2, 64), np.float32), np.zeros((2, 20), np.float32)
    cases = [
        (("amx9", matrix, x, 0, 2, False, out), "isa must be one of .*portable.*, got 'amx9'"),
        (("portable", matrix, x[:, :32].copy(), 0, 2, False, out), "x must have the matrix's 64 columns, got 32"),
        (("portable", matrix, x, 0, 2, False, out[:1]), r"out must have shape \(2, 20\), got \(1, 20\)"),
        (("portable", matrix, x, 0, 2, False, np.zeros((2, 32), np.float32)), r"out must have shape \(2, 20\), got \(2, 32\)"),
        (("portable", matrix, x, 0, 3, False, out), "0 <= begin <= end <= 2, got 0 and 3"),
        (("portable", matrix, x, -1, 2, False, out), "0 <= begin <= end <= 2, got -1 and 2"),
        (("portable", matrix, x, 2, 1, False, out), "0 <= begin <= end <= 2, got 2 and 1"),
    ]
    for arguments, message in cases:
        with pytest.raises(ValueError, match=message):
            _core.matmul(*arguments)
    with pytest.raises(ValueError, match="multiple of 32 columns, got 33"):
        _core.quantize("portable", np.zeros((1, 33), np.float32))


def test_arrays_are_never_copied_or_converted_behind_the_caller() -> None:
    matrix = PackedMatrix("Q8_0", 20, 64)
    x, out = np.zeros((2, 64), np.float32), np.zeros((2, 20), np.float32)
    read_only = out.copy()
    read_only.flags.writeable = False
    for bad_x, bad_out in ((x.astype(np.float64), out), (x, out.astype(np.float64)), (x, read_only), (x.T.copy().T, out)):
        with pytest.raises(TypeError):
            _core.matmul("portable", matrix, bad_x, 0, 2, False, bad_out)
