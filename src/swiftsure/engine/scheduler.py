"""Which rows the next pass runs. Pure: queues in, a step out; the engine carries it out.

``computed`` of ``length`` known tokens are in the cache; one missing token means decoding (its logits give the next token, draft tokens may
ride along), more mean prefill, and a preempted sequence simply counts as computed up to nothing.

Priority requests come first: a pass holds for them what it would hold if nobody else were there, and standard requests have rows in it
only as far as it takes no longer than ``priority_slack`` allows. Where key-value blocks run out, standard requests give theirs up first.
Within a tier, requests run in order of arrival. One exception takes nothing but a little time from those before: a part of a pass's
prompt rows is kept for prompts that end within it, so that a short one does not wait for the whole of a long one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Tier: TypeAlias = Literal["standard", "priority"]
PassSeconds: TypeAlias = Callable[[int], float]
"""Seconds that a pass of so many rows is expected to take."""

_SHORT_SHARE = 4  # one part in so many of a pass's prompt rows is kept for short prompts
_LEAST_CHUNK = 8  # prompt rows that a pass may have however long they take, or a large model would never read a prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a pass may hold.

    max_running, priority_running: requests of each tier that may run. priority_rows: most rows, drafts included, that priority requests
    decode in a pass; at least one each.
    mixed_passes: prompt chunks and decode rows share passes (chunked prefill); otherwise prompts go first, alone, in the largest passes.
    priority_slack: by what share the rows of standard requests may lengthen a pass with priority rows; None: requests share no pass.
    prefill_chunk_s: by how much prompt rows may lengthen a pass that also decodes.
    """

    max_rows: int
    max_logit_rows: int
    block_size: int
    max_running: int
    mixed_passes: bool
    priority_running: int = 4
    priority_rows: int = 16
    priority_slack: float | None = 0.1
    prefill_chunk_s: float = 0.02


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
    tier: Tier = "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Rows ``start .. start + rows`` of a sequence, then ``draft`` rows. Logits: of the last row and the draft's, if ``sample``."""

    key: int
    start: int
    rows: int
    draft: int
    sample: bool
    new_blocks: int
    tier: Tier = "standard"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """In this order: take the blocks of ``preempt``, admit ``admit``, run ``work``. One that only preempts makes room: decide again.

    declined: standard requests that have no row because the pass would have taken longer than its priority rows allow.
    """

    work: tuple[Work, ...] = ()
    admit: tuple[int, ...] = ()
    preempt: tuple[int, ...] = ()
    declined: int = 0

    @property
    def rows(self) -> int:
        return sum([w.rows + w.draft for w in self.work])

    def fills(self, limits: Limits) -> bool:
        """No further row, or no further row with logits, would have fitted."""
        return self.rows >= limits.max_rows or sum([1 + w.draft for w in self.work if w.sample]) >= limits.max_logit_rows


def rows_beside_prompts(limits: Limits, pass_s: PassSeconds) -> int:
    """Most rows, drafts included, that decode in a pass which also reads prompts; requests beyond have one each and no drafts.

    A draft that shares a pass with prompts is one more row that everybody's token waits for, and it brings no more there than in the pass
    after. Up to half the time of a chunk it hardly matters, and a request that is alone beside a long prompt gains much by it.
    """
    most = min(limits.max_rows, limits.max_logit_rows)
    return bisect_right(range(1, most + 1), limits.prefill_chunk_s / 2.0, key=pass_s)


def next_step(waiting: Sequence[Candidate], running: Sequence[Candidate], *, free_blocks: int, limits: Limits, pass_s: PassSeconds) -> Step:
    """The next pass over ``running`` and ``waiting``, both with priority requests first and then in order of arrival.

    An empty step means that nothing can run.
    """
    if not (running and running[0].tier == "priority") and not (waiting and waiting[0].tier == "priority"):
        plan = _Plan(running, free_blocks, limits, pass_s)
        plan.serve("standard", running, waiting)
        return plan.step()
    priority_running = [c for c in running if c.tier == "priority"]
    priority_waiting = [c for c in waiting if c.tier == "priority"]
    standard_running = running[len(priority_running) :]
    victims = _room_for_priority(priority_waiting, priority_running, standard_running, free_blocks, limits)
    if victims:
        return Step(preempt=victims)
    plan = _Plan(running, free_blocks, limits, pass_s)
    plan.serve("priority", priority_running, priority_waiting)
    plan.serve("standard", standard_running, waiting[len(priority_waiting) :])
    return plan.step()


