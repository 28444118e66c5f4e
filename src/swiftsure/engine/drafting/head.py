"""Drafts from a draft head: a few matrices that go on from the big model's last hidden row (``models/draft_head.py``)."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.backend import Backend, RowBatch
from swiftsure.engine.drafting.choice import draft_sampler
from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.speculation import USUAL_TRUST
from swiftsure.kernels import DraftSampler

if TYPE_CHECKING:
    from swiftsure.engine.request import Sequence

_TRIALS = 7  # steps timed when measured


class _State:
    """What is drafted beyond the tokens that a sequence has."""

    __slots__ = ("chances", "feature", "sampler", "tokens")

    def __init__(self) -> None:
        self.feature: NDArray[np.float32] | None = None  # (hidden,) from which the next token is drafted; None: no pass has ended yet
        self.tokens: list[int] = []
        self.chances: list[float] = []
        self.sampler: DraftSampler | None = None

    @property
    def goes_on(self) -> bool:
        return self.feature is not None and (not self.chances or self.chances[-1] > 0)


class HeadSource:
    """One step of the head a token, all sequences that want one in a pass of it.

    Holds no text: a sequence's state is one hidden row, so prompts, preemption and rejected drafts need no work.
    """

    name = "head"
    stepwise = True
    wants_hidden = True
    trust = USUAL_TRUST

    def __init__(self, backend: Backend, shortlist: NDArray[np.int32], *, vocab_size: int, hidden: int) -> None:
        """``backend`` runs the head's schedule; ``shortlist`` (S,) are the tokens that its logits stand for, of ``vocab_size``."""
        self._backend = backend
        self._shortlist = shortlist
        self._vocab_size = vocab_size
        self._states: dict[int, _State] = {}
        rows = backend.max_rows
        self._features = np.zeros((rows, hidden), np.float32)
        self._tokens = np.zeros(rows, np.int32)
        self._rows = np.arange(rows, dtype=np.int32)
        self._zeros = np.zeros(rows, np.int32)
        self._tables = np.zeros((rows, 1), np.int32)  # every row is a sequence of its own, at position 0

    def measure(self) -> float:
        sampler = DraftSampler(self._vocab_size, isa=self._backend.isa, shortlist=self._shortlist)
        seconds = []
        for _ in range(_TRIALS):
            started = perf_counter()
            sampler.choose(self._run(1)[0], 0)
            seconds.append(perf_counter() - started)
        return median(seconds)

    def open(self, seq: Sequence) -> None:
        self._states[seq.key] = _State()

    def close(self, seq: Sequence) -> None:
        del self._states[seq.key]

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        assert hidden is not None, "a head goes on from hidden rows"
        state = self._states[seq.key]
        state.feature = hidden[-1].copy()
        state.tokens, state.chances = [], []

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        states = [self._states[seq.key] for seq in seqs]
        while wanting := [i for i, state in enumerate(states) if state.goes_on and len(state.chances) < lengths[i]]:
            for first in range(0, len(wanting), self._backend.max_rows):
                some = wanting[first : first + self._backend.max_rows]
                self._step([seqs[i] for i in some], [states[i] for i in some])
        return [_first(state, length) for state, length in zip(states, lengths, strict=True)]

    def clear(self) -> None:
        """Nothing is kept beyond a request."""

    def _step(self, seqs: SequenceOf[Sequence], states: SequenceOf[_State]) -> None:
        """Drafts one token more for each."""
        for row, (seq, state) in enumerate(zip(seqs, states, strict=True)):
            self._features[row] = state.feature
            self._tokens[row] = state.tokens[-1] if state.tokens else seq.ids[seq.length - 1]
        logits = self._run(len(seqs))
        hidden = self._backend.hidden()
        for row, (seq, state) in enumerate(zip(seqs, states, strict=True)):
            if state.sampler is None:
                state.sampler = draft_sampler(seq.request, self._vocab_size, isa=self._backend.isa, shortlist=self._shortlist)
            token, chance = state.sampler.choose(logits[row], seq.length + len(state.chances))
            state.tokens.append(token)
            state.chances.append(chance)
            state.feature = hidden[row].copy()

    def _run(self, rows: int) -> NDArray[np.float32]:
        return self._backend.run(
            RowBatch(
                tokens=self._tokens[:rows],
                positions=self._zeros[:rows],
                sequences=self._rows[:rows],
                block_tables=self._tables[:rows],
                logit_rows=self._rows[:rows],
                features=self._features[:rows],
            )
        )


def _first(state: _State, length: int) -> Draft:
    """The first tokens of what is drafted; only the last of all can have no chance, and is left out."""
    count = min(length, len(state.chances) - (not state.goes_on and bool(state.chances)))
    return Draft(np.array(state.tokens[:count], np.int32), state.chances[:count])
