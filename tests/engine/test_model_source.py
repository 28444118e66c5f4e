"""A draft model keeps up with its sequences: what it drafts is what it would say to the very tokens that each of them has."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import pytest
from fakes import VOCAB, FakeBackend, FakeTokenizer, StillCost, describe, request, run_all, token_by_token
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.engine.compiled import sampler_factory
from swiftsure.engine.drafting.model import ModelSource
from swiftsure.engine.engine import Engine
from swiftsure.engine.request import Sequence
from swiftsure.engine.speculation import DraftPolicy
from swiftsure.engine.text import TextAssembler

FREE = {1: 0.010, 16: 0.0101}


class Compiled(FakeBackend):
    isa = "portable"


def sequence(key: int, ids: SequenceOf[int], *, room: int = 40, **sampling: object) -> Sequence:
    asked = request(ids, max_tokens=room, **sampling)
    held = np.zeros(len(ids) + room, np.int32)
    held[: len(ids)] = ids
    sampler = sampler_factory(VOCAB, "portable")(asked)
    return Sequence(key=key, request=asked, ids=held, length=len(ids), sampler=sampler, assembler=TextAssembler(FakeTokenizer(), ()))


def best(backend: FakeBackend, prefix: SequenceOf[int]) -> int:
    return int(backend.logits_of(list(prefix)).argmax())


def grow(seq: Sequence, tokens: SequenceOf[int]) -> None:
    seq.ids[seq.length : seq.length + len(tokens)] = tokens
    seq.length += len(tokens)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_drafts_follow_the_tokens_that_came_whatever_was_drafted_before(data: st.DataObject) -> None:
    backend = Compiled(
        kv_blocks=data.draw(st.integers(8, 40)), max_rows=data.draw(st.integers(1, 30)), max_logit_rows=data.draw(st.integers(1, 4))
    )
    source = ModelSource(backend, context=200)
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    seqs = [sequence(i, [(7 * i + j) % 50 for j in range(n)], room=60) for i, n in enumerate(lengths)]
    for seq in seqs:
        source.open(seq)
    for _ in range(data.draw(st.integers(1, 8))):
        some = data.draw(st.lists(st.sampled_from(seqs), min_size=1, unique_by=lambda seq: seq.key))
        wanted = [data.draw(st.integers(1, 5)) for _ in some]
        for depth in (1, max(wanted)):
            drafts = source.propose(some, [min(depth, n) for n in wanted])
        for seq, draft, n in zip(some, drafts, wanted, strict=True):
            prefix = seq.ids[: seq.length].tolist()
            assert len(draft.tokens) <= n
            for token, chance in zip(draft.tokens.tolist(), draft.chances, strict=True):
                assert token == best(backend, prefix)
                assert 0 < chance <= 1
                prefix.append(token)
            right = data.draw(st.integers(0, len(draft.tokens)))
            came = [*draft.tokens[:right].tolist(), data.draw(st.integers(0, VOCAB - 1))]
            if seq.length + len(came) < len(seq.ids) and data.draw(st.booleans()):
                source.observe(seq, np.array(came, np.int32), None)
                grow(seq, came)
    for seq in seqs:
        source.close(seq)
    assert source._blocks.free_blocks == backend.kv_blocks


def test_sampled_requests_get_the_token_that_their_noise_picks() -> None:
    backend = Compiled()
    source = ModelSource(backend, context=200)
    seq = sequence(0, [3, 1, 4], temperature=0.8, seed=17, top_k=30)
    source.open(seq)
    (draft,) = source.propose([seq], [10])
    assert draft.tokens.tolist() == token_by_token_sampled(backend, seq, 10)


def token_by_token_sampled(backend: FakeBackend, seq: Sequence, count: int) -> list[int]:
    prefix = seq.ids[: seq.length].tolist()
    out = []
    for _ in range(count):
        token = int(seq.sampler.accept(backend.logits_of(prefix)[None, :], np.zeros(0, np.int32))[0])
        out.append(token)
        prefix.append(token)
    return out


def test_sequences_that_find_no_block_draft_nothing_and_others_go_on() -> None:
    backend = Compiled(kv_blocks=4, block_size=8)
    source = ModelSource(backend, context=200)
    long, short = sequence(0, list(range(1, 23))), sequence(1, [5, 6])
    for seq in (long, short):
        source.open(seq)
    assert [len(d.tokens) for d in source.propose([long, short], [2, 2])] == [2, 2]
    third = sequence(2, list(range(1, 30)))
    source.open(third)
    assert [len(d.tokens) for d in source.propose([long, short, third], [2, 2, 2])] == [2, 2, 0]
    assert [len(d.tokens) for d in source.propose([third], [2])] == [0], "stuck until a token comes"
    grow(third, [9])
    assert [len(d.tokens) for d in source.propose([third], [2])] == [2], "it takes the blocks of those that did not ask"
    for seq in (long, short):
        grow(seq, [8])
    (draft,) = source.propose([short], [3])
    assert draft.tokens[0] == best(backend, [5, 6, 8]), "what lost its blocks starts over"


def test_nothing_is_drafted_past_the_context_of_the_draft_model() -> None:
    source = ModelSource(Compiled(), context=10)
    seq = sequence(0, list(range(1, 9)))
    source.open(seq)
    (draft,) = source.propose([seq], [9])
    assert len(draft.tokens) == 3  # after 8, 9 and 10 tokens
    grow(seq, [1, 2, 3])
    assert len(source.propose([seq], [9])[0].tokens) == 0


def test_a_pass_that_fails_leaves_nothing_that_is_taken_for_computed() -> None:
    backend = Compiled()
    source = ModelSource(backend, context=200)
    seq = sequence(0, [3, 1, 4, 1, 5])
    source.open(seq)

    def fail(number: int) -> None:
        raise RuntimeError("torn")

    backend.before_run = fail
    with pytest.raises(RuntimeError, match="torn"):
        source.propose([seq], [2])
    backend.before_run = lambda number: None
    assert source.propose([seq], [1])[0].tokens.tolist() == [best(backend, [3, 1, 4, 1, 5])]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_draft_model_with_the_models_logits_is_always_right(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    monkeypatch.setattr(DraftPolicy, "step_cost", lambda self, source, *, first: 0.0)
    backend = Compiled(kv_blocks=64)
    engine = Engine(
        backend,
        FakeTokenizer(),
        context=200,
        end_ids=(),
        levers=("speculation", "batching"),
        make_sampler=sampler_factory(VOCAB, "portable"),
        sources=(ModelSource(Compiled(kv_blocks=64), context=200),),
        describe=describe,
    )
    engine.drafting.policy.cost = StillCost(FREE)
    requests = [request([i, 2, 3], max_tokens=60, temperature=temperature, seed=i, ignore_eos=True) for i in range(3)]
    done = run_all(engine, requests)
    counts = engine.evidence.of("speculation")
    assert counts["model_accepted"] == counts["model_drafted"] > 100
    if temperature == 0:
        for seq, asked in zip(done, requests, strict=True):
            assert list(seq.generation().token_ids) == token_by_token(backend, asked)
