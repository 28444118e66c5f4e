"""Requests queued by a caller that runs the passes: what comes back, when, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import ALL_LEVERS, FakeBackend, make_llm

from swiftsure import SamplingParams
from swiftsure.errors import CapacityError, ContextLengthError, UsageError

FOUR = SamplingParams(max_tokens=4, ignore_eos=True)


@pytest.fixture
def llm():
    with make_llm(levers=ALL_LEVERS) as loaded:
        yield loaded


def test_submitting_runs_no_pass_and_stepping_runs_one(llm):
    submitted = llm.submit([1, 2, 3], sampling=FOUR)
    assert llm.activation.passes["passes"] == 0
    assert llm.step()
    assert llm.activation.passes["passes"] == 1
    assert len(submitted.token_ids) == 1
    while llm.step():
        pass
    assert (submitted.finished, submitted.finish_reason, submitted.error) == (True, "length", None)
    assert not llm.step(), "nothing is left to do"


def test_submitted_request_gets_the_tokens_and_text_of_generate(llm):
    sampling = SamplingParams(max_tokens=20, temperature=0.8, seed=3)
    submitted, pieces = llm.submit(np.arange(9), sampling=sampling), []
    while not submitted.finished:
        llm.step()
        pieces += submitted.take_pieces()
    alone = make_llm().generate(list(range(9)), sampling=sampling)
    assert submitted.generation().token_ids == tuple(submitted.token_ids) == alone.token_ids
    assert "".join(pieces) == submitted.generation().text == alone.text


def test_a_tier_and_a_choice_stay_with_the_request(llm):
    submitted = llm.submit([1, 2, 3], sampling=FOUR, choice=2, tier="priority")
    assert (submitted.request.tier, submitted.request.choice) == ("priority", 2)
    assert llm.submit([1, 2, 3]).request.tier == "standard"


def test_one_of_the_submitted_requests_is_cancelled_and_the_other_goes_on(llm):
    gone, stays = llm.submit([1, 2], sampling=FOUR), llm.submit([3, 4], sampling=FOUR)
    llm.step()
    llm.cancel(gone)
    while llm.step():
        pass
    assert (gone.finish_reason, stays.finish_reason) == ("cancelled", "length")
    assert len(gone.token_ids) == 1


def test_what_goes_wrong_with_one_request_is_kept_with_it():
    def fail(position, row):
        raise RuntimeError("no more")

    with make_llm(FakeBackend(kv_blocks=2), levers=ALL_LEVERS) as llm:
        bad, large, good = llm.submit([1], on_logits=fail), llm.submit(list(range(100))), llm.submit([1, 2], sampling=FOUR)
        while llm.step():
            pass
    assert str(bad.error) == "no more"
    assert isinstance(large.error, CapacityError)
    assert (good.finish_reason, good.error) == ("length", None)


@pytest.mark.parametrize(
    ("prompt", "fields", "says"),
    [
        ("text", {}, "submit takes token ids, got text or messages"),
        ([{"role": "user", "content": "Hello"}], {}, "submit takes token ids, got text or messages"),
        ([], {}, "a prompt must not be empty"),
        ([999], {}, "below the vocabulary size 320, got 999"),
        ([1], {"tier": "fast"}, "tier must be standard or priority, got 'fast'"),
        ([1], {"choice": -1}, "choice must be an integer from 0 to 2147483647, got -1"),
        ([1], {"choice": True}, "got True"),
        ([1], {"sampling": {"max_tokens": 3}}, "sampling must be SamplingParams, got dict"),
        ([1], {"on_logits": 3}, "on_logits must be callable"),
    ],
)
def test_what_cannot_be_submitted_is_refused_before_it_is_queued(llm, prompt, fields, says):
    with pytest.raises(UsageError, match=says):
        llm.submit(prompt, **fields)
    assert not llm.step()


def test_prompt_that_does_not_fit_the_context_is_refused_with_the_limit(llm):
    with pytest.raises(ContextLengthError, match="the context of 256 tokens takes a prompt of at most 255"):
        llm.submit([1] * 256)


def test_a_closed_model_takes_no_request_and_runs_no_pass():
    llm = make_llm()
    llm.close()
    for call in (lambda: llm.submit([1]), llm.step):
        with pytest.raises(UsageError, match="closed"):
            call()
