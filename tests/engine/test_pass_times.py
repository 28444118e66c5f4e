"""From raw times to operations: arithmetic on times that are written here, no clock."""

from __future__ import annotations

import numpy as np
import pytest

from swiftsure.engine.pass_times import PassTimes, Piece, RawTimes, pass_times, pieces_of, together, typical
from tiny_models import TinyModel, TinySpec, spec_of_architecture

MODEL = TinyModel(TinySpec(layers=2))
LAYER = [
    "matmul",
    "rope",
    "rope",
    "store_kv",
    "attention",
    "merge",
    "quantize",
    "matmul",
    "rms_norm",
    "quantize",
    "matmul",
    "activation",
    "quantize",
]
NAMES = ["embed", *["rms_norm", "quantize", *LAYER, "matmul"] * 2, "select_rows", "rms_norm", "quantize", "matmul"]


def piece(stage: int, name: str = "matmul", **fields: object) -> Piece:
    return Piece(**({"stage": stage, "name": name, "op": 0, "kind": "o", "layer": 0, "packed_bytes": 0, "whole": True} | fields))  # type: ignore[arg-type]


def raw(planned: int, wall: int, shares: list[list[tuple[int, int, int]]], work: list[list[int]]) -> RawTimes:
    return RawTimes(planned_ns=planned, wall_ns=wall, shares=np.array(shares, np.int64), work=np.array(work, np.int64))


# Two threads, three stages. Thread 1 comes late to stage 0, nobody has work in stage 1, thread 0 alone works in stage 2.
TIMES = raw(
    10,
    100,
    [[(12, 40, 2), (0, 0, 0), (52, 90, 1)], [(20, 50, 1), (0, 0, 0), (0, 0, 0)]],
    [[6, 20, 0, 38], [10, 20, 0, 0]],
)
PIECES = (piece(0, "rms_norm"), piece(0), piece(1, "merge"), piece(2))


def test_work_waiting_planning_and_the_way_back_sum_to_the_pass() -> None:
    times = pass_times(PIECES, TIMES)
    assert times.call_s == pytest.approx((10 + 10) * 1e-9)
    inside = (times.work_s + times.wait_s).sum(axis=0).mean()
    assert times.call_s + (times.work_s + times.wait_s).sum() / 2 == pytest.approx(times.wall_s) == pytest.approx(100e-9)
    assert inside > 0


def test_a_stage_begins_where_the_one_before_it_ended_and_idle_threads_wait_for_all_of_it() -> None:
    times = pass_times(PIECES, TIMES)
    waits = times.wait_s * 1e9
    assert waits[0, :2].sum() == pytest.approx(40 - 26)  # stage 0 lasts from 10 to 50
    assert waits[1, :2].sum() == pytest.approx(40 - 30)
    assert waits[:, 2].tolist() == [0, 0]
    assert waits[:, 3].tolist() == pytest.approx([40 - 38, 40])  # from 50 to 90


def test_waiting_is_shared_among_the_pieces_of_a_stage_by_their_work() -> None:
    waits = pass_times(PIECES, TIMES).wait_s
    assert waits[0, 1] / waits[0, 0] == pytest.approx(40 / 16)


def test_passes_that_follow_each_other_add_up() -> None:
    one = pass_times(PIECES, TIMES)
    both = together([one, one])
    assert (both.wall_s, both.call_s) == (2 * one.wall_s, 2 * one.call_s)
    assert (both.work_s == 2 * one.work_s).all()


def test_the_typical_pass_is_the_median_of_every_part_and_says_what_it_has_beyond_them() -> None:
    """Four repeats like one another; in each, somebody took 50 ns from another piece."""
    one = pass_times(PIECES, TIMES)
    hit = []
    for i in range(4):
        work = one.work_s.copy()
        work[:, i] += 50e-9
        hit.append(PassTimes(wall_s=one.wall_s + 50e-9, call_s=one.call_s, work_s=work, wait_s=one.wait_s))
    times = typical(hit)
    assert times.work_s == pytest.approx(one.work_s.mean(axis=0))
    assert times.wait_s == pytest.approx(one.wait_s.mean(axis=0))
    assert times.wall_s == pytest.approx(150e-9)
    assert times.interrupted_s == pytest.approx(50e-9)
    assert times.threads[0] == pytest.approx((one.work_s[0].sum() + 50e-9, one.wait_s[0].sum()))


def test_one_pass_is_typical_of_itself_and_none_is_not() -> None:
    one = pass_times(PIECES, TIMES)
    assert typical([one]).interrupted_s == pytest.approx(0, abs=1e-15)
    with pytest.raises(ValueError, match="without passes"):
        typical([])


def test_every_operation_of_a_schedule_has_its_piece_kind_and_layer() -> None:
    pieces = pieces_of(MODEL.schedule, [(0, name, 7) for name in NAMES])
    assert [one.op for one in pieces if one.whole] == list(range(len(MODEL.schedule.ops)))
    assert [one.kind for one in pieces if one.name == "matmul"] == ["qkv", "o", "gate_up", "down"] * 2 + ["head"]
    assert {one.kind for one in pieces if one.name in ("quantize", "rms_norm")} == {"norms+quantize"}
    assert [one.layer for one in pieces] == [None, *[0] * 16, *[1] * 16, *[None] * 4]
    merges = [one for one in pieces if one.name == "merge"]
    assert [MODEL.schedule.ops[one.op].layer for one in merges] == [0, 1]  # type: ignore[union-attr]  # all attention


@pytest.mark.parametrize(("architecture", "name", "kind"), [("qwen2", "add_bias", "rope+cache"), ("qwen3", "head_norm", "norms+quantize")])
def test_operations_of_other_architectures_have_their_kind_and_layer(architecture: str, name: str, kind: str) -> None:
    model = TinyModel(spec_of_architecture(architecture, type="F32"))
    program = [name if type(op).__name__ in ("AddBias", "HeadNorm") else "other" for op in model.schedule.ops]
    found = [one for one in pieces_of(model.schedule, [(0, one, 0) for one in program]) if one.name == name]
    assert [one.layer for one in found] == sorted([0, 1] * (len(found) // 2))
    assert {one.kind for one in found} == {kind}


@pytest.mark.parametrize(("names", "message"), [(NAMES[:-1], "pieces for 25 of the 26"), ([*NAMES, "matmul"], "past the 26 operations")])
def test_a_program_of_another_schedule_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pieces_of(MODEL.schedule, [(0, name, 0) for name in names])
