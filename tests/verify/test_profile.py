"""A profile's rows, sentences and page, from times that are written here."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from swiftsure.engine.pass_times import Piece, TypicalTimes
from swiftsure.engine.profile import Case, CaseTimes, GenerationTimes
from swiftsure.models.costs import StepCost
from swiftsure.records.arithmetic_peak import ArithmeticPeak
from swiftsure.records.machine import read_machine
from swiftsure.records.memory_wall import ReadBandwidth
from swiftsure.verify.profiling import report
from swiftsure.verify.profiling.profile import CaseProfile, Limits, ProfileResult, summarise

LIMITS = Limits(read_bytes_per_s=10e9, integer_ops_per_s=100e9, float_ops_per_s=20e9)
BANDWIDTH = ReadBandwidth(buffer_bytes=100_000_000, threads=2, pass_s=(0.01,))
GENERATION = GenerationTimes(steps=10, tokens=10, step_s=1.5e-3, pass_s=1e-3, sampling_s=1e-4, drafting_s=0.0, python_s=4e-4)


def cost(name: str, shape: str, weights: int, cache: int, operations: int) -> StepCost:
    return StepCost(name=name, reads=(), writes="x", shape=shape, weight_bytes=weights, kv_bytes=cache, operations=operations)


# An operation bound by reading (1 ms), one by products of integers (2 ms), one by float arithmetic (0.5 ms), one by nothing.
COSTS = (
    cost("matmul", "8 x 8 Q4_1", 10_000_000, 0, 1_000_000),
    cost("matmul", "8 x 8 Q8_0", 1_000_000, 0, 200_000_000),
    cost("attention", "4 heads x 9 keys", 0, 1_000, 10_000_000),
    cost("select_rows", "8", 0, 0, 0),
)
PIECES = (
    Piece(stage=0, name="quantize", op=0, kind="norms+quantize", layer=0, packed_bytes=0, whole=False),
    Piece(stage=1, name="matmul", op=0, kind="qkv", layer=0, packed_bytes=0, whole=True),
    Piece(stage=2, name="attention", op=2, kind="attention", layer=0, packed_bytes=0, whole=True),
    Piece(stage=3, name="matmul", op=1, kind="qkv", layer=1, packed_bytes=0, whole=True),
    Piece(stage=4, name="select_rows", op=3, kind="embed+select", layer=None, packed_bytes=0, whole=True),
)
WORK = np.array([0.1, 1.5, 1.0, 4.0, 0.1]) * 1e-3
WAIT = np.array([0.0, 0.5, 0.0, 1.0, 0.1]) * 1e-3
TIMES = CaseTimes(
    case=Case(kind="decode", rows=1, context=8),
    pieces=PIECES,
    times=TypicalTimes(wall_s=8.8e-3, call_s=0.1e-3, work_s=WORK, wait_s=WAIT, threads=((5.3e-3, 3e-3), (8.1e-3, 0.2e-3))),
    call_s=0.05e-3,
    costs=(COSTS,),
    untimed_median_s=8.0e-3,
    timed_median_s=8.4e-3,
    repeats=7,
    sampling_s=0.2e-3,
)


@pytest.fixture
def case() -> CaseProfile:
    return summarise(TIMES, LIMITS, GENERATION, BANDWIDTH)


def by_name(case: CaseProfile) -> dict[str, Any]:
    return {row.name: row for row in case.rows}


def test_kinds_fold_the_layers_and_stand_in_the_order_of_a_token(case: CaseProfile) -> None:
    names = ["embed+select", "norms+quantize", "qkv", "attention", "barriers+idle", "interrupted", "plan+call", "sampling", "python"]
    assert [row.name for row in case.rows] == names
    qkv = by_name(case)["qkv"]
    assert (qkv.work_s, qkv.wait_s) == (pytest.approx(5.5e-3), pytest.approx(1.5e-3))
    assert (qkv.bytes, qkv.operations) == (11_000_000, 201_000_000)


def test_rows_sum_to_the_step_and_those_of_the_pass_to_the_pass(case: CaseProfile) -> None:
    rows = by_name(case)
    assert rows["barriers+idle"].work_s == pytest.approx(1.6e-3)
    assert rows["interrupted"].work_s == pytest.approx(0.4e-3)
    assert rows["plan+call"].work_s == pytest.approx(0.15e-3)
    around = rows["sampling"].work_s + rows["python"].work_s
    assert case.total_s - around == pytest.approx(8.8e-3 + 0.05e-3)
    assert sum(row.work_s for row in case.rows) == case.total_s
    assert case.tokens_per_s == 1 / case.total_s


def test_the_limit_that_takes_longer_binds_and_the_fraction_counts_waiting(case: CaseProfile) -> None:
    rows = by_name(case)
    first, attention, second, select = [row for row in case.operations if row.name != "quantize"]
    assert (first.limit, first.limit_s) == ("memory", pytest.approx(1e-3))
    assert (second.limit, second.limit_s) == ("arithmetic", pytest.approx(2e-3))
    assert (attention.limit, attention.fraction) == ("arithmetic", pytest.approx(0.5))
    assert (select.limit, select.fraction) == (None, None)
    assert rows["qkv"].limit == "arithmetic"
    assert rows["qkv"].fraction == pytest.approx(3 / 7)
    assert rows["qkv"].gb_per_s == pytest.approx(0.011 / 7e-3)
    assert (case.limit, case.limit_s) == ("arithmetic", pytest.approx(3.5e-3))
    assert case.wall_s == pytest.approx(1.1001e-3)


def test_matmuls_over_float_weights_are_held_against_float_arithmetic() -> None:
    assert LIMITS.seconds(cost("matmul", "8 x 8 BF16", 0, 0, 20_000_000))[1] == pytest.approx(1e-3)
    assert LIMITS.seconds(cost("matmul", "8 x 8 BF16+Q8_0", 0, 0, 20_000_000))[1] == pytest.approx(2e-4)


def test_a_prefill_shows_nothing_around_the_pass_and_drafting_appears_with_drafts(case: CaseProfile) -> None:
    prefill = replace(TIMES, case=Case(kind="prefill", rows=512), sampling_s=None)
    assert [row.name for row in summarise(prefill, LIMITS, None, BANDWIDTH).rows][-1] == "plan+call"
    drafting = summarise(TIMES, LIMITS, replace(GENERATION, drafting_s=1e-5), BANDWIDTH)
    assert by_name(drafting)["drafting"].work_s == 1e-5


def result(case: CaseProfile) -> ProfileResult:
    peaks = tuple(ArithmeticPeak(kind=kind, isa="amx", threads=2, pass_ops_per_s=(200e9,)) for kind in ("integer", "float"))
    facts = {"mode": "default", "numerics": "cpu1", "isa": "amx", "threads": 2, "levers": {}, "status": "ok"}
    facts |= {"model": "<model>", "weights_sha256": "ab"}
    return ProfileResult(
        activation=facts, pins={}, cases=(case,), generation=GENERATION, peaks=peaks, load_s=1.0, wall_s=2.0, machine=read_machine()
    )


def test_the_table_has_a_line_for_every_row_and_the_sum(case: CaseProfile) -> None:
    lines = report.cells(case)
    assert [line[0] for line in lines] == [*by_name(case), "all"]
    assert all(len(line) == len(report.HEAD) for line in lines)
    assert lines[-1][1:3] == ["9.450", "100.0%"]
    assert lines[2] == ["qkv", "5.500", "58.2%", "1.6", "28.7", "arithmetic 43%", "1.500"]
    layers = report.layer_cells(case)
    assert [line[:3] for line in layers][:2] == [["0", "quantize", "100.0"], ["0", "qkv", "1500.0"]]
    assert all(len(line) == len(report.LAYER_HEAD) for line in layers)


def test_the_words_state_both_medians_the_limits_and_each_thread(case: CaseProfile) -> None:
    assert report.headline(case) == "decode, 1 row at context 8: 9.45 ms, 106 tokens/s"
    medians, whole, threads = report.remarks(case)
    assert medians == "medians of 7: untimed 8.000 ms, timed 8.400 ms (+5.0%)"
    assert whole == "the pass: 40% of its limits (arithmetic binds), 13% of the memory wall"
    assert threads == "work + waiting, ms: thread 0 5.30 + 3.00; thread 1 8.10 + 0.20"
    busy = summarise(replace(TIMES, times=replace(TIMES.times, wall_s=10e-3)), LIMITS, GENERATION, BANDWIDTH)
    assert report.remarks(busy)[0] == "the machine was busy: others took 16% of the pass, so read the operations, not the sum"
    several = summarise(replace(TIMES, case=Case(kind="decode", rows=4)), LIMITS, GENERATION, BANDWIDTH)
    assert report.headline(several).endswith("423 tokens/s if every row is kept")
    assert report.limits(result(case)) == [
        "limits with 2 threads: reading 10.0 GB/s,",
        "integer products 200 GOP/s (amx), float 200 GOP/s",
        "generation: 10 tokens in 10 steps of 1.50 ms,",
        "of a step, ms: pass 1.000, sampling 0.100, python 0.400",
    ]


def test_the_record_and_the_page_carry_the_figures(case: CaseProfile) -> None:
    record = json.loads(json.dumps(result(case).record(["profile"]).to_dict()))
    found = record["results"]["cases"][0]
    assert (record["command"], record["status"]) == ("profile", "ok")
    assert sum(row["share"] for row in found["operations"]) == pytest.approx(1)
    assert found["layers"][1]["layer"] == 0
    assert found["memory_wall_fraction"] == pytest.approx(1.1001 / 8.8)
    page = report.render_profile(result(case))
    assert "&lt;model&gt;" in page
    assert "<model>" not in page
    assert page.count("<svg") == 1
    assert "5.500 ms · 58.2% · arithmetic 43%" in page


def test_only_the_cpu_back_end_can_be_profiled() -> None:
    from swiftsure.engine.profile import Profiler
    from swiftsure.errors import UsageError

    llm: Any = SimpleNamespace(backend=SimpleNamespace())
    with pytest.raises(UsageError, match="only the cpu back end"):
        Profiler(llm, [1])
