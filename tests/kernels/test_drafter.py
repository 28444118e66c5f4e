"""The drafter against a search by eye: every suffix, every earlier place, longest and latest first."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.errors import UsageError
from swiftsure.kernels import supported_isas
from swiftsure.kernels.sampling import Drafter
from swiftsure.kernels.sampling_reference import noise_of_words, noise_words


def search(tokens: list[int], max_ngram: int, max_tokens: int) -> tuple[int, list[int]]:
    for n in range(min(max_ngram, len(tokens) - 1), 0, -1):
        for end in range(len(tokens) - 2, n - 2, -1):
            if tokens[end - n + 1 : end + 1] == tokens[-n:]:
                grown = list(tokens)
                for i in range(max_tokens):
                    grown.append(grown[end + 1 + i])
                return n, grown[len(tokens) :]
    return 0, []


def drafted(drafter: Drafter, max_tokens: int) -> list[int]:
    tokens, chances = drafter.draft(max_tokens)
    assert len(chances) == len(tokens)
    assert all(0 < chance < 1 for chance in chances)
    return list(tokens)


@settings(max_examples=500, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters), min_size=0, max_size=70)),
    st.integers(1, 10),
    st.integers(0, 12),
    st.randoms(use_true_random=False),
)
def test_every_step_finds_the_longest_suffix_and_its_latest_continuation(
    tokens: list[int], max_ngram: int, max_tokens: int, random
) -> None:
    drafter = Drafter(max_ngram=max_ngram)
    for i, token in enumerate(tokens):
        (drafter.extend if random.random() < 0.5 else drafter.observe)([token])
        length, continuation = search(tokens[: i + 1], max_ngram, max_tokens)
        assert drafter.match_length == length
        assert drafted(drafter, max_tokens) == continuation
    assert len(drafter) == len(tokens)


def test_appending_at_once_and_one_by_one_is_the_same() -> None:
    tokens = np.random.default_rng(1).integers(0, 6, 5000)
    whole, single = Drafter(), Drafter()
    whole.observe(tokens)
    for token in tokens:
        single.observe([token])
    assert whole.match_length == single.match_length > 0
    assert list(whole.draft(20)[0]) == list(single.draft(20)[0])
    assert whole.draft(20)[1] == single.draft(20)[1]


def guesses(drafter: Drafter, tokens: NDArray[np.int64]) -> tuple[list[float], list[bool]]:
    """What the drafter says of the next token, before each token, and whether it came."""
    stated, came = [], []
    for token in tokens.tolist():
        draft, chances = drafter.draft(1)
        if len(draft):
            stated.append(chances[0])
            came.append(int(draft[0]) == token)
        drafter.observe([token])
    return stated, came


@pytest.mark.parametrize("faithful", [0.02, 0.3, 0.7, 0.98])
def test_chances_come_to_say_how_often_the_draft_is_right(faithful: float) -> None:
    """A text that goes on as it did before with a probability that no prior could know."""
    rng = np.random.default_rng(3)
    page = rng.integers(0, 5000, 400)
    copies = [np.where(rng.random(400) < faithful, page, rng.integers(0, 5000, 400)) for _ in range(12)]
    drafter = Drafter()
    drafter.extend(page)
    stated, came = guesses(drafter, np.concatenate(copies))
    late = len(stated) // 2
    assert np.mean(stated[late:]) == pytest.approx(np.mean(came[late:]), abs=0.08)


def test_longer_matches_and_steady_continuations_are_trusted_more() -> None:
    drafter = Drafter()
    drafter.extend([1, 2, 3, 4, 5, 6, 7, 8, 90, 3, 91, 3, 92, 3])
    unsteady = drafter.draft(1)[1][0]
    drafter.extend([1, 2, 3, 4, 5, 6])
    assert drafter.draft(1)[1][0] > unsteady + 0.2


def test_another_place_that_reads_as_well_and_goes_on_otherwise_is_a_warning() -> None:
    alone, contested = Drafter(), Drafter()
    alone.extend([90, 4, 5, 6, 7, 70, 91, 92, 93, 94, 4, 5, 6])
    contested.extend([4, 5, 6, 8, 80, 90, 4, 5, 6, 7, 70, 91, 4, 5, 6])
    assert drafted(alone, 1) == drafted(contested, 1) == [7]
    assert contested.draft(1)[1][0] < alone.draft(1)[1][0] - 0.1


def test_token_that_was_guessed_in_vain_is_trusted_less_than_one_that_came() -> None:
    def chance(after_guess: int) -> float:
        """Of token 7, which was guessed six times before, after six different tokens."""
        drafter = Drafter()
        for token in range(20, 26):
            drafter.extend([token, 7, 60 + token, token, 7 if after_guess == 7 else after_guess + token, 100 + token])
        drafter.extend([50, 7, 51, 50])
        assert drafted(drafter, 1) == [7]
        return drafter.draft(1)[1][0]

    assert chance(7) > chance(200) + 0.1


@pytest.mark.parametrize("isa", supported_isas())
def test_noise_that_a_token_will_get_decides_where_its_probability_does_not(isa: str) -> None:
    """The chances of one draft under many seeds are ordered as the noise of its token is."""
    noise, chances = [], []
    for seed in range(200):
        drafter = Drafter(temperature=0.7, seed=seed, choice=3, isa=isa)
        drafter.extend([5, 6, 7, 8, 5, 6])
        assert drafted(drafter, 1) == [7]
        chances.append(drafter.draft(1)[1][0])
        noise.append(noise_of_words(noise_words(64, seed=seed, choice=3, position=6))[7])
    assert np.all(np.diff(np.array(chances)[np.argsort(noise)]) >= -1e-3)
    assert max(chances) > 2 * min(chances)
    plain = [Drafter(seed=seed) for seed in range(3)]
    for drafter in plain:
        drafter.extend([5, 6, 7, 8, 5, 6])
    assert len({drafter.draft(1)[1][0] for drafter in plain}) == 1, "without sampling there is no noise"


def test_periodic_text_is_drafted_past_its_end() -> None:
    drafter = Drafter(max_ngram=4)
    drafter.extend([9, 1, 2, 3, 1, 2, 3, 1, 2])
    assert drafted(drafter, 8) == [3, 1, 2, 3, 1, 2, 3, 1]


def test_of_two_places_the_latest_speaks() -> None:
    drafter = Drafter(max_ngram=4)
    drafter.extend([1, 2, 7, 0, 1, 2, 8, 0, 5, 1, 2])
    assert drafter.match_length == 2
    assert drafted(drafter, 1) == [8]


def test_new_text_drafts_nothing() -> None:
    drafter = Drafter(max_ngram=4)
    assert drafted(drafter, 4) == []
    drafter.extend(range(100))
    assert drafter.match_length == 0
    assert drafted(drafter, 4) == []


def test_a_long_sequence_costs_microseconds_a_token_and_bounded_memory() -> None:
    # Text of few words (many equal n-grams), of one word, and of only new words: the three ways a look-up could degenerate.
    rng = np.random.default_rng(2)
    for tokens in (rng.integers(0, 50, 32_768), np.zeros(32_768, np.int64), np.arange(32_768)):
        drafter = Drafter(max_ngram=8)
        started = time.perf_counter()
        drafter.extend(tokens)
        elapsed = time.perf_counter() - started
        assert elapsed / tokens.size < 50e-6  # measured: under 1 us; the margin is for busy machines
        assert drafter.memory_bytes <= tokens.size * (4 * 2 + 8 * 64 + 2 * 8 + 2 * 32) + 2**14


@pytest.mark.parametrize("max_ngram", [0, -1, 33])
def test_impossible_lengths_are_refused(max_ngram: int) -> None:
    with pytest.raises(UsageError, match="must be at"):
        Drafter(max_ngram=max_ngram)
