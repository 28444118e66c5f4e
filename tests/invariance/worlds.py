"""A back end, the sequences alive on it and the truth that every row of logits is compared with, byte for byte.

The truth is a token-by-token pass on the portable path with one thread. A world carries out any list of actions: what does not fit (a row
past the end of a text, a draft with no room) is cut, so that every list is a valid schedule and shrinks well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.backend import Backend, RowBatch

Wanted: TypeAlias = Literal["all", "last", "alternate", "none"]


# --- what a schedule is made of -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """What one sequence contributes to a pass: ``rows`` tokens of its text, then ``draft`` guesses of which the first ``right`` hold."""

    slot: int
    rows: int
    draft: int = 0
    right: int = 0
    wanted: Wanted = "all"


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of the back end."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Preempt:
    """The slot's blocks are freed; its text starts again from position 0, in other blocks, or from a shared prefix."""

    slot: int
    share: bool


@dataclass(frozen=True, slots=True)
class Replace:
    """Another text takes the slot. Its blocks stay as a cached prefix when ``keep``."""

    slot: int
    text: int
    share: bool
    keep: bool


Action: TypeAlias = Pass | Preempt | Replace


@dataclass(frozen=True, slots=True)
class Plan:
    """One schedule."""

    isa: str
    threads: int
    texts: tuple[int, ...]  # text of each slot at the start
    shares: tuple[bool, ...]  # whether a slot starts from a shared prefix, where one is cached
    block_order: int  # seed of the order in which free blocks are handed out
    actions: tuple[Action, ...]


# --- the truth ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """A sequence of tokens and the logits of every position."""

    tokens: NDArray[np.int32]  # (n,)
    logits: NDArray[np.float32]  # (n, vocab)


