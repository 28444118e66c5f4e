"""The scheduler as a pure function."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.engine import scheduler
from swiftsure.engine.scheduler import Candidate, Limits, Step


def limits(**changes) -> Limits:
    values = {"max_rows": 16, "max_logit_rows": 8, "block_size": 4, "max_running": 4, "mixed_passes": True, "prefill_chunk_s": 8}
    return Limits(**values | changes)


def next_step(line, queue, *, free_blocks: int, limits: Limits, pass_s=lambda rows: rows) -> Step:
    """A row takes a second, unless said otherwise."""
    return scheduler.next_step(line, queue, free_blocks=free_blocks, limits=limits, pass_s=pass_s)


def running(key: int, length: int, computed: int, *, draft: int = 0, blocks: int | None = None) -> Candidate:
    held = -(-length // 4) if blocks is None else blocks
    return Candidate(key=key, length=length, computed=computed, blocks=held, draft=draft, owned=held)


def waiting(key: int, length: int, *, cached: int = 0, idle: int = 0) -> Candidate:
    return Candidate(key=key, length=length, computed=cached, blocks=cached // 4, idle=idle)


def rows(step) -> dict[int, tuple[int, int, bool]]:
    return {w.key: (w.rows, w.draft, w.sample) for w in step.work}


def test_prompt_is_read_in_the_largest_passes_and_sampled_at_its_end():
    first = next_step([waiting(1, 40)], [], free_blocks=20, limits=limits())
    assert (first.admit, rows(first)) == ((1,), {1: (16, 0, False)})
    assert first.work[0].new_blocks == 10, "all blocks of the prompt are taken with its first chunk"
    last = next_step([], [running(1, 40, 32)], free_blocks=10, limits=limits())
    assert rows(last) == {1: (8, 0, True)}


def test_running_requests_decode_before_a_prompt_gets_the_rest_of_the_pass():
    step = next_step([waiting(3, 40)], [running(1, 9, 8), running(2, 5, 4)], free_blocks=20, limits=limits())
    assert rows(step) == {1: (1, 0, True), 2: (1, 0, True), 3: (8, 0, False)}


def test_without_chunked_prefill_prompts_have_a_pass_of_their_own():
    step = next_step([waiting(3, 40)], [running(1, 9, 8)], free_blocks=20, limits=limits(mixed_passes=False))
    assert rows(step) == {3: (16, 0, False)}
    step = next_step([], [running(1, 9, 8)], free_blocks=20, limits=limits(mixed_passes=False))
    assert rows(step) == {1: (1, 0, True)}


def test_drafts_never_cost_another_request_its_token():
    step = next_step([], [running(1, 9, 8, draft=15), running(2, 9, 8, draft=15)], free_blocks=20, limits=limits(max_logit_rows=8))
    assert rows(step) == {1: (1, 6, True), 2: (1, 0, True)}


def test_drafts_are_cut_to_the_blocks_at_hand_rather_than_preempting():
    step = next_step([], [running(1, 9, 8, draft=7), running(2, 9, 8)], free_blocks=0, limits=limits())
    assert step.preempt == ()
    assert rows(step)[1] == (1, 3, True), "positions 9 to 11 lie in the block that holds position 8"


def test_a_block_left_over_from_a_rejected_draft_is_nobody_elses():
    step = next_step([], [running(1, 7, 6, blocks=3), running(2, 9, 8, blocks=2)], free_blocks=0, limits=limits())
    assert {w.key: w.new_blocks for w in step.work} == {1: 0}
    assert step.preempt == (2,)


def test_latest_arrival_is_preempted_when_blocks_run_out():
    queue = [running(1, 9, 8, blocks=2), running(2, 9, 8, blocks=2), running(3, 6, 5)]
    step = next_step([waiting(4, 3)], queue, free_blocks=0, limits=limits())
    assert step.preempt == (3,)
    assert set(rows(step)) == {1, 2}
    assert step.admit == (), "what was just preempted comes first"


def test_request_is_not_admitted_into_blocks_that_running_ones_will_need():
    assert next_step([waiting(2, 8)], [running(1, 9, 8)], free_blocks=2, limits=limits()).admit == ()
    assert next_step([waiting(2, 8)], [running(1, 9, 8)], free_blocks=3, limits=limits()).admit == (2,)
    assert next_step([waiting(2, 8)], [], free_blocks=2, limits=limits()).admit == (2,)


def test_idle_cached_blocks_count_against_the_free_ones():
    assert next_step([waiting(1, 12, cached=8, idle=2)], [], free_blocks=2, limits=limits()).admit == ()
    step = next_step([waiting(1, 12, cached=8, idle=2)], [], free_blocks=3, limits=limits())
    assert (step.work[0].start, step.work[0].rows, step.work[0].new_blocks) == (8, 4, 1)


def test_order_of_arrival_is_kept_in_admission():
    step = next_step([waiting(1, 60), waiting(2, 1)], [], free_blocks=10, limits=limits())
    assert step.admit == (), "a small request does not overtake a large one for ever"


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_every_step_keeps_to_the_limits(data):
    bounds = limits(
        max_rows=data.draw(st.integers(1, 20)), max_logit_rows=data.draw(st.integers(1, 8)), mixed_passes=data.draw(st.booleans())
    )
    queue, line = [], []
    for key in range(data.draw(st.integers(0, 4))):
        length = data.draw(st.integers(1, 40))
        computed = data.draw(st.integers(0, length - 1))
        short = data.draw(st.booleans()) and length % 4 == 1 and computed == length - 1
        # Between short of the block for its next row, and still holding those that a rejected draft was given.
        blocks = (length - 1) // 4 if short else -(-length // 4) + data.draw(st.integers(0, 2))
        queue.append(running(key, length, computed, draft=data.draw(st.integers(0, 9)), blocks=blocks))
    for key in range(10, 10 + data.draw(st.integers(0, 3))):
        line.append(waiting(key, data.draw(st.integers(1, 40))))
    free = data.draw(st.integers(0, 12))
    step = next_step(line, queue, free_blocks=free, limits=bounds)
    known = {c.key: c for c in [*queue, *line]}
    assert step.rows <= bounds.max_rows
    assert sum(1 + w.draft for w in step.work if w.sample) <= bounds.max_logit_rows
    assert len(queue) - len(step.preempt) + len(step.admit) <= bounds.max_running
    assert sum(w.new_blocks for w in step.work) <= free + sum(known[key].owned for key in step.preempt)
    assert len({w.key for w in step.work}) == len(step.work)
    for w in step.work:
        c = known[w.key]
        assert w.key not in step.preempt
        assert w.start == c.computed
        assert w.sample == (w.start + w.rows == c.length)
        assert w.draft <= c.draft
        assert w.new_blocks >= 0
        assert (c.blocks + w.new_blocks) * 4 >= w.start + w.rows + w.draft
    if queue and not step.work:
        assert step.preempt, "running requests always move, or make room"


# --- order within a tier --------------------------------------------------------------------------------------------------


def test_short_prompt_is_read_beside_a_long_one_that_came_before():
    step = next_step([waiting(1, 60), waiting(2, 4)], [], free_blocks=40, limits=limits())
    assert step.admit == (1, 2)
    assert rows(step) == {1: (12, 0, False), 2: (4, 0, True)}


def test_long_prompt_keeps_three_quarters_of_a_pass_whoever_comes_later():
    line = [waiting(key, 3) for key in range(2, 5)]
    step = next_step(line, [running(1, 60, 16)], free_blocks=40, limits=limits())
    assert rows(step) == {1: (13, 0, False), 2: (3, 0, True)}, "the second short one would make it five rows of sixteen"


def test_of_two_long_prompts_the_earlier_one_is_read_first():
    step = next_step([waiting(1, 60), waiting(2, 50), waiting(3, 4)], [], free_blocks=60, limits=limits())
    assert step.admit == (1, 3), "the second waits, as it would without the third"
    assert rows(step) == {1: (12, 0, False), 3: (4, 0, True)}


def test_short_prompt_does_not_take_blocks_that_an_earlier_one_waits_for():
    step = next_step([waiting(1, 60), waiting(2, 50), waiting(3, 4)], [], free_blocks=20, limits=limits())
    assert step.admit == (1,), "15 blocks for the first, and 13 for the second are not there"


# --- prompts in milliseconds ----------------------------------------------------------------------------------------------


def test_prompt_rows_lengthen_a_pass_that_decodes_by_the_chunk_time_at_most():
    for a_row_s, expected in ((1, 8), (0.75, 10), (4, 8)):
        step = next_step(
            [waiting(2, 40)], [running(1, 9, 8)], free_blocks=20, limits=limits(prefill_chunk_s=8), pass_s=lambda rows, s=a_row_s: s * rows
        )
        assert rows(step)[2][0] == expected, "a large model still reads 8 rows a pass"


def test_nobody_who_decodes_means_that_no_time_is_kept():
    step = next_step([waiting(2, 40)], [], free_blocks=20, limits=limits(), pass_s=lambda rows: 1000 * rows)
    assert rows(step) == {2: (16, 0, False)}


# --- tiers ----------------------------------------------------------------------------------------------------------------


def priority(candidate: Candidate) -> Candidate:
    return replace(candidate, tier="priority")


def test_priority_request_runs_alone_where_standard_rows_would_cost_more_than_the_slack():
    queue = [priority(running(9, 9, 8)), running(1, 9, 8), running(2, 5, 4)]
    step = next_step([waiting(3, 4)], queue, free_blocks=20, limits=limits(priority_slack=0.1))
    assert rows(step) == {9: (1, 0, True)}
    assert step.declined == 3


def test_standard_rows_ride_along_in_order_of_arrival_as_far_as_the_slack_goes():
    queue = [priority(running(9, 9, 8)), *(running(key, 9, 8) for key in range(1, 4))]
    step = next_step([], queue, free_blocks=20, limits=limits(priority_slack=0.1), pass_s=lambda rows: 100 + 5 * (rows - 1))
    assert rows(step) == {9: (1, 0, True), 1: (1, 0, True), 2: (1, 0, True)}
    assert step.declined == 1


def test_drafts_and_prompt_rows_of_standard_requests_ride_along_too():
    queue = [priority(running(9, 9, 8)), running(1, 9, 8, draft=3), running(2, 40, 8)]
    step = next_step([], queue, free_blocks=20, limits=limits(priority_slack=0.1), pass_s=lambda rows: 100 + rows)
    assert rows(step) == {9: (1, 0, True), 1: (1, 3, True), 2: (6, 0, False)}


def test_waiting_priority_request_is_admitted_before_earlier_standard_ones():
    step = next_step([priority(waiting(9, 10)), waiting(1, 10)], [], free_blocks=4, limits=limits(priority_slack=0))
    assert (step.admit, rows(step)) == ((9,), {9: (10, 0, True)})


def test_priority_rows_bound_what_priority_requests_decode_in_a_pass():
    queue = [priority(running(8, 9, 8, draft=15)), priority(running(9, 9, 8, draft=15))]
    step = next_step([], queue, free_blocks=20, limits=limits(priority_rows=5))
    assert rows(step) == {8: (1, 3, True), 9: (1, 0, True)}


def test_places_are_kept_apart_by_tier():
    full = [running(key, 9, 8) for key in range(4)]
    line = [priority(waiting(9, 4)), priority(waiting(10, 4)), waiting(5, 4)]
    step = next_step(line, full, free_blocks=20, limits=limits(max_running=4, priority_running=1, priority_slack=9))
    assert step.admit == (9,), "the standard places are all taken, and no standard request takes a priority one's"
    assert next_step(line[1:], [], free_blocks=20, limits=limits(priority_running=1, priority_slack=9)).admit == (10, 5)


def test_standard_requests_give_up_their_blocks_for_a_priority_one_latest_first():
    queue = [running(1, 16, 15), running(2, 16, 15), running(3, 16, 15)]
    step = next_step([priority(waiting(9, 20))], queue, free_blocks=0, limits=limits())
    assert (step.preempt, step.work) == ((3, 2), ()), "a step that makes room; the next one admits"
    step = next_step([priority(waiting(9, 20))], queue[:1], free_blocks=8, limits=limits())
    assert step.admit == (9,)


def test_nobody_is_preempted_for_a_priority_request_that_would_not_fit_even_so():
    step = next_step([priority(waiting(9, 200))], [running(1, 9, 8)], free_blocks=3, limits=limits())
    assert (step.preempt, rows(step)) == ((), {1: (1, 0, True)})


def test_standard_request_never_preempts_a_priority_one():
    queue = [priority(running(9, 9, 8)), running(1, 9, 8, blocks=2)]
    step = next_step([], queue, free_blocks=0, limits=limits(priority_slack=9))
    assert (step.preempt, rows(step)) == ((1,), {9: (1, 0, True)})


def test_without_batching_a_priority_request_has_the_pass_for_itself():
    queue = [priority(running(9, 9, 8)), running(1, 9, 8)]
    step = next_step([], queue, free_blocks=9, limits=limits(priority_slack=None, mixed_passes=False), pass_s=lambda rows: 1)
    assert rows(step) == {9: (1, 0, True)}


def test_blocks_that_a_priority_request_waits_for_go_to_no_standard_one():
    queue = [priority(running(8, 9, 8))]
    line = [priority(waiting(9, 40)), waiting(1, 4)]
    step = next_step(line, queue, free_blocks=5, limits=limits(priority_slack=9))
    assert (step.admit, rows(step)) == ((), {8: (1, 0, True)})
