"""A run that is over, played again: the same passes as the engine ran, and never better than the ceiling."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from fakes import FakeBackend, FakeDrafter, StillCost, make_engine, request, run_all
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.engine.drafting.lookup import Lookup
from swiftsure.engine.drafting.planner import DraftPlanner
from swiftsure.engine.drafting.replay import ceiling, replay, right_lengths
from swiftsure.engine.evidence import SpeculationEvidence
from swiftsure.engine.speculation import StepCost

SECONDS = {1: 0.002, 2: 0.0024, 4: 0.003, 8: 0.005, 16: 0.009}


def planner() -> DraftPlanner:
    made = DraftPlanner((Lookup(FakeDrafter),), SpeculationEvidence())
    made.policy.cost = StepCost(SECONDS)
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_ceiling_is_the_cheapest_of_all_ways_through(right: list[int]) -> None:
    cost = StepCost(SECONDS)
    count, best = len(right), float("inf")
    for lengths in product(range(4), repeat=count):  # a length for every position; only those reached are used
        at, spent = 0, 0.0
        while at < count:
            length = min(lengths[at], count - at - 1)
            spent += cost.relative(1 + length)
            at += min(length, right[at]) + 1
        best = min(best, spent)
    found = ceiling(right, cost)
    assert found.cost == pytest.approx(best)
    assert found.tokens == count
    assert found.passes <= count


def test_ceiling_of_drafts_that_are_never_right_is_plain_decoding() -> None:
    found = ceiling([0] * 20, StepCost(SECONDS))
    assert (found.speedup, found.tokens_per_pass) == (1.0, 1.0)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_replay_runs_the_passes_that_the_engine_ran(temperature: float) -> None:
    backend = FakeBackend(reach=2, vocab=12)
    engine = make_engine(backend, levers=("speculation",))
    engine.drafting.policy.cost = StillCost(SECONDS)
    one = request([1, 2, 3, 4], max_tokens=120, ignore_eos=True, temperature=temperature, seed=4)
    (seq,) = run_all(engine, [one])
    output = np.array(seq.generation().token_ids, np.int32)
    played = replay(one, output, planner(), StepCost(SECONDS))
    assert played.passes == engine.evidence.speculation.passes == seq.counts["speculation"]["passes"]
    assert played.tokens == 119
    best = ceiling(right_lengths(one, output, Lookup(FakeDrafter)), StepCost(SECONDS))
    assert 0.95 < played.speedup <= best.speedup


def test_replay_learns_what_steps_truly_cost() -> None:
    rng = np.random.default_rng(1)
    page = rng.integers(0, 50, 40)
    output = np.concatenate([page] * 8).astype(np.int32)
    one = request([1], max_tokens=len(output), ignore_eos=True)
    dear = {rows: 0.002 * rows for rows in (1, 2, 4, 8, 16)}
    played = replay(one, output, planner(), StepCost(dear))
    assert 0.85 < played.speedup <= 1.0, "rows at full price bring nothing, which is found out"
