"""Which rows the next pass runs. Pure: queues in, a step out; the engine carries it out.

Requests run in order of arrival. ``computed`` of ``length`` known tokens are in the cache; one missing token means decoding (its logits
give the next token, draft tokens may ride along), more mean prefill, and a preempted sequence simply counts as computed up to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Tier: TypeAlias = Literal["standard", "priority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a pass may hold.

    mixed_passes: prompt chunks and decode rows share passes (chunked prefill); otherwise prompts go first, alone, in the largest passes.
    mixed_prefill_rows: most prompt rows in a pass that also decodes, so that running requests are not held up for long.
    """

    max_rows: int
    max_logit_rows: int
    block_size: int
    max_running: int
    mixed_passes: bool
    mixed_prefill_rows: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What the scheduler sees of a sequence.

    computed, blocks: of a waiting one, what the prefix cache would give it; ``idle`` of those blocks come out of the free ones.
    draft: draft tokens wanted. owned: blocks that preempting it would give back.
    """

    key: int
    length: int
    computed: int
    blocks: int
    idle: int = 0
    draft: int = 0
    owned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Rows ``start .. start + rows`` of a sequence, then ``draft`` rows. Logits: of the last row and the draft's, if ``sample``."""

    key: int
    start: int
    rows: int
    draft: int
    sample: bool
    new_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """In this order: take the blocks of ``preempt``, admit ``admit``, run ``work``."""

    work: tuple[Work, ...] = ()
    admit: tuple[int, ...] = ()
    preempt: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        return sum(w.rows + w.draft for w in self.work)

    def fills(self, limits: Limits) -> bool:
        """No further row, or no further row with logits, would have fitted."""
        return self.rows >= limits.max_rows or sum(1 + w.draft for w in self.work if w.sample) >= limits.max_logit_rows


def next_step(waiting: Sequence[Candidate], running: Sequence[Candidate], *, free_blocks: int, limits: Limits) -> Step:
    """The next pass over ``running`` and ``waiting``, both in order of arrival. An empty step means that nothing can run."""
    plan = _Plan(running, free_blocks, limits)
    decoding = [c for c in running if c.length - c.computed == 1]
    prefilling = [c for c in running if c.length - c.computed > 1]
    if limits.mixed_passes:
        plan.decode(decoding)
        plan.prefill(prefilling)
        plan.admit(waiting)
    else:
        plan.prefill(prefilling)
        plan.admit(waiting)
        if not plan.work:
            plan.decode(decoding)
    return Step(work=tuple(plan.work), admit=tuple(plan.admitted), preempt=tuple(plan.preempted))


class _Plan:
    """A step in the making: what is left of rows, logit rows and blocks."""

    def __init__(self, running: Sequence[Candidate], free_blocks: int, limits: Limits) -> None:
        self.limits = limits
        self.alive = list(running)
        self.rows_left = limits.max_rows
        self.logit_rows_left = limits.max_logit_rows
        self.free = free_blocks
        self.work: list[Work] = []
        self.admitted: list[int] = []
        self.preempted: list[int] = []
        self.decodes = 0
        self.prompt_rows = 0

    def decode(self, candidates: Sequence[Candidate]) -> None:
        unserved = len(candidates)
        for c in candidates:
            unserved -= 1
            if c.key in self.preempted:
                continue
            if not self.rows_left or not self.logit_rows_left:
                return
            need = self._missing(c, c.length)
            if need > self.free and not self._make_room(c, need):
                continue
            # Rows of those still to come are set aside: a draft never costs another request its token.
            spare = min(self.rows_left, self.logit_rows_left) - 1 - unserved
            draft = max(0, min(c.draft, spare))
            draft_need = self._missing(c, c.length + draft)
            if draft_need > self.free - unserved:
                draft = max(0, min(draft, (c.blocks + need) * self.limits.block_size - c.length))
                draft_need = need
            self._add(c, rows=1, draft=draft, sample=True, new_blocks=draft_need)
            self.decodes += 1

    def prefill(self, candidates: Sequence[Candidate]) -> None:
        for c in candidates:
            if c.key not in self.preempted:
                self._chunk(c, self._missing(c, c.length))

    def admit(self, candidates: Sequence[Candidate]) -> None:
        if self.preempted:
            return
        for c in candidates:
            if len(self.alive) >= self.limits.max_running or not self.rows_left or not self.logit_rows_left:
                return
            need = self._missing(c, c.length)
            # Each running sequence keeps a block to grow into, or admission would bring preemption at once.
            if need + c.idle + len(self.alive) > self.free and (self.alive or need + c.idle > self.free):
                return
            self.free -= c.idle
            if not self._chunk(c, need):
                self.free += c.idle
                return
            self.admitted.append(c.key)
            self.alive.append(c)

    def _chunk(self, c: Candidate, new_blocks: int) -> bool:
        """As much of the prompt as fits; all its blocks are taken with the first chunk."""
        budget = self.rows_left
        if self.decodes:
            budget = min(budget, self.limits.mixed_prefill_rows - self.prompt_rows)
        rows = min(c.length - c.computed, budget)
        sample = rows == c.length - c.computed
        if rows <= 0 or new_blocks > self.free or (sample and not self.logit_rows_left):
            return False
        self._add(c, rows=rows, draft=0, sample=sample, new_blocks=new_blocks)
        self.prompt_rows += rows
        return True

    def _make_room(self, c: Candidate, need: int) -> bool:
        """Preempts the latest arrivals until ``need`` blocks are free; False if that took ``c`` itself."""
        while need > self.free:
            victim = self.alive.pop()
            self.preempted.append(victim.key)
            self.free += victim.owned
            if victim is c:
                return False
        return True

    def _add(self, c: Candidate, *, rows: int, draft: int, sample: bool, new_blocks: int) -> None:
        self.work.append(Work(key=c.key, start=c.computed, rows=rows, draft=draft, sample=sample, new_blocks=new_blocks))
        self.rows_left -= rows + draft
        self.logit_rows_left -= 1 + draft if sample else 0
        self.free -= new_blocks

    def _missing(self, c: Candidate, positions: int) -> int:
        """Blocks that it lacks for so many positions. It may hold more: a block taken for a draft that was rejected stays its own."""
        return max(0, -(-positions // self.limits.block_size) - c.blocks)
