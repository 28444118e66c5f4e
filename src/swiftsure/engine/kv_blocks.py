"""Who owns which block of the key-value cache, and which blocks can serve again.

A block holds the keys and values of ``block_size`` positions. With the prefix cache on, a full block is entered under
``(node of the block before it, its token ids)``. A node number is given once and never again, so equal keys mean equal whole prefixes by
construction: a hash only finds the entry, the tokens themselves are compared. By schedule invariance the block's bytes are those that
recomputation would write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_ROOT = 0  # node of the empty prefix


@dataclass(slots=True, kw_only=True)
class BlockTable:
    """The blocks of one sequence, in order of position."""

    blocks: list[int] = field(default_factory=list)
    entered: int = 0  # leading full blocks known to the prefix cache
    node: int = _ROOT  # node of the last of them


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMatch:
    """Cached blocks that begin a prompt."""

    blocks: tuple[int, ...]
    node: int
    idle: int  # how many of them nobody holds: taking them uses up that many free blocks


class BlockManager:
    """Allocates blocks, counts their holders, keeps the prefix cache and evicts its least recently used block when room is needed."""

    def __init__(self, blocks: int, block_size: int, *, prefix_cache: bool) -> None:
        self.block_size = block_size
        self.total_blocks = blocks
        self.evictions = 0
        self._prefix_cache = prefix_cache
        self._holders = [0] * blocks
        self._blank = list(range(blocks - 1, -1, -1))  # hold nothing worth keeping; a stack, lowest block first
        self._idle: OrderedDict[int, None] = OrderedDict()  # cached and held by nobody, least recently used first
        self._entries: dict[tuple[int, bytes], tuple[int, int]] = {}  # (parent node, ids) -> (block, node)
        self._key_of: dict[int, tuple[int, bytes]] = {}  # block -> its entry
        self._next_node = _ROOT + 1

    @property
    def free_blocks(self) -> int:
        """Blocks that can be had now, cached idle ones included."""
        return len(self._blank) + len(self._idle)

    @property
    def cached_blocks(self) -> int:
        return len(self._entries)

    def blocks_for(self, positions: int) -> int:
        return -(-positions // self.block_size)

    def owned(self, table: BlockTable) -> int:
        """How many of the table's blocks nobody else holds."""
        return sum(1 for block in table.blocks if self._holders[block] == 1)

    def match(self, tokens: NDArray[np.int32]) -> PrefixMatch:
        """The longest cached prefix in whole blocks. The last token is never part of it: its row must run to give logits."""
        blocks: list[int] = []
        node, size = _ROOT, self.block_size
        if self._prefix_cache:
            for at in range(0, (len(tokens) - 1) // size * size, size):
                entry = self._entries.get((node, tokens[at : at + size].tobytes()))
                if entry is None:
                    break
                block, node = entry
                blocks.append(block)
        return PrefixMatch(blocks=tuple(blocks), node=node, idle=sum(1 for block in blocks if self._holders[block] == 0))

    def can_allocate(self, count: int) -> bool:
        return count <= self.free_blocks

    def adopt(self, table: BlockTable, match: PrefixMatch) -> None:
        """Gives an empty table the matched blocks."""
        for block in match.blocks:
            if self._holders[block] == 0:
                del self._idle[block]
            self._holders[block] += 1
        table.blocks.extend(match.blocks)
        table.entered, table.node = len(match.blocks), match.node

    def allocate(self, table: BlockTable, count: int) -> Sequence[int]:
        """Appends ``count`` blocks to the table and returns them; ask ``can_allocate`` first."""
        if not self.can_allocate(count):
            raise RuntimeError(f"{count} blocks asked of {self.free_blocks} free ones")
        taken = [self._blank.pop() if self._blank else self._evict() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        table.blocks.extend(taken)
        return taken

    def enter(self, table: BlockTable, tokens: NDArray[np.int32], computed: int) -> None:
        """Makes the table's full blocks among the first ``computed`` positions available to others."""
        if not self._prefix_cache:
            return
        size = self.block_size
        while (table.entered + 1) * size <= computed:
            at = table.entered * size
            key = (table.node, tokens[at : at + size].tobytes())
            entry = self._entries.get(key)
            if entry is None:  # otherwise another sequence computed the same block first; ours stays private
                block = table.blocks[table.entered]
                entry = (block, self._next_node)
                self._next_node += 1
                self._entries[key] = entry
                self._key_of[block] = key
            table.node = entry[1]
            table.entered += 1

    def free(self, table: BlockTable) -> None:
        """Gives the table's blocks back; cached ones stay available. The last goes first, so that a block never outlives its parent."""
        for block in reversed(table.blocks):
            self._holders[block] -= 1
            if self._holders[block] == 0:
                if block in self._key_of:
                    self._idle[block] = None
                else:
                    self._blank.append(block)
        table.blocks.clear()
        table.entered, table.node = 0, _ROOT

    def clear(self) -> None:
        """Forgets every cached prefix. Blocks that sequences hold stay theirs."""
        self._entries.clear()
        self._key_of.clear()
        self._blank.extend(self._idle)
        self._idle.clear()

    def _evict(self) -> int:
        block, _ = self._idle.popitem(last=False)
        del self._entries[self._key_of.pop(block)]
        self.evictions += 1
        return block
