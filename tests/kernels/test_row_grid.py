"""Row-grid weights: how close packing comes, and a product that is one exact function on every instruction set."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_matmul import KINDS, MAX_Q, SEEDS, Float32, activations, bits, product
from weight_bytes import FLOATS, QUANTIZED, TYPES, columns, weight_bytes

from swiftsure.kernels import PackedMatrix, _core, reference, supported_isas
from tiny_models import encode

GRIDS = ("R4", "R8")
FOUR_BITS = ("Q4_0", "Q4_1", "Q4_K")


def packed(grid: str, source_type: str, n: int, k: int, file_bytes: NDArray[np.uint8]) -> PackedMatrix:
    matrix = PackedMatrix(grid, n, k)
    matrix.pack_rows(0, n, file_bytes, source_type)
    return matrix


def unpacked(matrix: PackedMatrix, isa: str = "portable") -> Float32:
    return np.stack([_core.unpack_row(isa, matrix, row) for row in range(matrix.n)])


def grid_of(matrix: PackedMatrix) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Integers (n, k) and scales (n,)."""
    values, scale = unpacked(matrix).astype(np.float64), matrix.row_scales.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = np.where(scale[:, None] > 0, np.rint(values / scale[:, None]), 0)
    return w.astype(np.int64), scale


def any_k(source_type: str, groups: int, odd: int) -> int:
    return columns(source_type, groups) if source_type in QUANTIZED else max(1, 32 * groups - odd)


# --- rows of activations ------------------------------------------------------------------------------------------------------------


def quantized_by_numpy(x: Float32) -> tuple[NDArray[np.int64], Float32]:
    """The rule of the numerics id, one float32 operation at a time: q (rows, k) and scale (rows,)."""
    amax = np.abs(x).max(axis=-1)
    with np.errstate(all="ignore"):
        q = np.clip(np.rint(x * (np.float32(MAX_Q) / amax)[:, None]), -MAX_Q, MAX_Q)
        scale = amax / np.float32(MAX_Q)
    finite = np.isfinite(amax)
    live = finite & (amax >= np.float32(1e-30))
    return np.where(live[:, None], q, 0).astype(np.int64), np.where(live, scale, np.where(finite, np.float32(0), np.float32(np.nan)))


