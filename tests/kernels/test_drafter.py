"""The drafter against a search by eye: every suffix, every earlier place, longest and latest first."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.errors import UsageError
from swiftsure.kernels.sampling import Drafter


def search(tokens: list[int], max_ngram: int, min_ngram: int, max_tokens: int) -> tuple[int, list[int]]:
    for n in range(min(max_ngram, len(tokens) - 1), min_ngram - 1, -1):
        for end in range(len(tokens) - 2, n - 2, -1):
            if tokens[end - n + 1 : end + 1] == tokens[-n:]:
                grown = list(tokens)
                for i in range(max_tokens):
                    grown.append(grown[end + 1 + i])
                return n, grown[len(tokens) :]
    return 0, []


@settings(max_examples=500, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda letters: st.lists(st.integers(0, letters), min_size=0, max_size=70)),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(0, 12),
)
def test_every_step_finds_the_longest_suffix_and_its_latest_continuation(tokens: list[int], a: int, b: int, max_tokens: int) -> None:
    min_ngram, max_ngram = min(a, b), max(a, b)
    drafter = Drafter(max_ngram=max_ngram, min_ngram=min_ngram)
    for i, token in enumerate(tokens):
        drafter.extend([token])
        length, continuation = search(tokens[: i + 1], max_ngram, min_ngram, max_tokens)
        assert drafter.match_length == length
        assert list(drafter.draft(max_tokens)) == continuation
    assert len(drafter) == len(tokens)


def test_appending_at_once_and_one_by_one_is_the_same() -> None:
    tokens = np.random.default_rng(1).integers(0, 6, 5000)
    whole, single = Drafter(), Drafter()
    whole.extend(tokens)
    for token in tokens:
        single.extend([token])
    assert whole.match_length == single.match_length > 0
    assert list(whole.draft(20)) == list(single.draft(20))


def test_periodic_text_is_drafted_past_its_end() -> None:
    drafter = Drafter(max_ngram=4, min_ngram=2)
    drafter.extend([9, 1, 2, 3, 1, 2, 3, 1, 2])
    assert list(drafter.draft(8)) == [3, 1, 2, 3, 1, 2, 3, 1]


def test_of_two_places_the_latest_speaks() -> None:
    drafter = Drafter(max_ngram=4, min_ngram=2)
    drafter.extend([1, 2, 7, 0, 1, 2, 8, 0, 5, 1, 2])
    assert drafter.match_length == 2
    assert list(drafter.draft(1)) == [8]


def test_new_text_drafts_nothing() -> None:
    drafter = Drafter(max_ngram=4, min_ngram=2)
    assert list(drafter.draft(4)) == []
    drafter.extend(range(100))
    assert drafter.match_length == 0
    assert list(drafter.draft(4)) == []


def test_a_long_sequence_costs_microseconds_a_token_and_bounded_memory() -> None:
    # Text of few words (many equal n-grams), of one word, and of only new words: the three ways a look-up could degenerate.
    rng = np.random.default_rng(2)
    for tokens in (rng.integers(0, 50, 32_768), np.zeros(32_768, np.int64), np.arange(32_768)):
        drafter = Drafter(max_ngram=8, min_ngram=2)
        started = time.perf_counter()
        drafter.extend(tokens)
        elapsed = time.perf_counter() - started
        assert elapsed / tokens.size < 50e-6  # measured: under 1 us; the margin is for busy machines
        assert drafter.memory_bytes <= tokens.size * (4 * 2 + 7 * 32) + 2**14


@pytest.mark.parametrize(("max_ngram", "min_ngram"), [(3, 0), (2, 3), (33, 1), (0, 0)])
def test_impossible_lengths_are_refused(max_ngram: int, min_ngram: int) -> None:
    with pytest.raises(UsageError, match="must be at"):
        Drafter(max_ngram=max_ngram, min_ngram=min_ngram)
