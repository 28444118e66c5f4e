"""The store of texts against a search by eye: every place that is still held, longest and latest first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.errors import UsageError
from swiftsure.kernels import TextStore

KEY = 4


def search(texts: list[list[int]], capacity: int, ids: list[int], max_match: int, max_tokens: int) -> tuple[int, list[int]]:
    ring: list[int] = []
    for text in texts:
        ring += [*text[max(0, len(text) + 1 - capacity) :], -1]
    ring = ring[-capacity:]
    best, found = 0, -1
    for at in range(len(ring) - 2, -1, -1):
        length = 0
        while length < min(max_match, len(ids)) and at - length >= 0 and ring[at - length] == ids[len(ids) - 1 - length]:
            length += 1
        if length >= KEY and length > best and ring[at + 1] != -1:
            best, found = length, at
    tokens = []
    for token in ring[found + 1 : found + 1 + max_tokens] if best else []:
        if token == -1:
            break
        tokens.append(token)
    return best, tokens


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=25), max_size=6),
    st.integers(8, 60),
    st.lists(st.integers(0, 2), max_size=12),
    st.integers(4, 12),
    st.integers(0, 9),
)
def test_finds_the_longest_match_that_is_still_held_and_of_equals_the_latest(texts, capacity, ids, max_match, max_tokens) -> None:
    store = TextStore(capacity)
    for text in texts:
        store.add(text)
    length, tokens = store.find(ids, max_match=max_match, max_tokens=max_tokens)
    expected = search(texts, capacity, ids, max_match, max_tokens) if max_tokens else (0, [])
    assert len(store) <= capacity
    if sum(len(text) for text in texts) <= 32:  # no chain is longer than what a search looks at
        assert (length, list(tokens)) == expected
    else:
        assert length <= expected[0]
        assert list(tokens) == [] or length >= KEY


def test_draft_ends_where_its_text_ends() -> None:
    store = TextStore(64)
    store.add([1, 2, 3, 4, 5])
    store.add([6, 7, 8, 9])
    assert [*store.find([1, 2, 3, 4], max_match=8, max_tokens=8)[1]] == [5]
    assert store.find([2, 3, 4, 5], max_match=8, max_tokens=8)[0] == 0, "nothing follows there"
    assert store.find([4, 5, 6, 7], max_match=8, max_tokens=8)[0] == 0, "texts do not run into each other"


def test_cleared_store_knows_nothing_and_memory_stays_as_it_was() -> None:
    store = TextStore(1000)
    before = store.memory_bytes
    for seed in range(50):
        store.add(np.random.default_rng(seed).integers(0, 50, 300))
    assert store.memory_bytes == before <= 16 * 1000
    text = list(range(100, 120))
    store.add(text)
    assert list(store.find(text[:10], max_match=20, max_tokens=3)[1]) == text[10:13]
    store.clear()
    assert store.find(text[:10], max_match=20, max_tokens=3)[0] == 0
    assert len(store) == 0


@pytest.mark.parametrize("capacity", [7, 0, 2**30 + 1])
def test_impossible_capacities_are_refused(capacity: int) -> None:
    with pytest.raises(UsageError, match="must be at"):
        TextStore(capacity)
