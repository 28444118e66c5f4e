"""Static programs: what a step may look like, what is refused by name, and what may not change a bit."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import KVCache, PackedMatrix, Program, supported_isas

HEADS, KV_HEADS, DIM, HIDDEN, VOCAB, BLOCK, BLOCKS = 6, 2, 32, 64, 50, 32, 40
QKV = (HEADS + 2 * KV_HEADS) * DIM
Ints = NDArray[np.int32]


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int32)


def float_weight(n: int, k: int, seed: int) -> PackedMatrix:
    values = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32) / np.float32(np.sqrt(k))
    matrix = PackedMatrix("F32", n, k)
    matrix.pack_rows(0, n, values.reshape(-1).view(np.uint8))
    return matrix


def byte_weight(n: int, k: int, seed: int) -> PackedMatrix:
    """Random Q8_0: blocks of a float16 scale and 32 int8."""
    rng = np.random.default_rng(seed)
    blocks = np.empty((n * k // 32, 34), dtype=np.uint8)
    blocks[:, :2] = (rng.uniform(0.5, 2.0, (len(blocks), 1)) / (74.0 * np.sqrt(k))).astype(np.float16).view(np.uint8)
    blocks[:, 2:] = rng.integers(0, 256, (len(blocks), 32), dtype=np.uint8)
    matrix = PackedMatrix("Q8_0", n, k)
    matrix.pack_rows(0, n, blocks.reshape(-1))
    return matrix


def overflowing_program(isa: str, threads: int) -> Program:
    """Attention straight on embeddings, of which token 1 is not finite; logits are what was attended to."""
    program = Program(isa, threads, 48, 48, KVCache(1, KV_HEADS, DIM, BLOCK, BLOCKS))
    for name, width in [("x", HIDDEN), ("qkv", QKV), ("att", HEADS * DIM), ("last", HEADS * DIM), ("logits", VOCAB)]:
        program.buffer(name, width)
    values = np.random.default_rng(1).standard_normal((VOCAB, HIDDEN)).astype(np.float32)
    values[1, 5] = np.inf
    embedding = PackedMatrix("F32", VOCAB, HIDDEN)
    embedding.pack_rows(0, VOCAB, values.reshape(-1).view(np.uint8))
    program.embed(embedding, "x")
    program.matmul("x", [float_weight(QKV, HIDDEN, 2)], "qkv", False)
    program.store_kv("qkv", HEADS * DIM, (HEADS + KV_HEADS) * DIM, 0)
    program.attention("qkv", 0, "att", 0, HEADS, DIM**-0.5)
    program.select_rows("att", "last")
    program.matmul("last", [byte_weight(VOCAB, HEADS * DIM, 3)], "logits", False)
    return program


def make_program(isa: str = "portable", threads: int = 1, max_rows: int = 24, max_logit_rows: int = 24) -> Program:
    """One layer of attention with a gated feed-forward, quantized and float weights mixed."""
    program = Program(isa, threads, max_rows, max_logit_rows, KVCache(1, KV_HEADS, DIM, BLOCK, BLOCKS))
    for name, width in [("x", HIDDEN), ("normed", HIDDEN), ("qkv", QKV), ("att", HEADS * DIM), ("gate_up", 192), ("act", 96)]:
        program.buffer(name, width)
    for name, width in [("last", HIDDEN), ("logits", VOCAB)]:
        program.buffer(name, width)
    ones = np.ones(HIDDEN, dtype=np.float32)
    program.embed(float_weight(VOCAB, HIDDEN, 0), "x")
    program.rmsnorm("x", ones, "normed", 1e-5)
    program.matmul("normed", [byte_weight(HEADS * DIM, HIDDEN, 1), float_weight(2 * KV_HEADS * DIM, HIDDEN, 2)], "qkv", False)
    program.rope("qkv", 0, HEADS + KV_HEADS, DIM, DIM, 10000.0, "halves")
    program.store_kv("qkv", HEADS * DIM, (HEADS + KV_HEADS) * DIM, 0)
    program.attention("qkv", 0, "att", 0, HEADS, DIM**-0.5)
    program.matmul("att", [byte_weight(HIDDEN, HEADS * DIM, 3)], "x", True)
    program.rmsnorm("x", ones, "normed", 1e-5)
    program.matmul("normed", [byte_weight(192, HIDDEN, 4)], "gate_up", False)
    program.gated_activation("silu", "gate_up", "act")
    program.matmul("act", [byte_weight(HIDDEN, 96, 5)], "x", True)
    program.select_rows("x", "last")
    program.matmul("last", [float_weight(VOCAB, HIDDEN, 0)], "logits", False)
    return program


def table(first_block: int, width: int = 20) -> Ints:
    return np.arange(first_block, first_block + width, dtype=np.int32)


def feed(program: Program, tokens: Ints, cuts: list[int], blocks: Ints | None = None) -> NDArray[np.float32]:
    """Logits of every position when the sequence is fed in passes of ``cuts`` rows (the last one repeats)."""
    blocks = table(0) if blocks is None else blocks
    rows: list[NDArray[np.float32]] = []
    done = 0
    while done < len(tokens):
        count = min(cuts[min(len(rows), len(cuts) - 1)], len(tokens) - done)
        where = np.arange(done, done + count, dtype=np.int32)
        wanted = np.arange(count, dtype=np.int32)
        rows.append(program.run(tokens[done : done + count], where, np.zeros(count, np.int32), blocks[None], wanted).copy())
        done += count
    return np.concatenate(rows)


TOKENS = np.random.default_rng(11).integers(0, VOCAB, 560).astype(np.int32)


@pytest.fixture(scope="module")
def one_by_one() -> NDArray[np.float32]:
    return feed(make_program(), TOKENS, [1])


@given(
    isa=st.sampled_from(supported_isas()),
    threads=st.integers(1, 4),
    cuts=st.lists(st.integers(1, 24), min_size=1, max_size=60),
    length=st.sampled_from([40, 300, 560]),
    order=st.permutations(range(20)),
)
@settings(max_examples=25, deadline=None)
def test_cuts_threads_blocks_and_instruction_sets_change_no_bit(
    one_by_one: NDArray[np.float32], isa: str, threads: int, cuts: list[int], length: int, order: list[int]
) -> None:
    """560 positions are three spans: short passes split them over threads, long passes do not."""
    logits = feed(make_program(isa, threads), TOKENS[:length], cuts, np.array(order, dtype=np.int32))
    assert logits.tobytes() == one_by_one[:length].tobytes()


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize(("rows", "threads"), [(2, 2), (3, 2), (5, 3), (8, 2), (7, 4)])
def test_groups_of_rows_that_share_split_spans_change_no_bit(one_by_one: NDArray[np.float32], isa: str, rows: int, threads: int) -> None:
    """From position 240 on passes are short: groups of them split their spans, and some stand astride 256 and 512."""
    logits = feed(make_program(isa, threads), TOKENS, [24] * 10 + [rows])
    assert logits.tobytes() == one_by_one.tobytes()


def test_neighbours_in_a_pass_change_no_bit(one_by_one: NDArray[np.float32]) -> None:
    program = make_program(threads=2)
    feed(program, TOKENS[:300], [24], table(0))
    feed(program, TOKENS[:17], [9], table(20))
    tables = np.stack([table(20), table(0)])
    logits = program.run(
        np.concatenate([TOKENS[17:20], TOKENS[300:302]]), ints(17, 18, 19, 300, 301), ints(0, 0, 0, 1, 1), tables, ints(1, 2, 4)
    )
    expected = one_by_one[[18, 19, 301]]
    assert logits.tobytes() == expected.tobytes()


def test_a_pass_may_want_no_logits() -> None:
    program = make_program()
    assert program.run(ints(1, 2), ints(0, 1), ints(0, 0), table(0)[None], ints()).shape == (0, VOCAB)


def test_the_result_is_a_view_that_keeps_its_program_alive() -> None:
    program = make_program()
    logits = program.run(ints(1), ints(0), ints(0), table(0)[None], ints(0))
    before = logits.copy()
    del program
    np.testing.assert_array_equal(logits, before)


GOOD: dict[str, Any] = {
    "tokens": ints(1, 2, 3),
    "positions": ints(0, 1, 2),
    "sequences": ints(0, 0, 0),
    "block_tables": table(0)[None],
    "logit_rows": ints(2),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokens": ints(1, VOCAB, 3)}, r"token of row 1 is 50, not in \[0, 50\)"),
        ({"tokens": ints(1, -1, 3)}, "token of row 1 is -1"),
        ({"positions": ints(0, 2, 3)}, "position of row 1 is 2 after 0; rows of a sequence have consecutive positions"),
        ({"positions": ints(638, 639, 640)}, "position of row 2 is 640, but a block table holds 640 positions"),
        ({"positions": ints(-1, 0, 1)}, "position of row 0 is -1"),
        ({"sequences": ints(0, 0, 1)}, "sequence of row 2 is 1, but there are 1 block tables"),
        (
            {"sequences": ints(0, 1, 0), "positions": ints(0, 0, 1), "block_tables": np.stack([table(0), table(20)])},
            "sequence of row 2 is 0, but its rows are not neighbours",
        ),
        ({"block_tables": table(BLOCKS)[None]}, r"block 0 of sequence 0 is 40, not in \[0, 40\)"),
        ({"logit_rows": ints(2, 1)}, r"logit_rows must ascend within \[0, 3\), got 1 at 1"),
        ({"logit_rows": ints(3)}, "logit_rows must ascend"),
        ({"tokens": ints(1, 2)}, "must have one length, got 2, 3 and 3"),
        ({"tokens": ints(), "positions": ints(), "sequences": ints(), "logit_rows": ints()}, "a pass takes 1 to 24 rows, got 0"),
    ],
)
def test_an_impossible_step_is_refused_and_the_program_goes_on(changed: dict[str, Any], message: str) -> None:
    program = make_program()
    with pytest.raises(ValueError, match=message):
        program.run(**(GOOD | changed))
    assert np.isfinite(program.run(**GOOD)).all()


@pytest.mark.parametrize("field", list(GOOD))
def test_arrays_of_another_type_are_refused_not_converted(field: str) -> None:
    with pytest.raises(TypeError):
        make_program().run(**(GOOD | {field: GOOD[field].astype(np.int64)}))


def test_more_rows_than_buffers_hold_are_refused() -> None:
    program = make_program(max_rows=4, max_logit_rows=2)
    with pytest.raises(ValueError, match="a pass takes 1 to 4 rows, got 5"):
        program.run(TOKENS[:5], np.arange(5, dtype=np.int32), np.zeros(5, np.int32), table(0)[None], ints(4))
    with pytest.raises(ValueError, match="hands back at most 2 rows of logits, got 3"):
        program.run(TOKENS[:3], np.arange(3, dtype=np.int32), np.zeros(3, np.int32), table(0)[None], ints(0, 1, 2))


def test_building_refuses_what_does_not_fit_and_names_it() -> None:
    cache = KVCache(1, KV_HEADS, DIM, BLOCK, BLOCKS)
    program = Program("portable", 1, 4, 4, cache)
    program.buffer("x", HIDDEN)
    program.buffer("wide", 2 * HIDDEN)
    for call, message in [
        (lambda: program.buffer("x", 3), "buffer 'x' exists already"),
        (lambda: program.rmsnorm("y", np.ones(HIDDEN, np.float32), "x", 0.0), "there is no buffer 'y'; the program has: x, wide"),
        (lambda: program.rmsnorm("x", np.ones(HIDDEN, np.float32), "x", 0.0), "'x' is read before anything writes it"),
        (lambda: program.embed(float_weight(VOCAB, 32, 0), "x"), "embed needs a buffer as wide as its weight, got 64 and 32"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    program.embed(float_weight(VOCAB, HIDDEN, 0), "x")
    for call, message in [
        (lambda: program.matmul("x", [float_weight(5, 32, 0)], "wide", False), "64 columns by a weight with 32"),
        (lambda: program.matmul("x", [float_weight(5, HIDDEN, 0)], "wide", False), "have 5 rows, but 'wide' has 128 columns"),
        (lambda: program.matmul("x", [float_weight(HIDDEN, HIDDEN, 0)], "x", True), "cannot write its own input 'x'"),
        (lambda: program.rope("x", 40, 1, DIM, DIM, 1e4, "halves"), r"rope needs columns \[40, 72\) of buffer 'x', which has 64"),
        (lambda: program.rope("x", 0, 2**60 + 1, 16, 16, 1e4, "halves"), r"rope needs columns \[0, past 2\^63\) of buffer 'x'"),
        (lambda: program.store_kv("x", 0, 0, 1), r"layer must be in \[0, 1\), got 1"),
        (lambda: program.attention("x", 0, "wide", 0, 3, 1.0), "multiple of the cache's 2 key-value heads, got 3"),
        (lambda: program.gated_activation("silu", "x", "wide"), "twice as wide"),
        (lambda: program.run(**GOOD), "no select_rows"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("portable", 0, 1, 1), "threads must be at least 1, got 0"),
        (("portable", 1, 0, 1), "max_rows must be at least 1, got 0"),
        (("portable", 1, 1, -3), "max_logit_rows must be at least 1, got -3"),
        (("sse9", 1, 1, 1), "isa must be one of"),
    ],
)
def test_a_program_of_impossible_size_is_refused(arguments: tuple[str, int, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Program(*arguments, KVCache(1, KV_HEADS, DIM, BLOCK, BLOCKS))


def grid_weight(grid: str, n: int, k: int, seed: int) -> PackedMatrix:
    values = np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)
    matrix = PackedMatrix(grid, n, k)
    matrix.pack_rows(0, n, values.reshape(-1).view(np.uint8), "F32")
    return matrix


def program_of_products(weights: list[list[PackedMatrix]], isa: str = "portable") -> Program:
    """Each list of weights multiplies one embedding; logits are the last product, of 40 rows in all."""
    program = Program(isa, 2, 24, 24, KVCache(1, KV_HEADS, DIM, BLOCK, BLOCKS))
    for name, width in [("x", HIDDEN), ("last", HIDDEN), ("logits", 40)]:
        program.buffer(name, width)
    program.embed(float_weight(VOCAB, HIDDEN, 0), "x")
    program.select_rows("x", "last")
    for matrices in weights:
        program.matmul("last", matrices, "logits", matrices is not weights[0])
    return program


def test_weights_of_one_matmul_are_all_on_row_grids_or_none_is() -> None:
    r4, r8 = grid_weight("R4", 20, HIDDEN, 1), grid_weight("R8", 20, HIDDEN, 2)
    for mixed in ([r4, byte_weight(20, HIDDEN, 2)], [float_weight(20, HIDDEN, 1), r8]):
        with pytest.raises(ValueError, match="all of types R8 and R4 or none of them is"):
            program_of_products([mixed])
    assert np.isfinite(program_of_products([[r4, r8]]).run(**GOOD)).all()


@pytest.mark.parametrize("isa", supported_isas())
def test_a_buffer_read_in_groups_and_in_rows_keeps_both_quantizations(isa: str) -> None:
    grid, groups = grid_weight("R4", 40, HIDDEN, 1), byte_weight(40, HIDDEN, 2)
    alone = [program_of_products([[weight]]).run(**GOOD).copy() for weight in (grid, groups)]
    for weights, expected in [
        ([[grid], [groups], [grid]], alone[0] + alone[1] + alone[0]),
        ([[groups], [grid], [groups]], alone[1] + alone[0] + alone[1]),
    ]:
        assert program_of_products(weights, isa).run(**GOOD).tobytes() == expected.tobytes()


def test_a_program_that_has_run_takes_no_more_operations() -> None:
    program = make_program()
    program.run(**GOOD)
    with pytest.raises(ValueError, match="takes no more operations"):
        program.matmul("last", [float_weight(VOCAB, HIDDEN, 0)], "logits", False)


def test_two_threads_cannot_run_one_program_at_once() -> None:
    """One of two concurrent calls may be refused; none may see the other's rows."""
    program = make_program(threads=2)
    expected = program.run(**GOOD).copy()
    outcomes: list[str] = []

    def call() -> None:
        for _ in range(200):
            try:
                program.run(**GOOD)
                outcomes.append("ran")
            except RuntimeError as error:
                outcomes.append(str(error))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert set(outcomes) <= {"ran", "the program is running already; one step at a time"}
    assert program.run(**GOOD).tobytes() == expected.tobytes()


