"""A timed program: the same bits, every piece named, times that add up."""

from __future__ import annotations

import numpy as np
import pytest
from test_program import GOOD, TOKENS, feed, make_program

from swiftsure.kernels import _core, supported_isas

PIECES = [
    (0, "embed"),
    (0, "rms_norm"),
    (0, "quantize"),
    (1, "matmul"),
    (2, "rope"),
    (2, "store_kv"),
    (3, "attention"),
    (4, "merge"),
    (5, "matmul"),
    (6, "rms_norm"),
    (6, "quantize"),
    (7, "matmul"),
    (8, "activation"),
    (8, "quantize"),
    (9, "matmul"),
    (10, "select_rows"),
    (11, "matmul"),
]


def test_every_operation_is_a_piece_in_the_order_of_the_work() -> None:
    assert [piece[:2] for piece in make_program().pieces()] == PIECES


def test_a_matmul_states_the_packed_bytes_of_all_its_weights() -> None:
    """q as Q8_0 beside k and v as F32, then o, gate and up, down as Q8_0 and the head as F32, in strips of 16 rows."""
    read = [size for _, name, size in make_program().pieces() if name == "matmul"]
    byte = 34 / 32
    assert read == [192 * 64 * byte + 128 * 64 * 4, 64 * 192 * byte, 192 * 64 * byte, 64 * 96 * byte, 64 * 64 * 4]
    assert not any(size for _, name, size in make_program().pieces() if name != "matmul")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("cuts", [[1], [24]], ids=["rows one by one", "rows together"])
def test_timing_changes_no_bit_and_its_times_lie_within_the_run(threads: int, cuts: list[int]) -> None:
    """300 positions are two spans, which several threads share in passes of so few rows: then there is something to merge."""
    tokens = TOKENS[:300]
    timed, plain = make_program(threads=threads), make_program(threads=threads)
    timed.profile(True)
    assert feed(timed, tokens, cuts).tobytes() == feed(plain, tokens, cuts).tobytes()
    planned, wall, shares, work = timed.times()
    assert shares.shape == (threads, 12, 3)
    assert work.shape == (threads, len(PIECES))
    first, last, chunks = shares[..., 0], shares[..., 1], shares[..., 2]
    busy = chunks > 0
    assert 0 < planned <= first[busy].min()
    assert last.max() <= wall
    assert (first[busy] <= last[busy]).all()
    assert not first[~busy].any()
    assert not last[~busy].any()
    spans = (last - first).sum(axis=1)
    assert (work.sum(axis=1) == spans).all()
    assert (work >= 0).all()
    ran = {piece for piece, total in zip(PIECES, work.sum(axis=0), strict=True) if total > 0}
    assert ran == set(PIECES) - ({(4, "merge")} if threads == 1 else set())
    ends = np.where(busy, last, 0).max(axis=0)
    begins = np.where(busy, first, wall).min(axis=0)
    for earlier, later in zip(ends[:-1], begins[1:], strict=True):
        assert earlier <= later


def test_times_are_those_of_the_last_run_alone_and_end_with_the_timing() -> None:
    program = make_program()
    with pytest.raises(ValueError, match="was not asked to time its runs"):
        program.times()
    program.profile(True)
    for _ in range(3):
        program.run(**GOOD)
    _, _, shares, _ = program.times()
    program.run(**GOOD)
    assert (program.times()[2][..., 2] == shares[..., 2]).all()
    program.profile(False)
    with pytest.raises(ValueError, match="was not asked to time its runs"):
        program.times()


@pytest.mark.parametrize("isa", supported_isas())
@pytest.mark.parametrize("kind", ["integer", "float"])
def test_the_arithmetic_ceiling_is_measured_pass_by_pass(kind: str, isa: str) -> None:
    rates = _core.arithmetic_passes(kind, isa, 2, 3)
    assert len(rates) == 3
    assert all(1e6 < rate < 1e15 for rate in rates)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("complex", "portable", 1, 1), "kind must be integer or float"),
        (("float", "sse9", 1, 1), "isa must be one of"),
        (("float", "portable", 0, 1), "threads must lie in"),
        (("float", "portable", 1, 0), "passes must lie in"),
    ],
)
def test_an_impossible_ceiling_is_refused(arguments: tuple[str, str, int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _core.arithmetic_passes(*arguments)
