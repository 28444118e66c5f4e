"""The digest of an answer is its own: the same in any company and replayed, another one where a single bit of a logit differs."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from fakes import ALL_LEVERS, FakeBackend, make_engine, make_llm, request, run_all

from swiftsure.engine.token_chain import TokenChain
from swiftsure.errors import ContextLengthError, UsageError
from swiftsure.kernels import hash_row

PROMPTS = ["abcabcabcabcabc", "abcabcabcabcxyz" * 2, "zzzz", "abcabcabcabcabc"]
SAMPLED = {"max_tokens": 40, "temperature": 0.5, "seed": 3, "ignore_eos": True}


class OneBitOff(FakeBackend):
    """Logits at one position with the lowest bit of one of them turned: no token changes."""

    wrong_length = 0

    def logits_of(self, prefix):
        row = super().logits_of(prefix)
        if len(prefix) == self.wrong_length:
            row.view(np.uint32)[17] ^= 1
        return row


def chain(numerics="n1", weights="w", prompt=(1, 2)):
    return TokenChain(numerics=numerics, weights_sha256=weights, prompt_ids=np.array(prompt, np.int32), hash_row=hash_row)


def test_the_chain_is_made_as_its_decision_page_says():
    row = np.arange(40, dtype=np.float32)
    start = hashlib.sha256(b"sw1\0n1\0w\0" + (2).to_bytes(8, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")).digest()
    link = hashlib.sha256(start + hash_row(row) + (7).to_bytes(8, "little") + (300).to_bytes(4, "little")).digest()
    made = chain()
    assert made.digest == f"sw1:{start.hex()}"
    made.extend(7, 300, row)
    assert made.digest == f"sw1:{link.hex()}"


def test_numerics_weights_prompt_position_token_and_row_each_count():
    row, other = np.zeros(8, np.float32), np.full(8, -0.0, np.float32)
    starts = [chain(), chain("n2"), chain(weights="v"), chain(prompt=(1, 3)), chain(prompt=(1,)), chain("n", "1w")]
    assert len({one.digest for one in starts}) == len(starts)
    seen = set()
    for position, token, values in ((0, 0, row), (1, 0, row), (0, 1, row), (0, 0, other)):
        one = chain()
        one.extend(position, token, values)
        seen.add(one.digest)
    assert len(seen) == 4


def test_a_digest_is_given_where_it_is_asked_for_only():
    with make_llm() as llm:
        assert llm.generate("abc", max_tokens=2).digest is None
        assert llm.generate("abc", max_tokens=2, digest=True).digest.startswith("sw1:")
        with pytest.raises(UsageError, match="digest must be True or False, got 'yes'"):
            llm.generate("abc", digest="yes")


def test_digests_in_exact_company_are_those_of_default_alone():
    """Few blocks: some of the company is preempted; the text repeats itself: drafts are accepted and refused."""
    values = {**SAMPLED, "temperature": 0.1}
    with make_llm(FakeBackend(reach=1)) as default:
        alone = [default.generate(prompt, digest=True, **values).digest for prompt in PROMPTS]
    with make_llm(FakeBackend(reach=1, kv_blocks=17), levers=ALL_LEVERS) as exact:
        together = [result.digest for result in exact.generate(PROMPTS, digest=True, **values)]
        counts = exact._engine.evidence
    assert counts.passes.preemptions > 0
    assert counts.speculation.drafted > counts.speculation.accepted > 0
    assert together == alone
    assert len(set(alone)) == 3


def test_a_stream_left_in_the_middle_has_the_digest_of_what_it_gave():
    with make_llm(FakeBackend(reach=2), levers=ALL_LEVERS) as llm:
        with llm.stream("abcabcabc", digest=True, **SAMPLED) as stream:
            for _ in range(3):
                next(stream)
        given = stream.generation
        assert 3 <= len(given.token_ids) < 40
        assert given.digest == llm.replay_digest(given.prompt_ids, given.token_ids)


def test_a_replay_gives_the_digest_from_the_tokens_alone_and_asks_for_their_rows_only():
    backend = FakeBackend(max_rows=16, max_logit_rows=4)
    with make_llm(backend, levers=ALL_LEVERS) as llm:
        given = llm.generate("a prompt that takes more than one pass", digest=True, **SAMPLED)
        backend.batches.clear()
        assert llm.replay_digest(given.prompt_ids, given.token_ids) == given.digest
        assert sum(len(batch.tokens) for batch in backend.batches) == len(given.prompt_ids) + len(given.token_ids) - 1
        assert sum(len(batch.logit_rows) for batch in backend.batches) == len(given.token_ids)
        assert llm.replay_digest(given.prompt_ids, given.token_ids[:-1]) != given.digest
        assert llm.replay_digest([1], []) == llm.replay_digest(np.array([1]), ())


def test_a_replay_refuses_what_is_no_answer_of_this_model():
    with make_llm(context=16) as llm:
        with pytest.raises(UsageError, match="at least 1 token"):
            llm.replay_digest([], [1])
        with pytest.raises(UsageError, match="below the vocabulary size"):
            llm.replay_digest([1], [100_000])
        with pytest.raises(ContextLengthError, match="17 tokens do not fit"):
            llm.replay_digest([1] * 10, [1] * 7)


@pytest.mark.parametrize("wrong_length", [3, 20, 42])
def test_one_wrong_bit_at_any_emitted_position_changes_the_digest_and_no_token(wrong_length):
    backend = OneBitOff()
    with make_llm(backend) as llm:
        right = llm.generate("abc", digest=True, **SAMPLED)
        backend.wrong_length = wrong_length
        wrong = llm.generate("abc", digest=True, **SAMPLED)
    assert wrong.token_ids == right.token_ids
    assert wrong.digest != right.digest


def test_a_wrong_bit_in_the_prompt_behind_which_no_token_was_chosen_is_not_in_the_digest():
    backend = OneBitOff()
    backend.wrong_length = 2
    with make_llm(backend) as wrong, make_llm() as right:
        assert wrong.generate("abc", digest=True, **SAMPLED).digest == right.generate("abc", digest=True, **SAMPLED).digest


def test_a_callback_that_writes_to_its_row_does_not_change_the_digest():
    def scribble(position, row):
        row[:] = 0

    engine = make_engine()
    written, untouched = run_all(
        engine, [request([1, 2], digest=True, max_tokens=4, on_logits=scribble), request([1, 2], digest=True, max_tokens=4)]
    )
    assert written.generation().digest == untouched.generation().digest