FLUSHED_PROCESS = """
import ctypes, sys
import numpy as np
from swiftsure.kernels import KVCache, PackedMatrix, Program

ctypes.CDLL(sys.argv[1])
tiny = np.full(64, 1e-39, dtype=np.float32)
print("flushed" if not (tiny * np.float32(0.5)).any() else "kept", end=" ")
matrix = PackedMatrix("F32", 64, 64)
matrix.pack_rows(0, 64, np.tile(tiny, 64).view(np.uint8))
program = Program(sys.argv[2], 3, 64, 64, KVCache(1, 1, 16, 32, 2))
for name in ("x", "last", "logits"):
    program.buffer(name, 64)
program.embed(matrix, "x")
program.select_rows("x", "last")
identity = PackedMatrix("F32", 64, 64)
identity.pack_rows(0, 64, np.eye(64, dtype=np.float32).reshape(-1).view(np.uint8))
program.matmul("last", [identity], "logits", False)
rows = np.arange(64, dtype=np.int32)
logits = program.run(rows, rows, np.zeros(64, np.int32), np.arange(2, dtype=np.int32)[None], rows)
print("kept" if (logits == tiny).all() else "flushed", end=" ")
print("flushed" if not (tiny * np.float32(0.5)).any() else "kept")
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="only x86 start-up code flushes subnormals under -ffast-math")
@pytest.mark.parametrize("isa", supported_isas())
def test_flush_to_zero_set_by_a_foreign_library_changes_no_bit(tmp_path: Path, isa: str) -> None:
    """A library linked with -ffast-math flushes subnormals on the thread that loads it. Passes do not, and leave its setting alone."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++ to build such a library")
    source, library = tmp_path / "fast.cpp", tmp_path / "libfast.so"
    source.write_text('extern "C" int nothing() { return 0; }\n')
    subprocess.run([compiler, "-shared", "-fPIC", "-ffast-math", str(source), "-o", str(library)], check=True)
    command = [sys.executable, "-W", "ignore", "-c", FLUSHED_PROCESS, str(library), isa]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["flushed", "kept", "flushed"]


