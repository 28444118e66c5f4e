"""Rows that come with a pass, programs without attention, and programs that share their threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from swiftsure.kernels import KVCache, PackedMatrix, Program, supported_isas

VOCAB, HIDDEN, OUT = 40, 64, 50
Ints = NDArray[np.int32]


def weight(n: int, k: int, seed: int) -> PackedMatrix:
    matrix = PackedMatrix("F32", n, k)
    matrix.pack_rows(0, n, values(n, k, seed).reshape(-1).view(np.uint8))
    return matrix


def values(n: int, k: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32) / np.float32(np.sqrt(k))


def make_program(isa: str = "portable", threads: int = 1, rows: int = 8) -> Program:
    """logits = W3 (W1 features + W2 embedding)."""
    program = Program(isa, threads, rows, rows, KVCache(1, 1, 16, 32, 1))
    for name, width in [("features", HIDDEN), ("token", HIDDEN), ("x", HIDDEN), ("selected", HIDDEN), ("logits", OUT)]:
        program.buffer(name, width)
    program.input("features")
    program.embed(weight(VOCAB, HIDDEN, 0), "token")
    program.matmul("features", [weight(HIDDEN, HIDDEN, 1)], "x", False)
    program.matmul("token", [weight(HIDDEN, HIDDEN, 2)], "x", True)
    program.select_rows("x", "selected")
    program.matmul("selected", [weight(OUT, HIDDEN, 3)], "logits", False)
    return program


def run(program: Program, tokens: Ints, features: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Every row is a sequence of its own at position 0, and none stores anything."""
    rows = np.arange(len(tokens), dtype=np.int32)
    zeros = np.zeros(len(tokens), np.int32)
    return program.run(tokens, zeros, rows, np.zeros((len(tokens), 1), np.int32), rows, features)


def expected(tokens: Ints, features: NDArray[np.float32]) -> NDArray[np.float64]:
    x = (
        features.astype(np.float64) @ values(HIDDEN, HIDDEN, 1).T
        + values(VOCAB, HIDDEN, 0)[tokens].astype(np.float64) @ values(HIDDEN, HIDDEN, 2).T
    )
    return np.asarray(x @ values(OUT, HIDDEN, 3).T)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("isa", supported_isas())
def test_features_are_what_the_first_operation_reads(isa: str, threads: int) -> None:
    rng = np.random.default_rng(5)
    program = make_program(isa, threads)
    for rows in (1, 5, 8, 2):
        tokens = rng.integers(0, VOCAB, rows, dtype=np.int32)
        features = rng.standard_normal((rows, HIDDEN)).astype(np.float32)
        np.testing.assert_allclose(run(program, tokens, features), expected(tokens, features), rtol=1e-4, atol=1e-5)


def test_rows_share_a_pass_with_their_own_bits() -> None:
    rng = np.random.default_rng(6)
    tokens = rng.integers(0, VOCAB, 7, dtype=np.int32)
    features = rng.standard_normal((7, HIDDEN)).astype(np.float32)
    together = run(make_program(threads=2), tokens, features).copy()
    alone = make_program("portable")
    for row in range(7):
        assert run(alone, tokens[row : row + 1], features[row : row + 1])[0].tobytes() == together[row].tobytes()


@pytest.mark.parametrize(
    ("features", "rule"),
    [
        (None, "reads rows of 64 features, got 0"),
        (np.zeros((2, HIDDEN - 32), np.float32), "reads rows of 64 features, got 32"),
        (np.zeros((3, HIDDEN), np.float32), "a row for each of 2 tokens, got 3"),
    ],
)
def test_other_features_are_refused(features: NDArray[np.float32] | None, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        run(make_program(), np.zeros(2, np.int32), features)


def test_features_are_refused_where_none_are_read() -> None:
    program = Program("portable", 1, 4, 4, KVCache(1, 1, 16, 32, 1))
    for name, width in [("x", HIDDEN), ("selected", HIDDEN), ("logits", OUT)]:
        program.buffer(name, width)
    program.embed(weight(VOCAB, HIDDEN, 0), "x")
    program.select_rows("x", "selected")
    program.matmul("selected", [weight(OUT, HIDDEN, 3)], "logits", False)
    with pytest.raises(ValueError, match="reads rows of 0 features, got 64"):
        run(program, np.zeros(1, np.int32), np.zeros((1, HIDDEN), np.float32))


def test_inputs_of_two_widths_are_refused() -> None:
    program = Program("portable", 1, 4, 4, KVCache(1, 1, 16, 32, 1))
    program.buffer("a", 32)
    program.buffer("b", 64)
    program.input("a")
    with pytest.raises(ValueError, match="one width, got 32 and 64"):
        program.input("b")


def test_programs_that_share_threads_take_turns_on_them() -> None:
    rng = np.random.default_rng(7)
    first, second, third = (make_program(threads=2) for _ in range(3))
    before = threading.active_count()
    second.share_threads(first)
    third.share_threads(first)
    tokens = rng.integers(0, VOCAB, 8, dtype=np.int32)
    features = rng.standard_normal((8, HIDDEN)).astype(np.float32)
    bits = run(make_program(), tokens, features).tobytes()
    for _ in range(50):
        for program in (first, second, third):
            assert run(program, tokens, features).tobytes() == bits
    assert threading.active_count() == before
    del first
    assert run(third, tokens, features).tobytes() == bits, "the threads live as long as anyone who runs on them"


def test_threads_are_shared_before_the_first_run_and_by_as_many() -> None:
    ran, fresh, wide = make_program(), make_program(), make_program(threads=2)
    run(ran, np.zeros(1, np.int32), np.zeros((1, HIDDEN), np.float32))
    with pytest.raises(ValueError, match="before the first run"):
        fresh.share_threads(ran)
    with pytest.raises(ValueError, match="before the first run"):
        ran.share_threads(fresh)
    with pytest.raises(ValueError, match="as many, got 1 and 2"):
        fresh.share_threads(wide)
    with pytest.raises(ValueError, match="for itself"):
        fresh.share_threads(fresh)
    other = make_program()
    fresh.share_threads(other)
    with pytest.raises(ValueError, match="takes no more operations"):
        other.buffer("late", 32)
