"""Quantizers: plain rounding gives gguf's bytes, the search does better and in no block worse, and how rows are cut changes nothing."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UsageError
from swiftsure.kernels import reference
from swiftsure.models.quantize import METHODS, QUANTIZED_TYPES, dequantize_rows, encoded_bytes, quantize_rows
from tiny_models import MATRIX_TYPES, encode

Float32 = NDArray[np.float32]
KINDS = ("normal", "heavy tail", "one sign", "constant", "zero", "few values", "tiny", "large")


def weights(rng: np.random.Generator, n: int, k: int, kind: str) -> Float32:
    values = rng.normal(0, 0.02, (n, k))
    if kind == "heavy tail":
        values = rng.standard_t(3, (n, k))
    elif kind == "one sign":
        values = -np.abs(values) - 0.1
    elif kind == "constant":
        values = np.repeat(rng.normal(0, 1, (n, 1)), k, axis=1)
    elif kind == "zero":
        values = np.zeros((n, k))
    elif kind == "few values":
        values = rng.choice([-0.5, 0.0, 0.25], (n, k))
    elif kind == "tiny":
        values *= 1e-6
    elif kind == "large":
        values *= 1e5
    return values.astype(np.float32)


def block_errors(tensor_type: str, rows: Float32, encoded: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Error of each block in the search's measure, by the float64 twin."""
    miss = reference.dequantize(tensor_type, encoded.reshape(-1), rows.shape) - rows
    return np.asarray((importance(rows) * (miss**2).reshape(-1, 32)).sum(axis=1))


def importance(rows: Float32) -> NDArray[np.float64]:
    """What the error of each weight counts (blocks, 32)."""
    squares = np.square(rows.reshape(-1, 32).astype(np.float64))
    mean = squares.mean(axis=1, keepdims=True)
    return np.asarray(np.where(mean > 0, (squares + mean) / np.where(mean > 0, 2 * mean, 1), 1))


@given(
    tensor_type=st.sampled_from(QUANTIZED_TYPES),
    n=st.integers(1, 9),
    groups=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 999),
)
@settings(max_examples=80, deadline=None)
def test_plain_rounding_gives_the_bytes_of_gguf(tensor_type: str, n: int, groups: int, kind: str, seed: int) -> None:
    rows = weights(np.random.default_rng(seed), n, 32 * groups, kind)
    expected = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[tensor_type])
    np.testing.assert_array_equal(quantize_rows(tensor_type, rows, method="rtn"), expected)


@given(
    tensor_type=st.sampled_from(QUANTIZED_TYPES),
    n=st.integers(1, 9),
    groups=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 999),
)
@settings(max_examples=80, deadline=None)
def test_the_search_is_worse_than_plain_rounding_in_no_block(tensor_type: str, n: int, groups: int, kind: str, seed: int) -> None:
    rows = weights(np.random.default_rng(seed), n, 32 * groups, kind)
    plain, search = (block_errors(tensor_type, rows, quantize_rows(tensor_type, rows, method=method)) for method in ("rtn", "search"))
    slack = 1e-5 * plain + 1e-13 * np.square(rows.reshape(-1, 32).astype(np.float64)).sum(axis=1)  # sums of errors in float32
    assert np.all(search <= plain + slack)


@pytest.mark.parametrize(
    ("tensor_type", "kind", "ratio"),
    [
        ("Q8_0", "normal", 0.93),
        ("Q4_0", "normal", 0.95),
        ("Q4_1", "normal", 0.93),
        ("Q8_0", "heavy tail", 0.97),
        ("Q4_0", "heavy tail", 0.97),
        ("Q4_1", "heavy tail", 0.95),
    ],
)
def test_the_search_lowers_the_error_by_more_than_a_few_percent(tensor_type: str, kind: str, ratio: float) -> None:
    rows = weights(np.random.default_rng(3), 200, 320, kind)
    plain, search = (block_errors(tensor_type, rows, quantize_rows(tensor_type, rows, method=method)) for method in ("rtn", "search"))
    # Relative to each block's own size, so that a heavy tail does not make one block the whole of the sum.
    norms = np.square(rows.reshape(-1, 32).astype(np.float64)).sum(axis=1)
    assert np.sqrt((search / norms).mean() / (plain / norms).mean()) < ratio


@pytest.mark.parametrize("tensor_type", ["Q4_0", "Q4_1"])
def test_columns_of_large_weights_are_not_clipped_in_every_row(tensor_type: str) -> None:
    """In models such columns meet the largest activations, where an error of one sign in all rows adds up."""
    rows = weights(np.random.default_rng(9), 400, 64, "normal")
    rows[:, 7] = np.abs(rows[:, 7]) + np.float32(0.08)
    values = reference.dequantize(tensor_type, quantize_rows(tensor_type, rows).reshape(-1), rows.shape)
    assert abs((values[:, 7] / rows[:, 7]).mean() - 1) < 0.01


