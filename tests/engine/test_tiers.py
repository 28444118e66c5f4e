"""Priority and standard requests through the engine: who goes first, what is counted, and what may be set."""

from __future__ import annotations

import pytest
from fakes import ALL_LEVERS, FakeBackend, StillCost, make_engine, make_llm, request, run_all, token_by_token, unproved

from swiftsure import SamplingParams, Scheduling
from swiftsure.engine.pass_cost import PassCost
from swiftsure.engine.scheduler import Limits, rows_beside_prompts
from swiftsure.engine.speculation import StepCost
from swiftsure.errors import UsageError

HURRY = Scheduling(priority_slack=0.0)


def test_priority_request_overtakes_all_that_came_before_it():
    engine = make_engine(levers=ALL_LEVERS, scheduling=HURRY)
    before = [engine.add(request([key], max_tokens=30, ignore_eos=True)) for key in range(20)]
    for _ in range(3):
        engine.step()
    lengths = [seq.output_length for seq in before]
    first = engine.add(request([99], max_tokens=10, ignore_eos=True, tier="priority"))
    while not first.finished:
        engine.step()
    assert [seq.output_length for seq in before] == lengths
    while engine.step():
        pass
    assert all(seq.output_length == 30 for seq in before)
    assert not unproved(engine)


def test_priority_requests_get_the_blocks_of_standard_ones_which_start_again_with_the_same_tokens():
    backend = FakeBackend(kv_blocks=12)
    engine = make_engine(backend, levers=("batching", "chunked_prefill", "prefix_cache"), context=80, scheduling=HURRY)
    requests = [request(range(10 * key, 10 * key + 20), max_tokens=20, ignore_eos=True) for key in range(3)]
    standard = [engine.add(one) for one in requests]
    for _ in range(6):
        engine.step()
    one = request(range(60), max_tokens=8, ignore_eos=True, tier="priority")
    first = engine.add(one)
    engine.step()
    assert first.output_length == 1, "room is made and the prompt is read in one step"
    while engine.step():
        pass
    assert engine.evidence.passes.preemptions >= 2
    for seq, asked in zip([*standard, first], [*requests, one], strict=True):
        assert list(seq.token_ids) == token_by_token(backend, asked)
    assert engine._blocks.free_blocks == backend.kv_blocks


def test_evidence_says_what_each_tier_ran_and_how_long_standard_was_held():
    engine = make_engine(levers=ALL_LEVERS, scheduling=HURRY)
    run_all(engine, [request([1], max_tokens=5, ignore_eos=True), request([2], max_tokens=4, ignore_eos=True, tier="priority")])
    tiers = engine.evidence.of_tiers()
    assert (tiers["priority_requests"], tiers["standard_requests"]) == (1, 1)
    assert tiers["priority_passes"] == tiers["rides_declined"] > 0
    assert tiers["rides_granted"] == 0
    assert tiers["standard_held_s"] == pytest.approx(tiers["longest_hold_s"])
    assert 0 < tiers["standard_held_s"] <= tiers["standard_longest_wait_s"]


def test_rides_are_counted():
    engine = make_engine(levers=ALL_LEVERS, scheduling=Scheduling(priority_slack=10.0))
    run_all(engine, [request([1], max_tokens=5, ignore_eos=True), request([2], max_tokens=5, ignore_eos=True, tier="priority")])
    tiers = engine.evidence.of_tiers()
    assert tiers["rides_granted"] > 0
    assert tiers["standard_held_s"] == 0.0


def test_without_batching_the_tiers_still_have_their_order():
    backend = FakeBackend()
    engine = make_engine(backend)
    standard = engine.add(request([1, 2], max_tokens=30, ignore_eos=True))
    engine.step()
    first = engine.add(request([3, 4], max_tokens=5, ignore_eos=True, tier="priority"))
    for _ in range(5):
        engine.step()
    assert (first.finished, standard.output_length) == (True, 1)
    assert all(len(set(batch.sequences.tolist())) == 1 for batch in backend.batches), "no two requests share a pass"


def test_lone_priority_request_is_drafted_for_as_a_standard_one_is():
    backend = FakeBackend(favour=lambda prefix: len(prefix) % 7)
    passes = []
    for tier in ("standard", "priority"):
        engine = make_engine(backend, levers=ALL_LEVERS, context=512)
        run_all(engine, [request([1], max_tokens=200, tier=tier)])
        passes.append(engine.evidence.passes.passes)
    assert passes[0] == passes[1] < 100


