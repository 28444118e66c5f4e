"""Attention that sees a window of positions: what a row sees, what it does not, and what may not change a bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.kernels import KVCache, PackedMatrix, Program, _core, reference, supported_isas

isas = pytest.mark.parametrize("isa", supported_isas())
Floats = NDArray[np.float32]
BLOCKS, MAX_ROWS, VOCAB = 24, 40, 90


def table(width: int, seed: int = 1) -> Floats:
    """Rows of queries, keys and values, one for each token."""
    return np.random.default_rng(seed).standard_normal((VOCAB, width)).astype(np.float32)


def attending(isa: str, threads: int, rows: Floats, heads: int, kv_heads: int, dim: int, window: int | None) -> Program:
    """Attention straight on embeddings; "last" holds what was attended to. A second layer sees everything, so that cuts differ."""
    program = Program(isa, threads, MAX_ROWS, MAX_ROWS, KVCache(2, kv_heads, dim, 32, BLOCKS))
    for name, width in (("qkv", rows.shape[1]), ("all", heads * dim), ("seen", heads * dim), ("last", heads * dim), ("logits", VOCAB)):
        program.buffer(name, width)
    weight = PackedMatrix("F32", *rows.shape)
    weight.pack_rows(0, VOCAB, np.ascontiguousarray(rows).reshape(-1).view(np.uint8))
    head = PackedMatrix("Q8_0", VOCAB, heads * dim)  # zeros; quantizing its input is part of what is cut
    program.embed(weight, "qkv")
    for layer, out, sees in ((0, "all", None), (1, "seen", window)):
        program.store_kv("qkv", heads * dim, (heads + kv_heads) * dim, layer)
        program.attention("qkv", 0, out, layer, heads, dim**-0.5, sees)
    program.select_rows("seen", "last")
    program.matmul("last", [head], "logits", False)
    return program


def attended(program: Program, tokens: NDArray[np.int32], cuts: list[int], order: list[int] | None = None) -> Floats:
    """(tokens, heads * head_dim), fed in passes of ``cuts`` rows, the last of which repeats."""
    blocks = np.array(order or range(BLOCKS), dtype=np.int32)[None]
    rows: list[Floats] = []
    done = 0
    while done < len(tokens):
        count = min(cuts[min(len(rows), len(cuts) - 1)], len(tokens) - done)
        positions, every = np.arange(done, done + count, dtype=np.int32), np.arange(count, dtype=np.int32)
        program.run(tokens[done : done + count], positions, np.zeros(count, np.int32), blocks, every)
        rows.append(program.selected_rows("last").copy())
        done += count
    return np.concatenate(rows)


def tokens_of(count: int) -> NDArray[np.int32]:
    return np.random.default_rng(3).integers(2, VOCAB, count).astype(np.int32)


@isas
@given(
    seed=st.integers(0, 2**32 - 1),
    heads=st.integers(1, 14),
    head_dim=st.sampled_from([16, 48, 256]),
    length=st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 511, 600])),
    window=st.one_of(st.integers(1, 70), st.sampled_from([255, 256, 257, 512, 10_000])),
    block_size=st.sampled_from([16, 32, 64, 256]),
    kv_bits=st.sampled_from([16, 8]),
)
@settings(max_examples=40, deadline=None)
def test_a_row_attends_to_the_last_keys_of_any_window(
    isa: str, seed: int, heads: int, head_dim: int, length: int, window: int, block_size: int, kv_bits: int
) -> None:
    rng = np.random.default_rng(seed)
    q, keys, values = (rng.standard_normal((n, head_dim)).astype(np.float32) for n in (heads, length, length))
    out = _core.attention(isa, q, keys, values, block_size, kv_bits, window)
    assert out.tobytes() == _core.attention("portable", q, keys, values, block_size, kv_bits, window).tobytes()
    cached = [reference.cached_keys(keys, kv_bits)[:, None], reference.cached(values, kv_bits)[:, None]]
    truth = reference.attention(q[None].astype(np.float64), *cached, [length - 1], 1.0, window)[0]
    score = float(np.abs(q.astype(np.float64) @ keys.T.astype(np.float64)).max())
    np.testing.assert_allclose(out, truth, rtol=0, atol=float(np.abs(values).max()) * 6e-6 * (4 + score))


def test_the_twin_sees_its_own_position_and_those_before_it_within_the_window() -> None:
    rng = np.random.default_rng(0)
    q, keys, values = rng.standard_normal((3, 2, 8)), rng.standard_normal((9, 1, 8)), rng.standard_normal((9, 1, 8))
    out = reference.attention(q, keys, values, [0, 3, 8], 0.5, 3)
    for row, (first, position) in enumerate([(0, 0), (1, 3), (6, 8)]):
        seen = slice(first, position + 1)
        alone = reference.attention(q[row : row + 1], keys[seen], values[seen], [position - first], 0.5)
        np.testing.assert_allclose(out[row], alone[0], rtol=1e-12)


@cache
def row_by_row(heads: int, kv_heads: int, dim: int, window: int) -> Floats:
    """On the portable path with one thread."""
    rows, tokens = table((heads + 2 * kv_heads) * dim), tokens_of(560)
    return attended(attending("portable", 1, rows, heads, kv_heads, dim, window), tokens, [1])


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 1, 64), (6, 2, 16), (3, 3, 32), (2, 1, 256)])
@given(
    isa=st.sampled_from(supported_isas()),
    threads=st.integers(1, 4),
    window=st.sampled_from([1, 5, 31, 32, 100, 255, 256, 257, 300, 512]),
    cuts=st.lists(st.integers(1, MAX_ROWS), min_size=1, max_size=40),
    order=st.permutations(range(BLOCKS)),
)
@settings(max_examples=20, deadline=None)
def test_cuts_threads_blocks_and_instruction_sets_change_no_bit(
    heads: int, kv_heads: int, dim: int, isa: str, threads: int, window: int, cuts: list[int], order: list[int]
) -> None:
    rows, tokens = table((heads + 2 * kv_heads) * dim), tokens_of(560)
    cut = attended(attending(isa, threads, rows, heads, kv_heads, dim, window), tokens, cuts, order)
    assert cut.tobytes() == row_by_row(heads, kv_heads, dim, window).tobytes()


@isas
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 40, 256, 300])
def test_every_row_sees_its_window_and_nothing_else(isa: str, threads: int, window: int) -> None:
    heads, kv_heads, dim = 4, 1, 32
    rows, tokens = table((heads + 2) * dim), tokens_of(560)
    out = attended(attending(isa, threads, rows, heads, kv_heads, dim, window), tokens, [MAX_ROWS] * 8 + [3])
    fed = rows[tokens].reshape(len(tokens), heads + 2, dim)
    keys, values = (reference.cached(fed[:, part], 16)[:, None] for part in (heads, heads + 1))
    truth = reference.attention(fed[:, :heads].astype(np.float64), keys, values, np.arange(560), dim**-0.5, window)
    np.testing.assert_allclose(out.reshape(truth.shape), truth, rtol=0, atol=5e-5)


@isas
@pytest.mark.parametrize("cuts", [[1], [MAX_ROWS], [7]])
def test_what_has_left_the_window_may_be_anything(isa: str, cuts: list[int]) -> None:
    """Not even a key or value that is not finite reaches a row past it, though rows of one pass share what they read."""
    heads, kv_heads, dim, window, bad = 4, 2, 32, 50, 300
    rows = table((heads + 2 * kv_heads) * dim)
    rows[1, heads * dim + 3] = np.inf
    rows[1, -1] = np.nan
    tokens = tokens_of(420)
    broken = tokens.copy()
    broken[bad] = 1
    first, second = (attended(attending(isa, 2, rows, heads, kv_heads, dim, window), fed, cuts) for fed in (tokens, broken))
    assert first[:bad].tobytes() == second[:bad].tobytes()
    assert np.isnan(second[bad : bad + window]).all()
    assert first[bad + window :].tobytes() == second[bad + window :].tobytes()


def test_a_window_is_at_least_the_row_itself() -> None:
    with pytest.raises(ValueError, match="window must be at least 1, got 0"):
        attending("portable", 1, table(96), 1, 1, 32, 0)
    one = np.ones((1, 16), dtype=np.float32)
    with pytest.raises(ValueError, match="window must be at least 1, got -3"):
        _core.attention("portable", one, one, one, 32, 16, -3)