def test_the_search_comes_within_three_percent_of_trying_everything() -> None:
    rows = weights(np.random.default_rng(4), 20, 64, "normal")
    blocks = rows.reshape(-1, 32).astype(np.float64)
    low, high = blocks.min(axis=1, keepdims=True), blocks.max(axis=1, keepdims=True)
    best = np.full(len(blocks), np.inf)
    for a in np.linspace(-0.05, 0.3, 60):
        for b in np.linspace(-0.05, 0.3, 60):
            minimum = low + a * (high - low)
            scale = (high - low) * (1 - a - b) / 15
            q = np.clip(np.rint((blocks - minimum) / scale), 0, 15)
            best = np.minimum(best, (importance(rows) * (q * scale + minimum - blocks) ** 2).sum(axis=1))
    found = block_errors("Q4_1", rows, quantize_rows("Q4_1", rows))
    assert np.sqrt(found.sum() / best.sum()) < 1.03


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tensor_type", QUANTIZED_TYPES)
def test_bytes_do_not_depend_on_which_rows_come_together(tensor_type: str, method: str) -> None:
    rows = weights(np.random.default_rng(5), 150, 480, "heavy tail")  # 2250 blocks: more than one tile
    whole = quantize_rows(tensor_type, rows, method=method)
    assert whole.shape == (150, encoded_bytes(tensor_type, (480,)))
    parts = [quantize_rows(tensor_type, rows[first:last], method=method) for first, last in ((0, 1), (1, 64), (64, 150))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("tensor_type", QUANTIZED_TYPES)
def test_what_is_on_the_grid_already_comes_back_exactly(tensor_type: str) -> None:
    first = quantize_rows(tensor_type, weights(np.random.default_rng(6), 4, 64, "normal"), method="rtn")
    values = reference.dequantize(tensor_type, first.reshape(-1), (4, 64)).astype(np.float32)
    again = reference.dequantize(tensor_type, quantize_rows(tensor_type, values).reshape(-1), (4, 64))
    assert reference.relative_l2(again, values) < 1e-6


@pytest.mark.parametrize("tensor_type", MATRIX_TYPES)
def test_dequantized_rows_are_those_of_the_gguf_package(tensor_type: str) -> None:
    rows = weights(np.random.default_rng(7), 5, 512, "normal")
    raw = encode(rows.astype(np.float64), tensor_type)
    kind = gguf.GGMLQuantizationType[tensor_type]
    theirs = raw.view({"F32": np.float32, "F16": np.float16}.get(tensor_type, np.uint8)).reshape(5, -1)
    np.testing.assert_array_equal(dequantize_rows(tensor_type, raw, 512), gguf.quants.dequantize(theirs, kind))


def test_every_bf16_pattern_keeps_its_bits() -> None:
    patterns = np.arange(1 << 16, dtype="<u2")
    values = dequantize_rows("BF16", patterns.view(np.uint8), 256)
    assert values.shape == (256, 256)
    np.testing.assert_array_equal(values.reshape(-1).view(np.uint32), patterns.astype(np.uint32) << 16)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tensor_type", QUANTIZED_TYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_weights_that_no_block_can_hold_are_refused(tensor_type: str, method: str, bad: float) -> None:
    rows = weights(np.random.default_rng(8), 3, 64, "normal")
    rows[1, 40] = bad
    with pytest.raises(ModelFileError, match=r"must be finite|must fit float16 scales"):
        quantize_rows(tensor_type, rows, method=method)


@pytest.mark.parametrize("tensor_type", QUANTIZED_TYPES)
def test_weights_too_small_for_a_float16_scale_become_small_and_not_nan(tensor_type: str) -> None:
    rows = np.full((1, 32), np.float32(1e-42))
    rows[0, 1] = -1e-42
    for method in METHODS:
        values = reference.dequantize(tensor_type, quantize_rows(tensor_type, rows, method=method).reshape(-1), (1, 32))
        assert np.all(values == 0)


def test_arguments_are_refused_by_rule_and_value() -> None:
    rows = np.zeros((2, 64), np.float32)
    for arguments, message in (
        (("Q5_0", rows), "type must be one of Q8_0, Q4_0, Q4_1, got 'Q5_0'"),
        (("Q4_0", rows[:, :33]), "multiple of 32 columns for Q4_0, got 33"),
        (("Q4_0", rows.astype(np.float64)), "rows must be float32 of two dimensions, got float64"),
        (("Q4_0", rows[0]), r"two dimensions, got float32 of shape \(64,\)"),
    ):
        with pytest.raises(UsageError, match=message):
            quantize_rows(*arguments)
    with pytest.raises(UsageError, match="method must be one of search, rtn, got 'best'"):
        quantize_rows("Q4_0", rows, method="best")