def token_by_token(backend: Backend, tokens: NDArray[np.int32]) -> Text:
    """Runs ``tokens`` one row a pass on ``backend`` alone, in ascending blocks."""
    blocks = -(-len(tokens) // backend.kv_block_size)
    table = np.arange(blocks, dtype=np.int32)[None, :]
    rows = np.empty((len(tokens), backend.vocab_size), dtype=np.float32)
    zero = np.zeros(1, dtype=np.int32)
    for position, token in enumerate(tokens):
        batch = RowBatch(
            tokens=np.array([token], dtype=np.int32),
            positions=np.array([position], dtype=np.int32),
            sequences=zero,
            block_tables=table,
            logit_rows=zero,
        )
        rows[position] = backend.run(batch)[0]
    return Text(tokens, rows)


class BitsDifferError(AssertionError):
    """A row of logits is not the row of the token-by-token pass."""


def check_row(found: NDArray[np.float32], truth: NDArray[np.float32], where: str) -> None:
    """Compares dtype, shape and bytes: by value -0.0 would equal 0.0 and NaN differ from itself."""
    if found.dtype != truth.dtype or found.shape != truth.shape:
        raise BitsDifferError(f"{where}: {found.dtype}{found.shape} instead of {truth.dtype}{truth.shape}")
    if found.tobytes() != truth.tobytes():
        bits = found.view(np.uint32) != truth.view(np.uint32)
        largest = np.max(np.abs(found.astype(np.float64) - truth.astype(np.float64)))
        raise BitsDifferError(f"{where}: {np.count_nonzero(bits)} of {bits.size} logits differ, by at most {largest:g}")


@dataclass(slots=True)
class Tally:
    """What was compared, for the test summary."""

    schedules: set[int] = field(default_factory=set)  # hashes of distinct schedules that compared at least one row
    passes: int = 0
    rows: int = 0
    bytes: int = 0

    def add(self, row: NDArray[np.float32]) -> None:
        self.rows += 1
        self.bytes += row.nbytes


# --- the world ----------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Slot:
    text: int
    computed: int = 0  # positions whose keys and values are in the cache
    blocks: list[int] = field(default_factory=list)


class World:
    """Carries out a plan on ``backend`` and compares every row that comes back."""

    def __init__(self, backend: Backend, texts: Sequence[Text], plan: Plan, tally: Tally, donors: Sequence[_Slot] = ()) -> None:
        self._backend, self._texts, self._tally = backend, texts, tally
        self._donors = list(donors)  # cached prefixes; those of earlier schedules are never freed
        kept = {block for donor in donors for block in donor.blocks}
        self._free = [block for block in range(backend.kv_blocks) if block not in kept]
        np.random.default_rng(plan.block_order).shuffle(self._free)
        self._users = dict.fromkeys(kept, 1)  # block -> how many tables name it
        self.slots: list[_Slot] = []
        for text, share in zip(plan.texts, plan.shares, strict=True):
            self.slots.append(self._start(text % len(texts), share))

    def run(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Pass):
                self._pass(action)
            elif isinstance(action, Preempt):
                slot = self.slots[action.slot % len(self.slots)]
                self._release(slot)
                self.slots[self.slots.index(slot)] = self._start(slot.text, action.share)
            else:
                self._replace(action)

    def _replace(self, action: Replace) -> None:
        index = action.slot % len(self.slots)
        old = self.slots[index]
        if action.keep and old.computed:
            self._donors.append(old)
        self.slots[index] = self._start(action.text % len(self._texts), action.share)
        if not (action.keep and old.computed):
            self._release(old)

    def _start(self, text: int, share: bool) -> _Slot:
        """A slot for ``text``, on the longest whole blocks that another sequence has computed if ``share``."""
        slot = _Slot(text)
        if share:
            donors = [*self._donors, *self.slots]
            best = max(donors, key=lambda donor: self._common_blocks(donor, text), default=None)
            if best is not None:
                count = self._common_blocks(best, text)
                slot.blocks = best.blocks[:count]
                slot.computed = count * self._backend.kv_block_size
                for block in slot.blocks:
                    self._users[block] += 1
        return slot

    def _common_blocks(self, donor: _Slot, text: int) -> int:
        """Whole blocks of ``text`` that the donor holds; at least the last token is left to compute."""
        theirs, ours = self._texts[donor.text].tokens, self._texts[text].tokens
        length = min(donor.computed, len(ours) - 1)
        differing = np.flatnonzero(theirs[:length] != ours[:length])
        common = int(differing[0]) if differing.size else length
        return common // self._backend.kv_block_size

    def _release(self, slot: _Slot) -> None:
        for block in slot.blocks:
            self._users[block] -= 1
            if not self._users[block]:
                self._free.append(block)
        slot.blocks = []
        slot.computed = 0

    def _reserve(self, slot: _Slot, positions: int) -> int:
        """Gives the slot blocks for up to ``positions`` positions; how many there is room for."""
        size = self._backend.kv_block_size
        while len(slot.blocks) * size < positions and self._free:
            # From the front, while freed blocks go to the back: a resumed sequence gets others than it had.
            block = self._free.pop(0)
            self._users[block] = 1
            slot.blocks.append(block)
        return min(positions, len(slot.blocks) * size)

    def _pass(self, action: Pass) -> None:
        used: set[int] = set()
        pieces: list[_Piece] = []
        room = self._backend.max_rows
        for part in action.parts:
            index = part.slot % len(self.slots)
            if index in used or room < 1:
                continue
            used.add(index)
            piece = self._piece(self.slots[index], part, room)
            if piece is not None:
                pieces.append(piece)
                room -= len(piece.tokens)
        if pieces:
            self._compare(pieces, self._backend.run(_batch(pieces)))
            self._tally.passes += 1

    def _piece(self, slot: _Slot, part: Part, room: int) -> _Piece | None:
        text = self._texts[slot.text]
        start = slot.computed
        rows = min(part.rows, len(text.tokens) - start, room)
        if rows < 1:
            return None
        draft = min(part.draft, len(text.tokens) - start - rows, room - rows)
        available = self._reserve(slot, start + rows + draft) - start
        rows, draft = min(rows, available), max(0, min(draft, available - rows))
        if rows < 1:
            return None
        right = min(part.right, draft)
        tokens = text.tokens[start : start + rows + draft].copy()
        # Every guess past the right ones is wrong, so that it must be overwritten later.
        tokens[rows + right :] = (tokens[rows + right :] + 1 + np.arange(draft - right)) % self._backend.vocab_size
        if draft > right and tokens[rows + right] == text.tokens[start + rows + right]:
            tokens[rows + right] = (tokens[rows + right] + 1) % self._backend.vocab_size
        slot.computed = start + rows + right
        return _Piece(slot, text, start, tokens, rows + right, _wanted_rows(part.wanted, len(tokens)))

    def _compare(self, pieces: Sequence[_Piece], logits: NDArray[np.float32]) -> None:
        expected = sum(len(piece.wanted) for piece in pieces)
        if len(logits) != expected:
            raise BitsDifferError(f"{len(logits)} rows of logits came back, {expected} were asked for")
        row = 0
        for piece in pieces:
            for offset in piece.wanted:
                if offset < piece.true_rows:
                    position = piece.start + offset
                    check_row(logits[row], piece.text.logits[position], f"text {piece.slot.text}, position {position}")
                    self._tally.add(logits[row])
                row += 1


@dataclass(frozen=True, slots=True)
class _Piece:
    """The rows of one sequence in a pass."""

    slot: _Slot
    text: Text
    start: int
    tokens: NDArray[np.int32]
    true_rows: int  # rows whose whole prefix is the text's
    wanted: NDArray[np.int32]  # offsets whose logits are wanted


def _wanted_rows(wanted: Wanted, rows: int) -> NDArray[np.int32]:
    offsets = np.arange(rows, dtype=np.int32)
    return {"all": offsets, "last": offsets[-1:], "alternate": offsets[::2], "none": offsets[:0]}[wanted]


def _batch(pieces: Sequence[_Piece]) -> RowBatch:
    width = max(len(piece.slot.blocks) for piece in pieces)
    tables = np.zeros((len(pieces), width), dtype=np.int32)
    positions, sequences, logit_rows, row = [], [], [], 0
    for index, piece in enumerate(pieces):
        rows = len(piece.tokens)
        tables[index, : len(piece.slot.blocks)] = piece.slot.blocks
        positions.append(np.arange(piece.start, piece.start + rows, dtype=np.int32))
        sequences.append(np.full(rows, index, dtype=np.int32))
        logit_rows.append(piece.wanted + np.int32(row))
        row += rows
    return RowBatch(
        tokens=np.concatenate([piece.tokens for piece in pieces]),
        positions=np.concatenate(positions),
        sequences=np.concatenate(sequences),
        block_tables=tables,
        logit_rows=np.concatenate(logit_rows),
    )


# --- back ends of one model ---------------------------------------------------------------------------------------------------------


class Stage:
    """The texts of one model with their truth, and its back ends, each with a cached prefix of the longest text."""

    def __init__(self, name: str, make: Callable[[str, int], Backend], tokens: Sequence[NDArray[np.int32]], tally: Tally) -> None:
        self.name, self._make, self.tally = name, make, tally
        portable = make("portable", 1)
        self.texts = [token_by_token(portable, sequence) for sequence in tokens]
        portable.close()
        self._backends: dict[tuple[str, int], tuple[Backend, list[_Slot]]] = {}

    def run(self, plan: Plan) -> None:
        """Carries out one schedule; raises :class:`BitsDifferError` on the first differing row."""
        backend, donors = self._backend(plan.isa, plan.threads)
        before = self.tally.rows
        World(backend, self.texts, plan, self.tally, donors).run(plan.actions)
        if self.tally.rows > before:  # a schedule that compared nothing is not counted
            self.tally.schedules.add(hash((self.name, plan)))

    def _backend(self, isa: str, threads: int) -> tuple[Backend, list[_Slot]]:
        if (isa, threads) not in self._backends:
            backend = self._make(isa, threads)
            longest = max(range(len(self.texts)), key=lambda index: len(self.texts[index].tokens))
            start = Plan(isa=isa, threads=threads, texts=(longest,), shares=(False,), block_order=7, actions=())
            world = World(backend, self.texts, start, self.tally)
            rows = len(self.texts[longest].tokens)
            world.run([Pass((Part(0, backend.max_rows),)) for _ in range(-(-rows // backend.max_rows))])
            self._backends[isa, threads] = (backend, world.slots)
        return self._backends[isa, threads]

    def close(self) -> None:
        for backend, _ in self._backends.values():
            backend.close()
        self._backends.clear()
