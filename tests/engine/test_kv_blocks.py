"""Blocks: none leaks, none serves two masters, and a cached prefix is the whole prefix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.engine.kv_blocks import BlockManager, BlockTable

SIZE = 4


def ids(tokens) -> np.ndarray:
    return np.array(tokens, np.int32)


def filled(manager: BlockManager, tokens) -> BlockTable:
    """A table over ``tokens`` that took what the cache had, computed the rest, and entered it."""
    table = BlockTable()
    manager.adopt(table, manager.match(ids(tokens)))
    manager.allocate(table, manager.blocks_for(len(tokens)) - len(table.blocks))
    manager.enter(table, ids(tokens), len(tokens))
    return table


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_sequence_of_uses_leaks_a_block_or_mixes_up_prefixes(data):
    """A model of the cache: what each block holds is tracked beside it; a match must hold exactly the prompt's tokens."""
    manager = BlockManager(data.draw(st.integers(3, 12)), SIZE, prefix_cache=data.draw(st.booleans()))
    content: dict[int, tuple[int, ...]] = {}  # block -> the whole prefix that its keys and values depend on
    held: list[tuple[BlockTable, list[int]]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["take", "take", "give", "clear"]))
        if action == "take":
            tokens = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=20))
            match = manager.match(ids(tokens))
            for n, block in enumerate(match.blocks):
                assert content[block] == tuple(tokens[: (n + 1) * SIZE])
            if not manager.can_allocate(manager.blocks_for(len(tokens)) - len(match.blocks) + match.idle):
                continue
            table = filled(manager, tokens)
            for n, block in enumerate(table.blocks):
                content[block] = tuple(tokens[: (n + 1) * SIZE])
            held.append((table, tokens))
        elif action == "give" and held:
            manager.free(held.pop(data.draw(st.integers(0, len(held) - 1)))[0])
        elif action == "clear":
            manager.clear()
            assert manager.cached_blocks == 0
        for table, tokens in held:
            for n, block in enumerate(table.blocks):
                assert content[block] == tuple(tokens[: (n + 1) * SIZE]), "a block that a sequence holds was handed on"
        in_use = {block for table, _ in held for block in table.blocks}
        assert manager.free_blocks == manager.total_blocks - len(in_use)
    for table, _ in held:
        manager.free(table)
    assert manager.free_blocks == manager.total_blocks


def test_last_token_is_never_served_from_the_cache():
    manager = BlockManager(8, SIZE, prefix_cache=True)
    manager.free(filled(manager, range(8)))
    assert len(manager.match(ids(range(8))).blocks) == 1
    assert len(manager.match(ids(range(9))).blocks) == 2


def test_equal_block_after_another_beginning_is_no_match():
    manager = BlockManager(8, SIZE, prefix_cache=True)
    manager.free(filled(manager, [1, 1, 1, 1, 7, 7, 7, 7]))
    assert manager.match(ids([2, 2, 2, 2, 7, 7, 7, 7, 0])).blocks == ()


def test_partly_filled_block_is_not_entered():
    manager = BlockManager(8, SIZE, prefix_cache=True)
    table = BlockTable()
    manager.allocate(table, 2)
    manager.enter(table, ids(range(8)), 7)
    assert manager.cached_blocks == 1


def test_least_recently_used_prefix_goes_first_and_its_tail_before_its_head():
    manager = BlockManager(4, SIZE, prefix_cache=True)
    manager.free(filled(manager, [1] * 8))
    manager.free(filled(manager, [2] * 8))
    manager.allocate(BlockTable(), 1)
    assert manager.evictions == 1
    assert len(manager.match(ids([1] * 9)).blocks) == 1, "the tail of the older prefix is gone, its head still serves"
    assert len(manager.match(ids([2] * 9)).blocks) == 2


def test_shared_block_is_kept_until_its_last_holder_frees_it():
    manager = BlockManager(6, SIZE, prefix_cache=True)
    first = filled(manager, [5] * 9)
    second = filled(manager, [5] * 9)
    assert first.blocks[:2] == second.blocks[:2]
    assert manager.owned(second) == 1
    manager.free(first)
    assert manager.free_blocks == 6 - 3
    manager.free(second)
    assert manager.free_blocks == 6


def test_allocating_more_than_there_is_says_so():
    with pytest.raises(RuntimeError, match="5 blocks asked of 4 free ones"):
        BlockManager(4, SIZE, prefix_cache=False).allocate(BlockTable(), 5)


def test_without_the_lever_nothing_is_cached():
    manager = BlockManager(4, SIZE, prefix_cache=False)
    manager.free(filled(manager, range(8)))
    assert manager.match(ids(range(9))).blocks == ()
    assert manager.cached_blocks == 0
