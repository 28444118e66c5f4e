"""The engine against first principles: whatever shares a pass, a request's tokens and logits are its own."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from fakes import ALL_LEVERS, EOS, FakeBackend, make_engine, request, run_all, token_by_token, unproved
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.engine.scheduling import Scheduling
from swiftsure.errors import CapacityError

rng = np.random.default_rng(5)


def tokens_of(seq) -> list[int]:
    return list(seq.generation().token_ids)


def prompts(count: int, low: int = 1, high: int = 60) -> list[list[int]]:
    return [rng.integers(0, 300, rng.integers(low, high)).tolist() for _ in range(count)]


@settings(max_examples=2000 if "--full" in sys.argv else 150, deadline=None)
@given(data=st.data())
def test_any_company_gives_the_tokens_of_a_request_alone(data):
    """Levers, rows a pass, blocks (down to preemption), prefixes shared or not, tiers, arrivals, greedy and sampled with penalties: the
    same tokens."""
    levers = data.draw(st.sets(st.sampled_from(ALL_LEVERS)))
    backend = FakeBackend(
        kv_blocks=data.draw(st.integers(12, 40)),
        max_rows=data.draw(st.sampled_from([1, 3, 16, 64])),
        max_logit_rows=data.draw(st.sampled_from([1, 2, 5, 32])),
        reach=data.draw(st.sampled_from([1, 2, None])),
    )
    shared = data.draw(st.lists(st.integers(0, 9), max_size=30))
    requests = []
    for _ in range(data.draw(st.integers(1, 6))):
        own = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=20))
        requests.append(
            request(
                (shared if data.draw(st.booleans()) else []) + own,
                max_tokens=data.draw(st.integers(1, 40)),
                temperature=data.draw(st.sampled_from([0.0, 0.8])),
                seed=data.draw(st.integers(0, 3)),
                repetition_penalty=data.draw(st.sampled_from([1.0, 1.3])),
                frequency_penalty=data.draw(st.sampled_from([0.0, 0.5])),
                tier=data.draw(st.sampled_from(["standard", "priority"])),
            )
        )
    scheduling = Scheduling(
        max_running=data.draw(st.integers(1, 16)),
        priority_running=data.draw(st.integers(1, 3)),
        priority_rows=data.draw(st.integers(3, 16)),
        priority_slack=data.draw(st.sampled_from([0.0, 0.3, 10.0])),
        prefill_chunk_ms=data.draw(st.sampled_from([1.0, 20.0, 60_000.0])),
    )
    engine = make_engine(backend, levers=levers, context=96, scheduling=scheduling)
    sequences = []
    for one in requests:
        for _ in range(data.draw(st.integers(0, 5))):
            engine.step()
        sequences.append(engine.add(one))
    while engine.step():
        pass
    for seq, one in zip(sequences, requests, strict=True):
        assert seq.error is None
        expected = token_by_token(backend, one)
        assert tokens_of(seq) == expected[: 96 - len(one.prompt_ids)]
    assert engine._blocks.free_blocks == backend.kv_blocks
    assert backend.max_rows == 1 or backend.max_logit_rows == 1 or not unproved(engine)


def test_logits_are_reported_once_for_each_emitted_token_in_order():
    backend = FakeBackend(reach=1)
    engine = make_engine(backend, levers=ALL_LEVERS)
    seen: list[tuple[int, np.ndarray]] = []
    one = request([3, 4, 5], max_tokens=80, temperature=0.25, seed=1, on_logits=lambda position, row: seen.append((position, row.copy())))
    (seq,) = run_all(engine, [one])
    assert engine.evidence.speculation.accepted > 0, "the case must hold accepted and rejected drafts"
    assert engine.evidence.speculation.accepted < engine.evidence.speculation.drafted
    ids = [3, 4, 5, *tokens_of(seq)]
    assert [position for position, _ in seen] == list(range(2, len(ids) - 1))
    for position, row in seen:
        np.testing.assert_array_equal(row, backend.logits_of(ids[: position + 1]))


def test_preempted_request_resumes_with_the_same_tokens():
    backend = FakeBackend(kv_blocks=10)
    engine = make_engine(backend, levers=("batching", "chunked_prefill"), context=80)
    requests = [request(p, max_tokens=50, ignore_eos=True) for p in prompts(3, 10, 11)]
    for seq, one in zip(run_all(engine, requests), requests, strict=True):
        assert tokens_of(seq) == token_by_token(backend, one)
    assert engine.evidence.passes.preemptions > 0


def test_second_request_with_the_same_beginning_starts_from_the_cache():
    backend = FakeBackend()
    engine = make_engine(backend, levers=("prefix_cache",))
    beginning = list(range(40))
    run_all(engine, [request([*beginning, 1], max_tokens=2)])
    before = engine.evidence.passes.rows
    one = request([*beginning, 2], max_tokens=1)
    (seq,) = run_all(engine, [one])
    assert engine.evidence.passes.rows - before == 1, "40 of 41 rows come from the cache"
    assert tokens_of(seq) == token_by_token(backend, one)
    assert seq.generation().levers["prefix_cache"] == {"lookups": 1, "occasions": 1, "hits": 1, "tokens_reused": 40}


def test_cleared_cache_serves_nothing():
    engine = make_engine(levers=("prefix_cache",))
    for _ in range(2):
        run_all(engine, [request(range(40), max_tokens=2)])
        engine.clear_caches()
    assert engine.evidence.prefix_cache.hits == 0
    assert engine.evidence.prefix_cache.occasions == 0


def test_score_computes_every_row_although_the_prefix_is_cached():
    backend = FakeBackend(max_logit_rows=8)
    engine = make_engine(backend, levers=("prefix_cache",))
    ids = np.arange(40, dtype=np.int32)
    run_all(engine, [request(ids, max_tokens=2)])
    found: list[NDArray[np.float32]] = []
    engine.score(ids, lambda _, rows: found.append(rows.copy()))
    rows = np.concatenate(found)
    for n in range(40):
        np.testing.assert_array_equal(rows[n], backend.logits_of(list(range(n + 1))))
    assert engine._blocks.free_blocks == backend.kv_blocks


def test_default_reads_prompts_in_the_largest_passes_and_decodes_one_token_a_pass():
    backend = FakeBackend(max_rows=16)
    engine = make_engine(backend)
    run_all(engine, [request(range(40), max_tokens=4, ignore_eos=True), request(range(3), max_tokens=2, ignore_eos=True)])
    assert [len(b.tokens) for b in backend.batches] == [16, 16, 8, 1, 1, 1, 3, 1]
    assert [len(b.logit_rows) for b in backend.batches] == [0, 0, 1, 1, 1, 1, 1, 1]


def test_batch_shares_passes_and_counts_them():
    backend = FakeBackend()
    engine = make_engine(backend, levers=("batching", "chunked_prefill"))
    run_all(engine, [request(p, max_tokens=10, ignore_eos=True) for p in prompts(4, 5, 6)])
    assert len(backend.batches) == 10
    batching = engine.evidence.batching
    assert (batching.occasions, batching.shared_passes, batching.most_requests) == (10, 10, 4)


def test_prompt_chunks_share_passes_with_a_request_that_decodes():
    engine = make_engine(FakeBackend(max_rows=8), levers=("batching", "chunked_prefill"))
    first = engine.add(request([1], max_tokens=30, ignore_eos=True))
    engine.step()
    engine.add(request(range(30), max_tokens=3))
    length = first.length
    engine.step()
    assert first.length == length + 1, "the running request is not held up"
    while engine.step():
        pass
    assert engine.evidence.chunked_prefill.mixed_passes >= 4
    assert not unproved(engine)


def test_generation_ends_at_the_context_edge_with_reason_length():
    engine = make_engine(context=32)
    (seq,) = run_all(engine, [request(range(30), max_tokens=100, ignore_eos=True)])
    assert (seq.generation().finish_reason, len(tokens_of(seq))) == ("length", 2)


def test_end_token_ends_the_text_and_is_the_last_token():
    backend = FakeBackend(favour=lambda prefix: EOS if len(prefix) == 6 else 65)
    engine = make_engine(backend, levers=("speculation",))
    (seq,) = run_all(engine, [request([1, 2], max_tokens=100)])
    assert (seq.generation().finish_reason, tokens_of(seq), seq.generation().text) == ("stop", [65, 65, 65, 65, EOS], "AAAA")


def test_callback_that_raises_ends_its_own_request_only():
    backend = FakeBackend()
    engine = make_engine(backend, levers=ALL_LEVERS)

    def fail(position, row):
        if position == 12:
            raise RuntimeError("no more")

    bad, good = request(range(10), max_tokens=9, on_logits=fail), request(range(9), max_tokens=9)
    first, second = run_all(engine, [bad, good])
    assert str(first.error) == "no more"
    assert first.generation().finish_reason == "cancelled"
    assert tokens_of(second) == token_by_token(backend, good)
    assert engine._blocks.free_blocks == backend.kv_blocks


def test_cancelled_request_frees_its_blocks_and_leaves_the_others_alone():
    backend = FakeBackend()
    engine = make_engine(backend, levers=ALL_LEVERS)
    gone = engine.add(request(range(20), max_tokens=100, ignore_eos=True))
    one = request(range(7), max_tokens=30)
    stays = engine.add(one)
    for _ in range(4):
        engine.step()
    gone.cancel_requested = True
    while engine.step():
        pass
    assert gone.generation().finish_reason == "cancelled"
    assert 0 < len(tokens_of(gone)) < 100
    assert tokens_of(stays) == token_by_token(backend, one)
    assert engine._blocks.free_blocks == backend.kv_blocks


def test_request_can_be_cancelled_in_the_middle_of_its_prefill():
    engine = make_engine(FakeBackend(max_rows=4))
    seq = engine.add(request(range(30), max_tokens=5))
    engine.step()
    engine.cancel(seq)
    assert not engine.step()
    assert (seq.generation().token_ids, seq.generation().timing.ttft_s) == ((), None)
    assert engine._blocks.free_blocks == engine.backend.kv_blocks


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("the machine is gone")])
def test_interrupted_pass_ends_its_requests_and_all_others_go_on(error):
    backend = FakeBackend(max_rows=8)
    engine = make_engine(backend, levers=("prefix_cache",))
    hit = engine.add(request(range(20), max_tokens=5))
    one = request(range(15), max_tokens=12)
    waits = engine.add(one)

    def interrupt(number):
        if number == 1:
            raise error

    backend.before_run = interrupt
    engine.step()
    with pytest.raises(type(error)):
        engine.step()
    backend.before_run = lambda number: None
    while engine.step():
        pass
    assert hit.finished
    assert hit.error is (error if isinstance(error, Exception) else None)
    assert tokens_of(waits) == token_by_token(backend, one)
    assert engine._blocks.free_blocks == backend.kv_blocks


def test_request_that_can_never_fit_fails_with_the_numbers_and_others_run():
    backend = FakeBackend(kv_blocks=4)
    engine = make_engine(backend, levers=("batching",))
    one = request(range(8), max_tokens=3)
    big, small = run_all(engine, [request(range(100), max_tokens=3), one])
    assert isinstance(big.error, CapacityError)
    assert "100 tokens need 13 key-value blocks, the cache has 4" in str(big.error)
    assert tokens_of(small) == token_by_token(backend, one)


def test_worthless_drafts_are_given_up():
    """Text without repetition, but a prompt full of it: drafts are tried, fail, and their length goes to zero."""
    backend = FakeBackend(vocab=320, favour=lambda prefix: hash((len(prefix), 7)) % 10)
    engine = make_engine(backend, levers=("speculation",), context=1024)
    run_all(engine, [request(rng.integers(0, 10, 60), max_tokens=300)])
    counts = engine.evidence.speculation
    assert counts.occasions > 200
    assert counts.declined > counts.occasions // 2
    assert not unproved(engine)


def test_repetition_is_drafted_and_saves_passes():
    backend = FakeBackend(favour=lambda prefix: len(prefix) % 7)
    engine = make_engine(backend, levers=("speculation",), context=512)
    run_all(engine, [request([1], max_tokens=200)])
    assert engine.evidence.passes.passes < 100  # of 200 tokens
    assert engine.evidence.speculation.accepted > 100
