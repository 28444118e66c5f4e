"""Profiling a real (tiny) model: every operation is named, its bytes are those of the schedule, the parts fit the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import swiftsure
from swiftsure import LLM
from swiftsure.engine.checking import check
from swiftsure.engine.profile import Case, Profiler
from swiftsure.errors import ContextLengthError, UsageError
from tiny_models import TinyModel, TinySpec

SPEC = TinySpec(seed=3, layers=3)
IDS = list(range(5, 60))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(SPEC).write_gguf(tmp_path_factory.mktemp("profile") / "tiny.gguf")


@pytest.fixture(scope="module")
def llm(path: Path) -> Iterator[LLM]:
    with swiftsure.load(path, mode="exact", threads=2, isa="portable") as llm:
        yield llm


@pytest.mark.parametrize(
    "case",
    [Case(kind="decode", rows=1), Case(kind="decode", rows=4, context=300), Case(kind="prefill", rows=600)],
    ids=lambda case: case.name,
)
def test_the_parts_of_a_pass_add_up_to_it_and_fit_the_call(llm: LLM, case: Case) -> None:
    found = Profiler(llm, IDS).time_case(case, repeats=3)
    times = found.times
    parts = times.call_s + times.work_s.sum() + times.wait_s.sum()
    assert 0 < parts <= times.wall_s + abs(times.interrupted_s)
    assert parts + times.interrupted_s == pytest.approx(times.wall_s)
    assert len(times.threads) == 2
    assert found.call_s > 0
    assert (times.wait_s >= 0).all()
    assert found.repeats == 3
    assert (found.sampling_s is None) == (case.kind == "prefill")
    ran = {piece.name for piece, work in zip(found.pieces, times.work_s, strict=True) if work > 0}
    assert ran >= {piece.name for piece in found.pieces} - {"merge"}


def test_the_bytes_of_a_pass_are_those_that_check_prints(llm: LLM, path: Path) -> None:
    found = Profiler(llm, IDS).time_case(Case(kind="decode", rows=1), repeats=1)
    assert found.costs == (check(path).schedule,)
    assert [piece.op for piece in found.pieces if piece.whole] == list(range(len(found.costs[0])))
    assert all(found.costs[0][piece.op].name == piece.name for piece in found.pieces if piece.whole)


def test_a_prompt_is_read_in_passes_of_which_the_last_alone_wants_logits(llm: LLM) -> None:
    profiler = Profiler(llm, IDS)
    costs = profiler.time_case(Case(kind="prefill", rows=600), repeats=1).costs
    heads = [one[-1].operations for one in costs]
    assert heads[:-1] == [0] * (len(costs) - 1)
    assert heads[-1] == 2 * SPEC.hidden * SPEC.vocab
    attention = sum(cost.operations for one in costs for cost in one if cost.name == "attention")
    assert attention == SPEC.layers * 4 * SPEC.heads * SPEC.head_dim * 600 * 601 // 2


def test_profiling_leaves_the_model_with_its_bits(llm: LLM) -> None:
    before = llm.logits(IDS)
    Profiler(llm, IDS).time_case(Case(kind="decode", rows=2, context=40), repeats=2)
    assert np.array_equal(llm.logits(IDS).view(np.uint32), before.view(np.uint32))


def test_the_parts_of_a_generation_step_sum_to_it(llm: LLM) -> None:
    times = Profiler(llm, IDS).time_generation(prompt=20, tokens=12)
    assert times.tokens == 11
    assert 1 <= times.steps <= 11
    assert times.pass_s + times.sampling_s + times.drafting_s + times.python_s == pytest.approx(times.step_s)
    assert min(times.pass_s, times.sampling_s, times.drafting_s, times.python_s) > 0


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        (Case(kind="decode", rows=33), UsageError, "1 to 32 rows, got 33"),
        (Case(kind="decode", rows=0), UsageError, "got 0"),
        (Case(kind="prefill", rows=0), UsageError, "rows must be at least 1"),
        (Case(kind="decode", rows=1, context=-1), UsageError, "context at least 0"),
        (Case(kind="decode", rows=1, context=640), ContextLengthError, "needs 641 positions, the context has 640"),
    ],
)
def test_a_case_that_cannot_be_run_is_refused(llm: LLM, case: Case, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Profiler(llm, IDS).time_case(case)


def test_a_text_without_tokens_is_refused(llm: LLM) -> None:
    with pytest.raises(UsageError, match="at least 1 token"):
        Profiler(llm, [])