@given(rows=st.integers(1, 4), k=st.integers(1, 200), seed=SEEDS, kind=KINDS)
@settings(max_examples=60, deadline=None)
def test_a_row_has_one_scale_and_digits_that_make_it_up_on_every_instruction_set(rows: int, k: int, seed: int, kind: str) -> None:
    x = activations(np.random.default_rng(seed), rows, k, kind)
    q, scale = quantized_by_numpy(x)
    for isa in supported_isas():
        digits, got_scale, excess = _core.quantize_grid(isa, x)
        assert digits.shape == (rows, 2, -(-k // 64) * 64)
        np.testing.assert_array_equal(256 * digits[:, 0, :k].astype(np.int64) + digits[:, 1, :k], q, err_msg=isa)
        assert not digits[:, :, k:].any()
        np.testing.assert_array_equal(got_scale, scale, err_msg=isa)
        np.testing.assert_array_equal(excess, 128 * digits.sum(axis=-1, dtype=np.int64), err_msg=isa)


# --- packing ------------------------------------------------------------------------------------------------------------------------


@given(source_type=st.sampled_from(TYPES), n=st.integers(1, 40), groups=st.integers(1, 6), odd=st.integers(0, 31), seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_r8_is_the_nearest_multiple_of_a_scale_that_the_largest_weight_sets(
    source_type: str, n: int, groups: int, odd: int, seed: int
) -> None:
    k = any_k(source_type, groups, odd)
    file_bytes = weight_bytes(source_type, n, k, np.random.default_rng(seed))
    truth = reference.dequantize(source_type, file_bytes, (n, k))
    matrix = packed("R8", source_type, n, k, file_bytes)
    w, scale = grid_of(matrix)
    np.testing.assert_allclose(scale, np.abs(truth).max(axis=1) / 127, rtol=1e-6)
    assert np.abs(w).max() <= 127
    assert np.all(np.abs(w * scale[:, None] - truth) <= 0.501 * scale[:, None])


@given(source_type=st.sampled_from(FOUR_BITS), n=st.integers(1, 40), groups=st.integers(1, 6), seed=SEEDS, extreme=st.booleans())
@settings(max_examples=60, deadline=None)
def test_r4_from_four_bits_misses_a_level_by_few_steps_of_the_grid(source_type: str, n: int, groups: int, seed: int, extreme: bool) -> None:
    k = columns(source_type, groups)
    file_bytes = weight_bytes(source_type, n, k, np.random.default_rng(seed), extreme_integers=extreme)
    truth = reference.dequantize(source_type, file_bytes, (n, k))
    w, scale = grid_of(packed("R4", source_type, n, k, file_bytes))
    least = np.abs(truth).max(axis=1) / 127
    assert np.all(scale >= least * (1 - 1e-6))
    steps = np.abs(truth.reshape(n, -1, 32).max(axis=-1) - truth.reshape(n, -1, 32).min(axis=-1)).max(axis=1)
    assert np.all(scale <= np.maximum(least, 16 * steps / 255) * (1 + 1e-5))  # a step of d is at most the whole range
    assert np.all(np.abs(w * scale[:, None] - truth) <= 2.5 * scale[:, None])
    assert np.all((w >= -128) & (w <= 127))


def model_like(rng: np.random.Generator, n: int, k: int) -> Float32:
    """Weights with rows and groups of different sizes, as trained ones have."""
    sizes = np.exp(rng.normal(0, 0.4, (n, k // 32))).repeat(32, axis=1)
    return np.asarray(rng.normal(0, 0.05, (n, k)) * sizes, dtype=np.float32)


def root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values * values)))


def test_r4_keeps_four_bit_levels_to_under_half_a_step_on_average() -> None:
    import gguf

    values = model_like(np.random.default_rng(5), 64, 576)
    file_bytes = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_1).reshape(-1)
    truth = reference.dequantize("Q4_1", file_bytes, values.shape)
    w, scale = grid_of(packed("R4", "Q4_1", *values.shape, file_bytes))
    assert root_mean_square((w * scale[:, None] - truth) / scale[:, None]) <= 0.45


@pytest.mark.parametrize("source_type", ["Q8_0", "F16", "F32"])
def test_r4_from_wider_weights_errs_about_as_much_as_four_bit_groups_do(source_type: str) -> None:
    import gguf

    values = model_like(np.random.default_rng(6), 64, 576)
    file_bytes = gguf.quantize(values, gguf.GGMLQuantizationType[source_type]).view(np.uint8).reshape(-1)
    error = unpacked(packed("R4", source_type, *values.shape, file_bytes)) - values
    four_bits = reference.dequantize("Q4_1", gguf.quantize(values, gguf.GGMLQuantizationType.Q4_1).reshape(-1), values.shape) - values
    assert root_mean_square(error) <= 1.05 * root_mean_square(four_bits)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("source_type", TYPES)
def test_a_constant_row_and_a_zero_row_come_back(grid: str, source_type: str) -> None:
    k = columns(source_type, 3)
    file_bytes = encode(np.array([[0.37], [0.0]]).repeat(k, axis=1), source_type)
    truth = reference.dequantize(source_type, file_bytes, (2, k))
    got = unpacked(packed(grid, source_type, 2, k, file_bytes))
    np.testing.assert_allclose(got, truth, rtol=1e-6)
    assert not got[1].any()


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("source_type", TYPES)
def test_rows_that_are_not_finite_show_it_and_the_others_stay_as_they_are(grid: str, source_type: str) -> None:
    n, k = 37, columns(source_type, 3)
    rng = np.random.default_rng(2)
    normal = weight_bytes(source_type, n, k, rng).reshape(n, -1)
    extreme = weight_bytes(source_type, n, k, rng, extreme_floats=True).reshape(n, -1)
    mixed = np.where(np.arange(n)[:, None] % 3 == 0, extreme, normal)
    with np.errstate(all="ignore"):
        finite = np.isfinite(reference.dequantize(source_type, mixed.reshape(-1), (n, k))).all(axis=1)
    got = unpacked(packed(grid, source_type, n, k, mixed.reshape(-1)))
    assert np.isnan(got[~finite]).all()
    untouched = np.arange(n) % 3 != 0
    np.testing.assert_array_equal(got[untouched], unpacked(packed(grid, source_type, n, k, normal.reshape(-1)))[untouched])


@given(grid=st.sampled_from(GRIDS), source_type=st.sampled_from(TYPES), n=st.integers(2, 50), seed=SEEDS, data=st.data())
@settings(max_examples=30, deadline=None)
def test_rows_packed_in_pieces_are_the_rows_packed_at_once(grid: str, source_type: str, n: int, seed: int, data: st.DataObject) -> None:
    k = any_k(source_type, 3, seed % 32)
    file_bytes = weight_bytes(source_type, n, k, np.random.default_rng(seed))
    rows = file_bytes.reshape(n, -1)
    matrix = PackedMatrix(grid, n, k)
    cuts = sorted({0, n, *data.draw(st.lists(st.integers(0, n), max_size=3))})
    for begin, end in pairwise(cuts):
        matrix.pack_rows(begin, end - begin, rows[begin:end].reshape(-1), source_type)
    whole = unpacked(packed(grid, source_type, n, k, file_bytes))
    for isa in supported_isas():
        np.testing.assert_array_equal(unpacked(matrix, isa), whole, err_msg=isa)


@pytest.mark.parametrize(("grid", "block_bytes"), [("R4", 576), ("R8", 1024)])
def test_packed_size_counts_blocks_of_64_columns_and_a_line_of_scales(grid: str, block_bytes: int) -> None:
    matrix = PackedMatrix(grid, 33, 65)
    assert (matrix.type, matrix.strips) == (grid, 3)
    assert matrix.nbytes == 3 * (2 * block_bytes + 64)


@pytest.mark.parametrize("grid", GRIDS)
def test_what_cannot_be_packed_is_refused_by_rule_and_value(grid: str) -> None:
    with pytest.raises(ValueError, match=f"k from 1 to 65536.*got {grid} of shape \\(16, 65537\\)"):
        PackedMatrix(grid, 16, 65537)
    matrix = PackedMatrix(grid, 16, 33)
    for source_type, message in [(None, f"{grid} is packed from a type that files have, got {grid}"), ("R8", "got R8")]:
        with pytest.raises(ValueError, match=message):
            matrix.pack_rows(0, 1, np.zeros(34, np.uint8), source_type)
    with pytest.raises(ValueError, match=r"Q8_0 of shape \(1, 33\) takes 0 bytes, got 34"):
        matrix.pack_rows(0, 1, np.zeros(34, np.uint8), "Q8_0")
    with pytest.raises(ValueError, match="Q4_1 is packed from its own type, got Q8_0"):
        PackedMatrix("Q4_1", 16, 32).pack_rows(0, 1, np.zeros(34, np.uint8), "Q8_0")


# --- products -----------------------------------------------------------------------------------------------------------------------


def product_by_numpy(x: Float32, w: NDArray[np.int64], scale: NDArray[np.float64]) -> Float32:
    """The numerics id's function, from exact integer sums: float64 holds 256 * float(high) + float(low) exactly, one rounding follows."""
    digits, x_scale, _ = _core.quantize_grid("portable", x)
    k = x.shape[1]
    high, low = (digits[:, i, :k].astype(np.int64) @ w.T for i in (0, 1))
    total = (high.astype(np.float32).astype(np.float64) * 256 + low.astype(np.float32)).astype(np.float32)
    with np.errstate(all="ignore"):
        out = total * (scale.astype(np.float32)[None, :] * x_scale[:, None])
    out[np.isnan(out)] = np.nan
    return np.asarray(out, dtype=np.float32)


@given(
    grid=st.sampled_from(GRIDS),
    source_type=st.sampled_from(TYPES),
    n=st.integers(1, 70),
    groups=st.integers(1, 7),
    odd=st.integers(0, 31),
    rows=st.integers(1, 40),
    kind=KINDS,
    seed=SEEDS,
    extreme=st.booleans(),
    data=st.data(),
)
@settings(max_examples=120, deadline=None)
def test_an_element_is_one_function_of_its_row_whatever_the_instruction_set_rows_or_strips(
    grid: str,
    source_type: str,
    n: int,
    groups: int,
    odd: int,
    rows: int,
    kind: str,
    seed: int,
    extreme: bool,
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(seed)
    k = any_k(source_type, groups, odd)
    matrix = packed(grid, source_type, n, k, weight_bytes(source_type, n, k, rng, extreme_integers=extreme))
    x = activations(rng, rows, k, kind)
    expected = bits(product_by_numpy(x, *grid_of(matrix)))
    row_cuts = sorted({0, rows, *data.draw(st.lists(st.integers(0, rows), max_size=4))})
    strip_cuts = sorted({0, matrix.strips, *data.draw(st.lists(st.integers(0, matrix.strips), max_size=4))})
    for isa in supported_isas():
        assert np.array_equal(bits(product(isa, matrix, x)), expected), isa
        out = np.zeros((rows, n), np.float32)
        for first, last in pairwise(row_cuts):
            for begin, end in pairwise(strip_cuts):
                _core.matmul(isa, matrix, x[first:last], begin, end, False, out[first:last])
        assert np.array_equal(bits(out), expected), isa


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("rows", [1, 2, 5, 9, 33])
def test_full_scale_rows_as_long_as_they_may_be_do_not_overflow(grid: str, rows: int) -> None:
    n, k = 2, 65536
    weights = np.full((n, k), np.float32(-1))
    weights[1] = 1
    matrix = packed(grid, "F32", n, k, weights.view(np.uint8).reshape(-1))
    x = np.full((rows, k), np.float32(-3))
    x[:, 0] = 3
    expected = bits(product_by_numpy(x, *grid_of(matrix)))
    for isa in supported_isas():
        if isa != "portable" or rows == 1:  # slow there
            assert np.array_equal(bits(product(isa, matrix, x)), expected), isa


@pytest.mark.parametrize("grid", GRIDS)
def test_accumulating_adds_the_finished_product_once(grid: str) -> None:
    rng = np.random.default_rng(3)
    matrix = packed(grid, "Q4_1", 40, 96, weight_bytes("Q4_1", 40, 96, rng))
    for rows in (1, 2, 7, 20):
        x, before = activations(rng, rows, 96, "outliers"), activations(rng, rows, 40, "normal")
        expected = before + product("portable", matrix, x)
        for isa in supported_isas():
            out = before.copy()
            _core.matmul(isa, matrix, x, 0, matrix.strips, True, out)
            assert np.array_equal(bits(out), bits(expected)), isa


@given(grid=st.sampled_from(GRIDS), source_type=st.sampled_from((*QUANTIZED, *FLOATS)), rows=st.integers(1, 6), seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_error_against_the_weights_as_packed_is_half_a_step_of_every_activation(grid: str, source_type: str, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = 20, columns(source_type, 10)
    matrix = packed(grid, source_type, n, k, weight_bytes(source_type, n, k, rng))
    x = activations(rng, rows, k, "outliers")
    w, scale = grid_of(matrix)
    exact = reference.row_grid_matmul(x.astype(np.float64), w, scale)
    weights = w * scale[:, None]
    step = quantized_by_numpy(x)[1].astype(np.float64)
    bound = np.outer(step / 2, np.abs(weights).sum(axis=1)) + 2.0**-21 * (np.abs(x) @ np.abs(weights).T)
    assert np.all(np.abs(product(supported_isas()[0], matrix, x) - exact) <= bound * 1.01)