@pytest.mark.parametrize(("bits", "largest"), [(16, 32767), (8, 127)])
def test_the_cache_holds_what_was_stored_and_nothing_else(bits: int, largest: int) -> None:
    cache = KVCache(2, KV_HEADS, DIM, BLOCK, 4, bits)
    assert cache.bits == bits
    assert cache.nbytes == 2 * KV_HEADS * 4 * BLOCK * (DIM * bits // 4 + 8)  # 32 dimensions: one group
    program = Program("portable", 1, 4, 1, cache)
    program.buffer("x", 2 * KV_HEADS * DIM)
    program.buffer("last", 2 * KV_HEADS * DIM)
    weight = np.random.default_rng(0).standard_normal((8, 2 * KV_HEADS * DIM)).astype(np.float32)
    matrix = PackedMatrix("F32", *weight.shape)
    matrix.pack_rows(0, 8, weight.reshape(-1).view(np.uint8))
    program.embed(matrix, "x")
    program.store_kv("x", 0, KV_HEADS * DIM, 1)
    program.select_rows("x", "last")
    program.run(ints(3, 5), ints(33, 34), ints(0, 0), ints(0, 2)[None], ints(1))
    for head in range(KV_HEADS):
        keys, key_scales, values, value_scales = cache.read_block(1, head, 2)
        for offset, token in [(1, 3), (2, 5)]:
            key = weight[token, head * DIM : (head + 1) * DIM]
            value = weight[token, (KV_HEADS + head) * DIM : (KV_HEADS + head + 1) * DIM]
            np.testing.assert_allclose(keys[:, offset] * key_scales[0, offset], key, atol=0.51 * key_scales[0, offset])
            np.testing.assert_allclose(values[offset] * value_scales[offset], value, atol=0.51 * value_scales[offset])
            assert np.abs(keys[:, offset]).max() == largest
        untouched = np.ones(BLOCK, dtype=bool)
        untouched[1:3] = False
        assert not keys[:, untouched].any()
        assert not values[untouched].any()
        assert not key_scales[:, untouched].any()
    assert not any(part.any() for block in (0, 1, 3) for part in cache.read_block(1, 0, block))


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_that_overflows_reaches_no_row_before_it_and_every_row_after_it(isa: str, threads: int) -> None:
    tokens = np.array([2, 3, 4, 5, 6, 7, 8] * 5 + [1] + [2, 3, 4, 5], dtype=np.int32)
    count = len(tokens)
    table, positions, all_zero = ints(0, 1)[None, :], np.arange(count, dtype=np.int32), np.zeros(count, np.int32)
    together = np.array(overflowing_program(isa, threads).run(tokens, positions, all_zero, table, positions))
    one_by_one = overflowing_program("portable", 1)
    alone = [np.array(one_by_one.run(tokens[p : p + 1], ints(p), ints(0), table, ints(0))[0]) for p in range(count)]
    assert together.tobytes() == np.stack(alone).tobytes()
    assert np.isfinite(together[:35]).all()
    assert np.isnan(together[35:]).all()