def _room_for_priority(
    waiting: Sequence[Candidate], running: Sequence[Candidate], standard: Sequence[Candidate], free: int, limits: Limits
) -> tuple[int, ...]:
    """The standard requests, latest first, whose blocks the priority ones need to run as if alone."""
    most = free + sum(c.owned for c in standard)
    need = wanted = sum(_missing(c, c.length, limits) for c in running)
    for growing, c in enumerate(waiting[: max(0, limits.priority_running - len(running))], start=len(running)):
        need += _missing(c, c.length, limits) + c.idle
        if need + growing > most:
            break
        wanted = need + growing
    victims: list[int] = []
    for c in reversed(standard):
        if wanted <= free:
            break
        victims.append(c.key)
        free += c.owned
    return tuple(victims)


def _missing(c: Candidate, positions: int, limits: Limits) -> int:
    """Blocks that it lacks for so many positions. It may hold more: a block taken for a draft that was rejected stays its own."""
    return max(0, -(-positions // limits.block_size) - c.blocks)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt whose blocks are set aside for this pass."""

    candidate: Candidate
    new_blocks: int
    waits: bool  # not admitted yet

    @property
    def missing(self) -> int:
        return self.candidate.length - self.candidate.computed


class _Plan:
    """A step in the making: what is left of rows, logit rows, blocks and time."""

    def __init__(self, running: Sequence[Candidate], free_blocks: int, limits: Limits, pass_s: PassSeconds) -> None:
        self.limits = limits
        self.pass_s = pass_s
        self.rows_left = limits.max_rows
        self.logit_rows_left = limits.max_logit_rows
        self.free = free_blocks
        self.work: list[Work] = []
        self.admitted: list[int] = []
        self.preempted: list[int] = []
        self.decodes = 0
        self.prompt_rows = 0
        self.declined = 0
        self._victims = list(running)  # the last goes first
        self._lane_rows = self._seats = 0  # of the tier that is being served: rows that decode, requests that may be admitted
        self._growing = 0  # running requests that admission must leave a block each
        self._latest_s: float | None = None  # the pass must not take longer
        self._blocked = False  # a request of the tier before lacks blocks: what becomes free is its own

    def step(self) -> Step:
        return Step(work=tuple(self.work), admit=tuple(self.admitted), preempt=tuple(self.preempted), declined=self.declined)

    @property
    def rows(self) -> int:
        return self.limits.max_rows - self.rows_left

    def serve(self, tier: Tier, running: Sequence[Candidate], waiting: Sequence[Candidate]) -> None:
        """Gives the requests of a tier what is left of the pass."""
        limits = self.limits
        if self.work:
            if limits.priority_slack is None:
                self.declined += len(running) + len(waiting)
                return
            self._latest_s = self.pass_s(self.rows) * (1.0 + limits.priority_slack)
        seats = limits.priority_running if tier == "priority" else limits.max_running
        self._lane_rows = limits.priority_rows if tier == "priority" else limits.max_rows
        self._seats = seats - len(running)
        self._growing += len(running)
        decoding = [c for c in running if c.length - c.computed == 1]
        prefilling = [c for c in running if c.length - c.computed > 1]
        if limits.mixed_passes:
            self._decode(decoding)
        if (prefilling or waiting) and (limits.mixed_passes or not self.decodes):
            self._read(prefilling, waiting)
        if not limits.mixed_passes and not self.prompt_rows:
            self._decode(decoding)

    # --- decoding ---------------------------------------------------------------------------------------------------------

    def _decode(self, candidates: Sequence[Candidate]) -> None:
        unserved = len(candidates)
        for c in candidates:
            if not self.rows_left or not self.logit_rows_left or not self._lane_rows:
                return
            if self._latest_s is not None and not self._in_time(1):
                self.declined += unserved
                return
            unserved -= 1
            if c.key in self.preempted:
                continue
            need = _missing(c, c.length, self.limits)
            if need > self.free and not self._make_room(c, need):
                continue
            draft, blocks = self._draft(c, need, unserved) if c.draft else (0, need)
            self._add(c, rows=1, draft=draft, sample=True, new_blocks=blocks)
            self._lane_rows -= 1 + draft
            self.decodes += 1

    def _draft(self, c: Candidate, need: int, unserved: int) -> tuple[int, int]:
        """Draft rows, and blocks for them and the row before. Rows of the ``unserved`` ones still to come are set aside: a draft never
        costs another request its token."""
        draft = max(0, min(c.draft, min(self.rows_left, self.logit_rows_left, self._lane_rows) - 1 - unserved))
        while draft and not self._in_time(1 + unserved + draft):
            draft -= 1
        draft_need = _missing(c, c.length + draft, self.limits)
        if draft_need > self.free - unserved:
            draft = max(0, min(draft, (c.blocks + need) * self.limits.block_size - c.length))
            draft_need = need
        return draft, draft_need

    def _in_time(self, rows: int) -> bool:
        """Whether the pass may have so many rows more."""
        return self._latest_s is None or self.pass_s(self.rows + rows) <= self._latest_s

    def _make_room(self, c: Candidate, need: int) -> bool:
        """Preempts from the end until ``need`` blocks are free; False if that took ``c`` itself."""
        while need > self.free:
            victim = self._victims.pop()
            self.preempted.append(victim.key)
            self.free += victim.owned
            if victim is c:
                return False
        return True

    # --- reading prompts --------------------------------------------------------------------------------------------------

    def _read(self, prefilling: Sequence[Candidate], waiting: Sequence[Candidate]) -> None:
        left = self._prompt_budget()
        if not left:
            self.declined += len(prefilling) + len(waiting) if self._latest_s is not None and self.rows_left else 0
            return
        prompts = self._ready(prefilling, waiting)
        short = _short_prompts(prompts, left // _SHORT_SHARE)
        kept = sum(prompts[i].missing for i in short)
        for i, prompt in enumerate(prompts):
            kept -= prompt.missing if i in short else 0
            left -= self._chunk(prompt, left - kept)

    def _prompt_budget(self) -> int:
        """Prompt rows that the pass may have."""
        most = self.rows_left
        if self.decodes:
            in_time = self._most_rows(most, self.pass_s(self.rows) + self.limits.prefill_chunk_s)
            most = min(most, max(_LEAST_CHUNK, in_time))
        return most if self._latest_s is None else self._most_rows(most, self._latest_s)

    def _most_rows(self, most: int, latest_s: float) -> int:
        rows, pass_s = self.rows, self.pass_s
        return bisect_right(range(rows + 1, rows + most + 1), latest_s, key=pass_s)

    def _ready(self, prefilling: Sequence[Candidate], waiting: Sequence[Candidate]) -> list[_Prompt]:
        """The prompts that have, or can have, their blocks: these are set aside. No request is admitted past one that cannot be."""
        ready = []
        for c in prefilling:
            need = _missing(c, c.length, self.limits)
            if c.key not in self.preempted and need <= self.free:
                self.free -= need
                ready.append(_Prompt(c, need, False))
        if self.preempted or self._blocked:
            return ready
        for c in waiting[: max(0, self._seats)]:
            need = _missing(c, c.length, self.limits)
            # Each running sequence keeps a block to grow into, or admission would bring preemption at once.
            if need + c.idle + self._growing > self.free:
                self._blocked = True
                break
            self.free -= need + c.idle
            self._growing += 1
            ready.append(_Prompt(c, need, True))
        return ready

    def _chunk(self, prompt: _Prompt, most: int) -> int:
        """Rows of the prompt that the pass reads; all its blocks are taken with the first chunk. Without any, they are given back."""
        c = prompt.candidate
        rows = min(prompt.missing, most)
        sample = rows == prompt.missing
        self.free += prompt.new_blocks
        if rows <= 0 or (sample and not self.logit_rows_left):
            if prompt.waits:
                self.free += c.idle
                self._growing -= 1
            return 0
        self._add(c, rows=rows, draft=0, sample=sample, new_blocks=prompt.new_blocks)
        self.prompt_rows += rows
        if prompt.waits:
            self.admitted.append(c.key)
        return rows

    def _add(self, c: Candidate, *, rows: int, draft: int, sample: bool, new_blocks: int) -> None:
        self.work.append(Work(key=c.key, start=c.computed, rows=rows, draft=draft, sample=sample, new_blocks=new_blocks, tier=c.tier))
        self.rows_left -= rows + draft
        self.logit_rows_left -= 1 + draft if sample else 0
        self.free -= new_blocks


def _short_prompts(prompts: Sequence[_Prompt], rows: int) -> frozenset[int]:
    """Which prompts behind the first would end within ``rows`` rows, together, in order of arrival."""
    short = set()
    for i, prompt in enumerate(prompts[1:], start=1):
        if prompt.missing <= rows:
            rows -= prompt.missing
            short.add(i)
    return frozenset(short)
