"""Drafts from a smaller model of the same vocabulary, with a key-value cache of its own (Leviathan et al., 2023).

The token that it drafts is the one that the request's sampler would draw from the smaller model's logits, noise included, so a sampled
request follows its draft nearly as far as a greedy one.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.backend import Backend, RowBatch
from swiftsure.engine.drafting.choice import draft_sampler
from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.kv_blocks import BlockManager, BlockTable
from swiftsure.engine.speculation import USUAL_TRUST
from swiftsure.kernels import DraftSampler

if TYPE_CHECKING:
    from swiftsure.engine.request import Sequence

_TRIALS = 5  # passes timed when measured


class _State:
    """What the smaller model knows of one sequence."""

    __slots__ = ("chances", "computed", "ids", "known", "sampler", "stuck", "table", "used")

    def __init__(self, size: int) -> None:
        self.ids = np.zeros(size, np.int32)  # tokens of the sequence, then those drafted after them
        self.known = 0  # tokens of the sequence among them
        self.computed = 0  # leading tokens whose keys and values are in the cache
        self.chances: list[float] = []  # of the tokens drafted
        self.stuck = False  # no room for another token, or none that can be chosen
        self.table = BlockTable()
        self.used = 0  # number of the last call that asked
        self.sampler: DraftSampler | None = None

    @property
    def length(self) -> int:
        return self.known + len(self.chances)


class ModelSource:
    """Catches up on the tokens that a sequence got, then drafts one token a pass, all sequences that want one in a pass of it.

    Rejected drafts are overwritten. Cache blocks go to the sequences that were asked for last; one that finds none drafts nothing.
    """

    name = "model"
    stepwise = True
    wants_hidden = False
    trust = USUAL_TRUST

    def __init__(self, backend: Backend, *, context: int) -> None:
        """``context``: positions that the smaller model was made for."""
        self._backend = backend
        self._blocks = BlockManager(backend.kv_blocks, backend.kv_block_size, prefix_cache=False)
        self._context = min(context, backend.kv_blocks * backend.kv_block_size)
        self._states: dict[int, _State] = {}
        self._calls = 0
        rows, width = backend.max_rows, self._blocks.blocks_for(self._context)
        self._tokens = np.zeros(rows, np.int32)
        self._positions = np.zeros(rows, np.int32)
        self._sequences = np.zeros(rows, np.int32)
        self._wanted = np.zeros(backend.max_logit_rows, np.int32)
        self._tables = np.zeros((backend.max_logit_rows, width), np.int32)
        self._counting = np.arange(max(self._context, rows), dtype=np.int32)

    def measure(self) -> float:
        sampler = DraftSampler(self._backend.vocab_size, isa=self._backend.isa)
        self._tokens[0] = self._positions[0] = self._sequences[0] = self._wanted[0] = 0
        self._tables[0] = 0  # scribbles on block 0: nothing is cached yet
        seconds = []
        for _ in range(_TRIALS):
            started = perf_counter()
            sampler.choose(self._run(1, 1, 1)[0], 0)
            seconds.append(perf_counter() - started)
        return median(seconds)

    def open(self, seq: Sequence) -> None:
        self._states[seq.key] = _State(len(seq.ids))

    def close(self, seq: Sequence) -> None:
        self._blocks.free(self._states.pop(seq.key).table)

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        """The tokens are read from the sequence when they are needed."""

    def clear(self) -> None:
        """Nothing is kept beyond a request."""

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        self._calls += 1
        states = [self._states[seq.key] for seq in seqs]
        for seq, state in zip(seqs, states, strict=True):
            self._follow(seq, state)
        while wanting := [i for i, state in enumerate(states) if not state.stuck and len(state.chances) < lengths[i]]:
            wanting = [i for i in wanting if self._make_room(states[i])]
            for first in range(0, len(wanting), self._backend.max_logit_rows):
                some = wanting[first : first + self._backend.max_logit_rows]
                self._step([seqs[i] for i in some], [states[i] for i in some])
        return [_first(state, length) for state, length in zip(states, lengths, strict=True)]

    def _follow(self, seq: Sequence, state: _State) -> None:
        """Takes in what the sequence got since the last call; what was drafted otherwise is not computed any more."""
        state.used = self._calls
        if state.known == seq.length:
            return
        came = seq.ids[state.known : seq.length]
        drafted = state.ids[state.known : min(state.computed, seq.length)]
        wrong = np.flatnonzero(drafted != came[: len(drafted)])
        right = state.known + (int(wrong[0]) if len(wrong) else len(drafted))
        # At least the last token runs again: its row gives the logits to draft from.
        state.computed = min(state.computed, right, seq.length - 1)
        state.ids[state.known : seq.length] = came
        state.known, state.chances, state.stuck = seq.length, [], False

    def _make_room(self, state: _State) -> bool:
        """Whether there are blocks for every token there is; sequences that did not ask in this call give theirs up, the stalest first."""
        need = self._blocks.blocks_for(state.length) - len(state.table.blocks)
        if state.length > self._context or state.length >= len(state.ids):
            state.stuck = True
            return False
        while not self._blocks.can_allocate(need):
            stale = min((s for s in self._states.values() if s.used < self._calls and s.table.blocks), key=lambda s: s.used, default=None)
            if stale is None:
                state.stuck = True
                return False
            self._blocks.free(stale.table)
            stale.computed = 0
        self._blocks.allocate(state.table, need)
        return True

    def _step(self, seqs: SequenceOf[Sequence], states: SequenceOf[_State]) -> None:
        """Runs what is not computed yet, and drafts one token more for each."""
        try:
            for ending, rows, sequences in self._passes(states):
                logits = self._run(rows, len(ending), sequences)
                for row, i in enumerate(ending):
                    self._draft(seqs[i], states[i], logits[row])
        except BaseException:  # the pass may not have run, and what a cache holds then is not known
            for state in states:
                state.computed = 0
            raise

    def _draft(self, seq: Sequence, state: _State, logits_row: NDArray[np.float32]) -> None:
        if state.sampler is None:
            state.sampler = draft_sampler(seq.request, self._backend.vocab_size, isa=self._backend.isa)
        token, chance = state.sampler.choose(logits_row, state.length)
        if chance <= 0:
            state.stuck = True
            return
        state.ids[state.length] = token
        state.chances.append(chance)

    def _passes(self, states: SequenceOf[_State]) -> Iterator[tuple[list[int], int, int]]:
        """Fills the arrays pass by pass: (indices of the states whose last row it holds, rows, sequences)."""
        for i, state in enumerate(states):
            blocks = state.table.blocks
            self._tables[i, : len(blocks)] = blocks
        row = 0
        ending: list[int] = []
        for i, state in enumerate(states):
            while state.computed < state.length:
                count = min(state.length - state.computed, self._backend.max_rows - row)
                if not count:
                    yield ending, row, len(states)
                    row, ending = 0, []
                    continue
                end, start = row + count, state.computed
                self._tokens[row:end] = state.ids[start : start + count]
                self._positions[row:end] = self._counting[start : start + count]
                self._sequences[row:end] = i
                state.computed += count
                row = end
            self._wanted[len(ending)] = row - 1
            ending.append(i)
        yield ending, row, len(states)

    def _run(self, rows: int, wanted: int, sequences: int) -> NDArray[np.float32]:
        return self._backend.run(
            RowBatch(
                tokens=self._tokens[:rows],
                positions=self._positions[:rows],
                sequences=self._sequences[:rows],
                block_tables=self._tables[:sequences],
                logit_rows=self._wanted[:wanted],
            )
        )


def _first(state: _State, length: int) -> Draft:
    count = min(length, len(state.chances))
    return Draft(state.ids[state.known : state.known + count].copy(), state.chances[:count])