def test_snapshot_shows_queues_blocks_and_the_last_pass():
    with make_llm(FakeBackend(kv_blocks=40), levers=ALL_LEVERS) as llm:
        for _ in range(20):
            llm.submit([1, 2, 3])
        llm.submit([4, 5, 6, 7], tier="priority")
        before = llm.snapshot()
        assert (before.waiting_standard, before.waiting_priority, before.running_standard, before.passes) == (20, 1, 0, 0)
        assert (before.kv_blocks_free, before.kv_blocks_total) == (40, 40)
        llm.step()
        after = llm.snapshot()
        assert (after.waiting_priority, after.running_priority, after.passes, after.tokens) == (0, 1, 1, 1)
        assert (after.last_pass_rows_standard, after.last_pass_rows_priority) == (0, 4)
        assert after.kv_blocks_free == 39
        assert after.to_dict()["rides_declined"] == after.rides_declined > 0


def test_limits_change_between_requests_only():
    with make_llm(levers=ALL_LEVERS) as llm:
        llm.submit([1, 2, 3], sampling=SamplingParams(max_tokens=2))
        with pytest.raises(UsageError, match="limits change between requests only; 0 run and 1 wait"):
            llm.reschedule(Scheduling())
        while llm.step():
            pass
        llm.reschedule(Scheduling(max_running=2, priority_slack=10.0))
        assert llm.scheduling.max_running == 2
        for key in range(3):
            llm.submit([key], sampling=SamplingParams(max_tokens=4, ignore_eos=True))
        llm.step()
        assert (llm.snapshot().running_standard, llm.snapshot().waiting_standard) == (2, 1)


def test_tier_is_a_keyword_of_generate_and_stream():
    with make_llm(levers=ALL_LEVERS) as llm:
        llm.generate([[1], [2]], max_tokens=2, tier="priority")
        list(llm.stream([3], max_tokens=2, tier="priority"))
        tiers = llm.activation.tiers
        assert (tiers["priority_requests"], tiers["standard_requests"]) == (3, 0)
        with pytest.raises(UsageError, match="tier must be standard or priority, got 'flex'"):
            llm.generate([1], tier="flex")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"max_running": 0}, "max_running must be an integer of at least 1, got 0"),
        ({"priority_running": True}, "priority_running must be an integer of at least 1, got True"),
        ({"priority_running": 4, "priority_rows": 2}, "priority_rows must be at least priority_running, 4, got 2"),
        ({"priority_slack": -0.1}, "priority_slack must be a share from 0 to 10, got -0.1"),
        ({"priority_slack": float("nan")}, "priority_slack must be a share"),
        ({"prefill_chunk_ms": 0}, "prefill_chunk_ms must be from 1 to 60000 milliseconds, got 0"),
    ],
)
def test_limits_out_of_range_are_refused_with_the_range(values, says):
    with pytest.raises(UsageError, match=says):
        Scheduling(**values)


def test_fewer_priority_rows_mean_fewer_priority_places():
    assert [Scheduling(priority_rows=rows).priority_places for rows in (1, 3, 8)] == [1, 3, 4]


def test_more_requests_a_pass_than_it_has_logit_rows_are_refused_by_load():
    import swiftsure

    with pytest.raises(UsageError, match="max_running must be at most 32, the rows with logits of a pass, got 33"):
        swiftsure.load("smollm2-135m-instruct", scheduling=Scheduling(max_running=33))


# --- the cost of passes -----------------------------------------------------------------------------------------------------


def measured() -> PassCost:
    return PassCost(StepCost({1: 0.010, 16: 0.040}))


def test_passes_of_few_rows_cost_what_decode_passes_cost():
    cost = measured()
    assert (cost(0), cost(1), cost(16)) == (0.0, 0.010, 0.040)
    assert cost(32) == pytest.approx(0.072), "before a prompt was read: as steep as the last measured rows"


def test_passes_that_read_prompts_teach_the_price_of_a_row():
    cost = measured()
    for _ in range(30):
        cost.observe(116, 0.040 + 100 * 0.001)
    assert cost(116) == pytest.approx(0.140, rel=0.01)
    assert cost(216) == pytest.approx(0.240, rel=0.01)
    assert cost(16) == 0.040, "what decode passes cost is learnt from decode passes"


def test_one_disturbed_pass_moves_the_price_little():
    cost = measured()
    for _ in range(30):
        cost.observe(116, 0.140)
    cost.observe(116, 30.0)
    assert cost(116) < 0.190


