"""Biases and norms of heads: every instruction set, number of threads and cut of rows gives one set of bits, close to the float64 twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import KVCache, PackedMatrix, Program, reference, supported_isas

EPSILON = float(np.finfo(np.float32).eps)
ROWS = 40
CACHE = KVCache(1, 1, 16, 32, 4)


def started(isa: str, threads: int, table: NDArray[np.float32]) -> Program:
    """A program whose buffer "x" holds rows of ``table`` (rows, width)."""
    rows, width = table.shape
    program = Program(isa, threads, ROWS, ROWS, CACHE)
    for name, columns in (("x", width), ("last", width), ("logits", rows)):
        program.buffer(name, columns)
    program.embed(packed(table), "x")
    return program


def packed(table: NDArray[np.float32]) -> PackedMatrix:
    matrix = PackedMatrix("F32", *table.shape)
    matrix.pack_rows(0, len(table), np.ascontiguousarray(table).reshape(-1).view(np.uint8))
    return matrix


def contents(program: Program, table: NDArray[np.float32], *, cut: int = ROWS) -> NDArray[np.float32]:
    """What "x" holds after the operations, all rows, fed ``cut`` at a time."""
    program.select_rows("x", "last")
    program.matmul("last", [packed(table)], "logits", False)
    parts = []
    for first in range(0, len(table), cut):
        tokens = np.arange(first, min(first + cut, len(table)), dtype=np.int32)
        rows = np.arange(len(tokens), dtype=np.int32)
        program.run(tokens, tokens, np.zeros_like(tokens), np.arange(4, dtype=np.int32)[None], rows)
        parts.append(program.selected_rows("last").copy())
    return np.concatenate(parts)


def random_rows(seed: int, rows: int, width: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, width)) * 10.0 ** rng.uniform(-2, 2, (rows, width))).astype(np.float32)


@pytest.mark.parametrize("isa", supported_isas())
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, ROWS), width=st.integers(1, 400), threads=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_a_bias_is_one_rounding_from_the_twin_whatever_the_split(isa: str, seed: int, rows: int, width: int, threads: int) -> None:
    table, bias = random_rows(seed, rows, width), random_rows(seed + 1, 1, width)[0]
    program = started(isa, threads, table)
    program.add_bias("x", bias)
    out = contents(program, table, cut=1 + seed % ROWS)
    np.testing.assert_array_equal(out, table + bias)
    truth = reference.add_bias(table.astype(np.float64), [bias[: width // 2].astype(np.float64), bias[width // 2 :].astype(np.float64)])
    np.testing.assert_allclose(out, truth, rtol=EPSILON / 2 * 1.01, atol=0)


@pytest.mark.parametrize("isa", supported_isas())
@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.integers(1, 5),
    dim=st.integers(1, 130),
    before=st.integers(0, 20),
    after=st.integers(0, 20),
    threads=st.integers(1, 3),
)
@settings(max_examples=25, deadline=None)
def test_each_head_is_normed_by_itself_and_the_columns_around_stay(
    isa: str, seed: int, heads: int, dim: int, before: int, after: int, threads: int
) -> None:
    table, weight = random_rows(seed, 7, before + heads * dim + after), random_rows(seed + 1, 1, dim)[0]
    program = started(isa, threads, table)
    program.head_norm("x", weight, before, heads, dim, 1e-6)
    out = contents(program, table, cut=1 + seed % 7)
    portable = started("portable", 1, table)
    portable.head_norm("x", weight, before, heads, dim, 1e-6)
    assert out.tobytes() == contents(portable, table).tobytes()
    end = before + heads * dim
    np.testing.assert_array_equal(out[:, :before], table[:, :before])
    np.testing.assert_array_equal(out[:, end:], table[:, end:])
    vectors = table[:, before:end].astype(np.float64).reshape(7, heads, dim)
    truth = reference.rmsnorm(vectors, weight.astype(np.float64), float(np.float32(1e-6)))
    np.testing.assert_allclose(out[:, before:end].reshape(truth.shape), truth, rtol=EPSILON * (dim / 32 + 6), atol=0)


def test_operations_that_do_not_fit_are_refused_with_the_rule() -> None:
    program = started("portable", 1, random_rows(0, 3, 64))
    ones = np.ones(16, np.float32)
    for call, message in [
        (lambda: program.add_bias("x", ones), "add_bias needs a bias per column: 'x' has 64, got 16"),
        (lambda: program.add_bias("last", ones), "'last' is read before anything writes it"),
        (lambda: program.head_norm("x", ones, 0, 2, 32, 1e-6), "head_norm needs a weight per column of a head: 32, got 16"),
        (lambda: program.head_norm("x", ones, 8, 4, 16, 1e-6), r"head_norm needs columns \[8, 72\) of buffer 'x', which has 64"),
        (lambda: program.head_norm("x", ones, 0, 0, 16, 1e-6), "heads must be at least 1, got 0"),
        (lambda: program.head_norm("x", ones, 0, 4, 16, -1.0), "eps must be at least 0, got -1"),
        (
            lambda: program.rope("x", 0, 4, 16, 16, 10000.0, "halves", [2.0] * 7),
            "rope needs a factor for each of 8 pairs, got 7",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
