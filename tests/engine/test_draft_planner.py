"""Whatever sources guess, tokens and logits stay as they are; what guesses bring and cost decides how much is asked."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import pytest
from fakes import (
    ALL_LEVERS,
    EOS,
    VOCAB,
    FakeBackend,
    FakeDrafter,
    FakeSampler,
    FakeTokenizer,
    StillCost,
    describe,
    request,
    run_all,
    token_by_token,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.engine.compiled import free_sources
from swiftsure.engine.drafting.lookup import Lookup
from swiftsure.engine.drafting.source import Draft, DraftSource
from swiftsure.engine.engine import Engine
from swiftsure.engine.request import Sequence
from swiftsure.engine.speculation import USUAL_TRUST

CHEAP_ROWS = {1: 0.010, 16: 0.011}


class Wild:
    """Drafts at random, of any length allowed, with any confidence; steps or not; keeps to the seam's rules and checks the engine's."""

    wants_hidden = True
    trust = USUAL_TRUST

    def __init__(self, seed: int, *, stepwise: bool, name: str = "wild") -> None:
        self.name, self.stepwise = name, stepwise
        self.rng = np.random.default_rng(seed)
        self.known: dict[int, list[int]] = {}  # by key: the tokens that opening and observing told of
        self.offered: dict[int, Draft] = {}

    def measure(self) -> float:
        return 0.0001 if self.stepwise else 0.0

    def open(self, seq: Sequence) -> None:
        assert seq.key not in self.known
        self.known[seq.key] = seq.ids[: seq.length].tolist()

    def close(self, seq: Sequence) -> None:
        del self.known[seq.key]
        self.offered.pop(seq.key, None)

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        assert len({seq.key for seq in seqs}) == len(seqs) == len(lengths)
        return [self._more(seq, length) for seq, length in zip(seqs, lengths, strict=True)]

    def _more(self, seq: Sequence, length: int) -> Draft:
        assert seq.ids[: seq.length].tolist() == self.known[seq.key]
        assert length >= 1
        before = self.offered.get(seq.key) if self.stepwise else None
        tokens = [] if before is None else before.tokens.tolist()
        chances = [] if before is None else list(before.chances)
        while len(tokens) < length and self.rng.random() < 0.9:
            tokens.append(int(self.rng.integers(VOCAB)))
            chances.append(float(self.rng.random()))
        self.offered[seq.key] = Draft(np.array(tokens, np.int32), chances)
        return self.offered[seq.key]

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        assert seq.ids[: seq.length].tolist() == self.known[seq.key]
        assert hidden is not None
        assert hidden.shape == (len(tokens), 2)
        assert hidden[:, 0].tolist() == list(range(seq.length - 1, seq.length - 1 + len(tokens))), "rows of this very sequence"
        assert hidden[:, 1].tolist() == [seq.ids[seq.length - 1], *tokens[:-1].tolist()]
        self.known[seq.key] += tokens.tolist()
        self.offered.pop(seq.key, None)

    def clear(self) -> None:
        self.offered.clear()


class Oracle(Wild):
    """Knows what will be sampled, and is right with ``chance``; says so unless told to lie."""

    def __init__(self, backend: FakeBackend, chance: float, *, stepwise: bool, seconds: float = 0.0, name: str = "oracle") -> None:
        super().__init__(1, stepwise=stepwise, name=name)
        self.backend, self.chance, self.seconds = backend, chance, seconds
        self.stated = chance
        self.asked = 0

    def measure(self) -> float:
        return self.seconds

    def _more(self, seq: Sequence, length: int) -> Draft:
        before = self.offered.get(seq.key) if self.stepwise else None
        drafted = [] if before is None else before.tokens.tolist()
        self.asked += 1
        while len(drafted) < length:
            sampler = FakeSampler(seq.request)
            prefix = [*self.known[seq.key], *drafted]
            sampler.history = list(prefix)
            best = int(sampler.accept(self.backend.logits_of(prefix)[None, :], np.zeros(0, np.int32))[0])
            drafted.append(best if self.rng.random() < self.chance else (best + 1) % VOCAB)
        self.offered[seq.key] = Draft(np.array(drafted, np.int32), [self.stated] * len(drafted))
        return self.offered[seq.key]


def engine_with(backend: FakeBackend, *sources: DraftSource, levers: SequenceOf[str] = ALL_LEVERS) -> Engine:
    engine = Engine(
        backend,
        FakeTokenizer(),
        context=256,
        end_ids={EOS},
        levers=levers,
        make_sampler=FakeSampler,
        sources=sources,
        describe=describe,
    )
    engine.drafting.policy.cost = StillCost(CHEAP_ROWS)
    engine.drafting.calibrate()
    return engine


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_wild_sources_change_no_token_and_no_bit_under_preemption_stops_and_cancellation(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**20))
    backend = FakeBackend(kv_blocks=data.draw(st.integers(24, 64)), reach=data.draw(st.sampled_from([1, 2, None])))
    sources: list[DraftSource] = [Wild(seed, stepwise=False, name="free"), Wild(seed + 1, stepwise=True, name="paid"), Lookup(FakeDrafter)]
    engine = engine_with(backend, *data.draw(st.permutations(sources)))
    rows: dict[int, list[tuple[int, NDArray[np.float32]]]] = {}
    requests, cancelled = [], data.draw(st.sets(st.integers(0, 3), max_size=2))
    for i in range(data.draw(st.integers(1, 4))):
        rows[i] = []
        requests.append(
            request(
                data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=30)),
                max_tokens=data.draw(st.integers(1, 60)),
                temperature=data.draw(st.sampled_from([0.0, 0.7])),
                repetition_penalty=data.draw(st.sampled_from([1.0, 1.3])),
                seed=i,
                stop=data.draw(st.sampled_from([(), ("STOP!",), ("e",)])),
                on_logits=lambda position, row, i=i: rows[i].append((position, row.copy())),
            )
        )
    running = [engine.add(one) for one in requests]
    passes, last = 0, data.draw(st.integers(1, 20))
    while engine.step():
        passes += 1
        for i in cancelled & set(range(len(running))):
            if passes == last:
                engine.cancel(running[i])
    for i, (one, seq) in enumerate(zip(requests, running, strict=True)):
        assert seq.error is None
        alone = token_by_token(backend, one)
        tokens = list(seq.generation().token_ids)
        assert tokens == alone[: len(tokens)]
        if seq.finish_reason == "length":
            assert tokens == alone
        prefix = one.prompt_ids.tolist()
        for (position, row), token in zip(rows[i], tokens, strict=True):
            assert position == len(prefix) - 1
            assert row.tobytes() == backend.logits_of(prefix).tobytes()
            prefix.append(token)
    assert not sources[0].known  # type: ignore[attr-defined]  # a fake
    assert not sources[1].known  # type: ignore[attr-defined]  # a fake


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("stepwise", [False, True])
def test_source_that_is_right_is_followed_far(stepwise: bool, temperature: float) -> None:
    backend = FakeBackend()
    engine = engine_with(backend, Oracle(backend, 1.0, stepwise=stepwise, seconds=0.0001))
    (seq,) = run_all(engine, [request([1, 2, 3], max_tokens=200, temperature=temperature, seed=5, ignore_eos=True)])
    counts = seq.generation().levers["speculation"]
    assert counts["accepted"] == counts["drafted"]
    assert engine.evidence.passes.passes < 200 / 8
    assert engine.evidence.of("speculation")["oracle_accepted"] == counts["accepted"]


def test_dear_source_is_asked_for_nothing() -> None:
    backend = FakeBackend()
    dear = Oracle(backend, 0.9, stepwise=True, seconds=0.02)  # two passes of the model a token
    run_all(engine_with(backend, dear), [request([1, 2, 3], max_tokens=100, ignore_eos=True)])
    assert dear.asked == 0


def test_better_of_two_sources_is_found_out() -> None:
    backend = FakeBackend()
    bad, good = Oracle(backend, 0.02, stepwise=False, name="bad"), Oracle(backend, 0.95, stepwise=False, name="good")
    bad.stated = 0.99
    engine = engine_with(backend, bad, good)
    run_all(engine, [request([1, 2, 3], max_tokens=200, ignore_eos=True)])
    counts = engine.evidence.of("speculation")
    assert counts["good_accepted"] > 150
    assert counts.get("bad_drafted", 0) < 40


def test_free_draft_that_is_worth_more_than_what_was_then_drafted_is_kept() -> None:
    backend = FakeBackend()
    fair = Oracle(backend, 0.5, stepwise=False, name="fair")
    poor = Oracle(backend, 0.0, stepwise=True, seconds=0.0001, name="poor")
    poor.stated = 0.05
    engine = engine_with(backend, fair, poor, levers=("speculation",))
    run_all(engine, [request([1, 2, 3], max_tokens=60, ignore_eos=True)])
    assert poor.asked > 0, "before it drafted, it was expected to be worth more"
    counts = engine.evidence.of("speculation")
    assert counts["fair_accepted"] > 20
    assert "poor_drafted" not in counts


def test_source_that_was_useless_is_asked_again_after_a_while() -> None:
    backend = FakeBackend()
    source = Oracle(backend, 0.0, stepwise=True, seconds=0.001)
    source.stated = 0.9
    engine = engine_with(backend, source, levers=("speculation",))
    engine.drafting.policy.cost = StillCost({1: 0.010, 2: 0.012, 16: 0.050})

    def accepted(requests: int) -> int:
        before = engine.evidence.speculation.accepted
        for i in range(requests):
            run_all(engine, [request([i, 2, 3], max_tokens=200, ignore_eos=True)])
        return engine.evidence.speculation.accepted - before

    assert accepted(1) == 0
    asked = source.asked
    assert accepted(1) == 0
    assert source.asked - asked < 40, "once it was found out it is mostly left alone"
    source.chance = 1.0
    assert accepted(6) > 200


def test_one_call_drafts_a_depth_of_all_sequences() -> None:
    backend = FakeBackend()
    source = Oracle(backend, 1.0, stepwise=True, seconds=0.0001)
    sizes: list[tuple[int, set[int]]] = []
    propose = source.propose

    def spy(seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        sizes.append((len(seqs), set(lengths)))
        return propose(seqs, lengths)

    source.propose = spy  # type: ignore[method-assign]  # watched
    run_all(engine_with(backend, source), [request([i, 2, 3], max_tokens=40, ignore_eos=True) for i in range(3)])
    assert max(size for size, _ in sizes) == 3
    assert all(len(depths) == 1 for _, depths in sizes)


def test_source_that_fails_is_not_silently_left_out() -> None:
    backend = FakeBackend()
    source = Wild(1, stepwise=False)

    def fail(seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        raise RuntimeError("out of ideas")

    source.propose = fail  # type: ignore[method-assign]  # watched
    engine = engine_with(backend, source)
    with pytest.raises(RuntimeError, match="out of ideas"):
        run_all(engine, [request([1, 2, 3], max_tokens=40)])


def test_request_like_an_earlier_one_is_drafted_from_it_until_caches_are_cleared() -> None:
    backend = FakeBackend()
    engine = engine_with(backend, *free_sources(), levers=("speculation",))
    outputs = []
    for clear in (False, False, True):
        if clear:
            engine.clear_caches()
        (seq,) = run_all(engine, [request([1, 2, 3, 4, 5], max_tokens=60, ignore_eos=True)])
        assert seq.error is None
        outputs.append(seq.generation())
    accepted = [output.levers.get("speculation", {}).get("accepted", 0) for output in outputs]
    assert outputs[0].token_ids == outputs[1].token_ids == outputs[2].token_ids
    assert accepted[1] > 40
    assert accepted[2] == accepted[0] < 10
    assert engine.evidence.of("speculation")["earlier_accepted"] == accepted[1]
