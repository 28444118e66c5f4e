"""Drafts are chosen as the sampler will choose: same noise, same filters, on the same token ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.errors import UsageError
from swiftsure.kernels import DraftSampler, Sampler, supported_isas

VOCAB = 700
ISAS = supported_isas()


def logits_of(seed: int, vocab: int = VOCAB) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(vocab) * 3).astype(np.float32)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**63),
    choice=st.integers(0, 5),
    position=st.integers(1, 4000),
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.5]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01]),
    top_k=st.sampled_from([0, 1, 5, 200]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    isa=st.sampled_from(ISAS),
)
def test_same_logits_draft_what_is_sampled(
    seed: int, choice: int, position: int, temperature: float, top_p: float, top_k: int, min_p: float, isa: str
) -> None:
    logits = logits_of(seed)
    fields = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p, "seed": seed, "choice": choice}
    sampler = Sampler(VOCAB, isa=isa, **fields)  # type: ignore[arg-type]  # of several types
    sampler.prime(np.zeros(position, np.int32))
    token, chance = DraftSampler(VOCAB, isa=isa, **fields).choose(logits, position)  # type: ignore[arg-type]  # of several types
    assert token == sampler.accept(logits[None, :])[0]
    assert 0 < chance <= 1


def test_without_noise_the_chance_is_the_probability() -> None:
    logits = logits_of(3)
    token, chance = DraftSampler(VOCAB, isa=ISAS[0]).choose(logits, 9)
    probabilities = np.exp(logits.astype(np.float64) - logits.max())
    assert token == int(logits.argmax())
    assert chance == pytest.approx(float(probabilities[token] / probabilities.sum()), rel=1e-5)


def test_a_close_rival_under_the_noise_lowers_the_chance() -> None:
    logits = np.full(VOCAB, -50, np.float32)
    logits[5] = 0
    sampler = DraftSampler(VOCAB, isa=ISAS[0], temperature=1.0, seed=1)
    assert sampler.choose(logits, 3) == (5, 1.0)
    rivals = [logits.copy() for _ in range(40)]
    for position, row in enumerate(rivals):
        row[9] = 0
        assert 0.5 <= sampler.choose(row, position)[1] < 1
    assert {sampler.choose(row, position)[0] for position, row in enumerate(rivals)} == {5, 9}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), temperature=st.sampled_from([0.0, 0.8]), isa=st.sampled_from(ISAS))
def test_a_shortlist_is_the_vocabulary_without_the_other_tokens(seed: int, temperature: float, isa: str) -> None:
    rng = np.random.default_rng(seed)
    shortlist = np.sort(rng.choice(VOCAB, 130, replace=False)).astype(np.int32)
    logits = logits_of(seed)
    alone = np.full(VOCAB, -np.inf, np.float32)
    alone[shortlist] = logits[shortlist]
    short = DraftSampler(VOCAB, isa=isa, temperature=temperature, seed=seed, shortlist=shortlist)
    token, chance = short.choose(np.ascontiguousarray(logits[shortlist]), 77)
    whole = DraftSampler(VOCAB, isa=isa, temperature=temperature, seed=seed).choose(alone, 77)
    assert token == whole[0]
    assert chance == pytest.approx(whole[1], rel=1e-4)
    assert token in shortlist


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_offer_nothing(bad: float, temperature: float) -> None:
    logits = np.full(VOCAB, bad, np.float32)
    assert DraftSampler(VOCAB, isa=ISAS[0], temperature=temperature).choose(logits, 1)[1] == 0


@pytest.mark.parametrize("shortlist", [[3, 3], [4, 2], [-1, 2], [0, VOCAB]])
def test_a_shortlist_that_is_none_is_refused(shortlist: list[int]) -> None:
    with pytest.raises(UsageError, match="shortlist must ascend within the vocabulary"):
        DraftSampler(VOCAB, isa=ISAS[0], shortlist=np.array(shortlist, np.int32))


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="temperature must be between"):
        DraftSampler(VOCAB, isa=ISAS[0], temperature=-1)
