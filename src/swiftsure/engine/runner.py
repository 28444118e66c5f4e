"""Executes the work of a step: rows into arrays, one call of the back end, rows of logits out. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as SequenceOf
from math import inf
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.backend import Backend, RowBatch
from swiftsure.engine.request import Sequence
from swiftsure.engine.scheduler import Work


class Runner:
    """Owns the arrays of a pass, allocated once, and the block tables of the running sequences, one slot each."""

    def __init__(self, backend: Backend, *, context: int, max_running: int) -> None:
        self.backend = backend
        width = -(-context // backend.kv_block_size)
        self._tokens = np.zeros(backend.max_rows, np.int32)
        self._positions = np.zeros(backend.max_rows, np.int32)
        self._sequences = np.zeros(backend.max_rows, np.int32)
        self._logit_rows = np.zeros(backend.max_logit_rows, np.int32)
        self._tables = np.zeros((max_running, width), np.int32)
        self._counting = np.arange(max(context, backend.max_rows), dtype=np.int32)
        self._free_slots = list(range(max_running - 1, -1, -1))

    def open_slot(self, seq: Sequence) -> None:
        """Gives a sequence that starts running its row of the table."""
        seq.slot = self._free_slots.pop()
        self.extend_table(seq, 0)

    def close_slot(self, seq: Sequence) -> None:
        if seq.slot >= 0:
            self._free_slots.append(seq.slot)
            seq.slot = -1

    def extend_table(self, seq: Sequence, start: int) -> None:
        """The sequence's blocks from index ``start`` on are new."""
        blocks = seq.table.blocks
        self._tables[seq.slot, start : len(blocks)] = blocks[start:]

    def run(self, work: SequenceOf[tuple[Work, Sequence]]) -> list[NDArray[np.float32] | None]:
        """Logits per piece of work, ``(1 + draft, vocab)`` or None where none are wanted: views that the next pass overwrites.

        Draft tokens are read from ``seq.ids`` past ``seq.length``.
        """
        row = wanted = 0
        slots = 1
        for w, seq in work:
            count = w.rows + w.draft
            end = row + count
            self._tokens[row:end] = seq.ids[w.start : w.start + count]
            self._positions[row:end] = self._counting[w.start : w.start + count]
            self._sequences[row:end] = seq.slot
            slots = max(slots, seq.slot + 1)
            if w.sample:
                first = row + w.rows - 1
                self._logit_rows[wanted : wanted + 1 + w.draft] = self._counting[first : first + 1 + w.draft]
                wanted += 1 + w.draft
            row = end
        return _share(self._pass(row, wanted, slots), work)

    def hidden(self, work: SequenceOf[tuple[Work, Sequence]]) -> list[NDArray[np.float32] | None]:
        """The hidden rows ``(1 + draft, hidden)`` behind the logits of the pass that ``run`` just did for this work."""
        return _share(self.backend.hidden(), work)

    def score(self, ids: NDArray[np.int32], blocks: SequenceOf[int], *, first: int = 0) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """First position and logits ``(rows, vocab)`` of pass after pass, each valid until the next: nothing is taken from a cache.

        Positions before ``first`` are computed, but have no logits.
        """
        backend = self.backend
        table = np.asarray(blocks, np.int32)[None, :]
        at = 0
        while at < len(ids):
            wanted = at >= first
            most = min(backend.max_rows, backend.max_logit_rows) if wanted else min(backend.max_rows, first - at)
            n = min(most, len(ids) - at)
            self._sequences[:n] = 0
            batch = RowBatch(
                tokens=ids[at : at + n],
                positions=self._counting[at : at + n],
                sequences=self._sequences[:n],
                block_tables=table,
                logit_rows=self._counting[: n if wanted else 0],
            )
            logits = backend.run(batch)
            if wanted:
                yield at, logits
            at += n

    def measure(self, rows: SequenceOf[int], *, warm_up: int = 4, rounds: int = 4) -> dict[int, float]:
        """Seconds of a pass by rows, all with logits. Scribbles on block 0: only while nothing is cached.

        After passes that only warm up, every round takes each number of rows once: what disturbs the machine for a moment disturbs one
        round, not one number of rows. The best of the rounds counts.
        """
        self._tables[0, :] = 0
        self._tokens[:] = 0
        self._sequences[:] = 0
        best = dict.fromkeys(rows, inf)
        for n in [rows[0]] * warm_up + [*rows] * rounds:
            self._positions[:n] = self._counting[:n]
            self._logit_rows[:n] = self._counting[:n]
            start = perf_counter()
            self._pass(n, n, 1)
            if warm_up > 0:
                warm_up -= 1
            else:
                best[n] = min(best[n], perf_counter() - start)
        return best

    def _pass(self, rows: int, wanted: int, slots: int) -> NDArray[np.float32]:
        batch = RowBatch(
            tokens=self._tokens[:rows],
            positions=self._positions[:rows],
            sequences=self._sequences[:rows],
            block_tables=self._tables[:slots],
            logit_rows=self._logit_rows[:wanted],
        )
        return self.backend.run(batch)


def _share(rows: NDArray[np.float32], work: SequenceOf[tuple[Work, Sequence]]) -> list[NDArray[np.float32] | None]:
    """The rows of each piece of work whose logits were wanted."""
    out: list[NDArray[np.float32] | None] = []
    at = 0
    for w, _ in work:
        if w.sample:
            out.append(rows[at : at + 1 + w.draft])
            at += 1 + w.draft
        else:
            out.append(None)
    return out