def test_pass_of_few_prompt_rows_teaches_nothing():
    cost = measured()
    before = cost(100)
    cost.observe(20, 9.0)
    assert cost(100) == before


def test_a_price_that_makes_passes_too_short_to_confirm_it_fades():
    """Or a few disturbed passes would leave every later prompt to be read in the smallest chunks."""
    cost = measured()
    as_measured = cost(116)
    for _ in range(12):
        cost.observe(48, 9.0)
    assert cost(116) > 5 * as_measured
    for _ in range(60):
        cost.observe(24, cost(24))
    assert cost(116) == pytest.approx(as_measured, rel=0.05)


def test_a_machine_that_is_fast_again_is_noticed_while_prompts_leave_no_decode_pass_to_tell():
    cost = measured()
    for _ in range(12):
        cost.observe(12, cost.step.relative(12) * 0.010 / 2)
    assert cost(12) == pytest.approx(cost.step.relative(12) * 0.010 / 2, rel=0.05)
    for _ in range(12):
        cost.observe(12, 9.0)
    assert cost(12) == cost.step.relative(12) * 0.010, "rows of prompts never cost more than rows that decode"


def test_where_no_decode_pass_was_timed_the_first_prompt_says_what_a_row_costs():
    cost = PassCost(StepCost())
    cost.observe(256, 2.56)
    assert cost(256) - cost(156) == pytest.approx(1.0)


def test_chunks_of_a_prompt_follow_the_time_that_they_take():
    """Through the engine: the costs decide how many prompt rows go with a decode row."""
    backend = FakeBackend(max_rows=64, kv_blocks=200, block_size=8)
    engine = make_engine(backend, levers=("batching", "chunked_prefill"), context=1000, scheduling=Scheduling(prefill_chunk_ms=20.5))
    engine.drafting.policy.cost = StillCost({1: 0.010, 16: 0.025})
    engine.add(request([1], max_tokens=50, ignore_eos=True))
    engine.step()
    engine.add(request(range(200), max_tokens=2))
    engine.step()
    assert len(backend.batches[-1].tokens) == 21, "0.010 s for one row, and 0.0205 s more for 20 at 0.001 s each"


def test_many_requests_keep_drafts_out_of_passes_that_read_prompts_and_have_them_back_after():
    """Every draft there is one more row that everybody's token waits for."""
    backend = FakeBackend(max_rows=64, kv_blocks=400, block_size=8)
    engine = make_engine(backend, levers=ALL_LEVERS, context=1000, scheduling=Scheduling(prefill_chunk_ms=20))
    engine.drafting.policy.cost = StillCost({1: 0.011, 16: 0.0125})
    decoding = [engine.add(request([key, 7, 7, 7], max_tokens=200, ignore_eos=True)) for key in range(6)]
    while min(seq.output_length for seq in decoding) < 20:
        engine.step()
    drafted = engine.evidence.speculation.drafted
    assert drafted > 0
    prompt = engine.add(request(range(200), max_tokens=2))
    while not prompt.output_length:
        engine.step()
        assert [seq.draft_length for seq in decoding] == [0] * 6, "one row takes more than half a chunk, 0.010 s"
    assert engine.evidence.speculation.drafted == drafted
    while engine.step():
        pass
    assert engine.evidence.speculation.drafted > drafted


def test_a_request_alone_beside_a_prompt_drafts_within_half_the_time_of_a_chunk():
    limits = Limits(max_rows=64, max_logit_rows=32, block_size=8, max_running=16, mixed_passes=True, prefill_chunk_s=0.03)
    assert rows_beside_prompts(limits, PassCost(StepCost({1: 0.008, 16: 0.023}))) == 8, "0.008 s for one row, 0.001 s for each further"
    assert rows_beside_prompts(limits, lambda rows: 1.0 + rows) == 0
    assert rows_beside_prompts(limits, lambda rows: 1e-9 * rows) == 32


def test_a_priority_prompt_that_takes_every_row_is_no_occasion_to_share_a_pass():
    engine = make_engine(FakeBackend(max_rows=3, max_logit_rows=2), levers=ALL_LEVERS, scheduling=Scheduling(priority_rows=3))
    decoding = engine.add(request([0], max_tokens=2, ignore_eos=True))
    engine.step()
    engine.add(request([0, 0, 0], max_tokens=1, tier="priority"))
    while engine.step():
        pass
    assert len(decoding.generation().token_ids) == 2
    assert engine.evidence.chunked_prefill.occasions == 0
    assert not unproved(engine)
