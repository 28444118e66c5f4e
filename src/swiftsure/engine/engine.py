"""The engine: requests in, passes, tokens and text out. Synchronous; one call of ``step`` is one pass.

Life of a request: ``add`` puts it in ``waiting``; a step admits it (blocks, cached prefix), prefills it, decodes it token by token or draft
by draft, and finishes it. A preempted request goes back to its place in ``waiting`` and is recomputed. Whatever happens to one request
(a callback that raises, a cancellation) happens to that request alone.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as SequenceOf
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.backend import Backend
from swiftsure.engine.candidates import admissible, is_standard, precedence, priority_count, running_candidates, waiting_candidates
from swiftsure.engine.counting import Counting
from swiftsure.engine.delivery import Delivery, Describe
from swiftsure.engine.drafting.planner import DraftPlanner
from swiftsure.engine.drafting.source import DraftSource
from swiftsure.engine.kv_blocks import BlockManager, BlockTable, PrefixMatch
from swiftsure.engine.pass_cost import PassCost
from swiftsure.engine.request import FinishReason, Request, Sequence, State, TokenSampler
from swiftsure.engine.runner import Runner
from swiftsure.engine.scheduler import Candidate, Step, Work, next_step, rows_beside_prompts
from swiftsure.engine.scheduling import Scheduling
from swiftsure.engine.snapshot import EngineSnapshot
from swiftsure.engine.speculation import StepCost
from swiftsure.engine.text import TextAssembler, TokenBytes
from swiftsure.engine.token_chain import StartChain, TokenChain
from swiftsure.errors import CapacityError, UsageError

_CALIBRATION_ROWS = (1, 2, 4, 8, 16)


class Engine:
    """One loaded model's queues. Not thread-safe: callers hold a lock around every method."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: TokenBytes,
        *,
        context: int,
        end_ids: Collection[int],
        levers: Collection[str],
        make_sampler: Callable[[Request], TokenSampler],
        sources: SequenceOf[DraftSource],
        describe: Describe,
        start_chain: StartChain | None = None,
        scheduling: Scheduling | None = None,
    ) -> None:
        """``start_chain``: None where nobody will ask for digests."""
        self.backend = backend
        self.context = context
        self.levers = frozenset(levers)
        self.scheduling = scheduling or Scheduling()
        self._counting = Counting(self.levers, backend.kv_block_size)
        self.evidence = self._counting.evidence
        self.waiting: list[Sequence] = []  # both in order of precedence: priority requests first, then by arrival
        self.running: list[Sequence] = []
        self.drafting = DraftPlanner(sources if "speculation" in self.levers else (), self.evidence.speculation)
        self.pass_s = 0.0  # spent in the back end, in all passes so far
        self.drafting_s = 0.0  # and on guessing what comes next
        self._tokenizer = tokenizer
        self._make_sampler = make_sampler
        self._start_chain = start_chain
        self._delivery = Delivery(self.drafting, frozenset(end_ids), describe)
        self._limits = self.scheduling.limits(backend, self.levers)
        self._pass_s = PassCost(self.drafting.policy.cost)
        self._reset_cache()
        self._next_key = 0
        self._unfinished: dict[int, Sequence] = {}  # the truth about who is there, even when an interrupt tears a queue
        self._in_pass: tuple[Sequence, ...] = ()
        self._hurried = False  # a priority request is there

    # --- requests ---------------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self.waiting or self.running)

    @property
    def in_pass(self) -> bool:
        """A pass is under way: who asks, with the lock held, is a callback of it."""
        return bool(self._in_pass)

    def add(self, request: Request) -> Sequence:
        """Queues a checked request."""
        prompt = request.prompt_ids
        ids = np.zeros(min(len(prompt) + request.sampling.max_tokens, self.context), np.int32)
        ids[: len(prompt)] = prompt
        seq = Sequence(
            key=self._next_key,
            request=request,
            ids=ids,
            length=len(prompt),
            sampler=self._make_sampler(request),
            assembler=TextAssembler(self._tokenizer, request.sampling.stop),
            chain=self.start_chain(prompt) if request.digest else None,
        )
        self.drafting.open(seq)
        self._next_key += 1
        self._unfinished[seq.key] = seq
        insort(self.waiting, seq, key=precedence)
        return seq

    def start_chain(self, prompt_ids: NDArray[np.int32]) -> TokenChain:
        """The chain of a prompt of this model. Raises UsageError where the engine was made without."""
        if self._start_chain is None:
            raise UsageError("digest needs an engine that keeps chains of logits; this one keeps none")
        return self._start_chain(prompt_ids)

    def cancel(self, seq: Sequence) -> None:
        """Ends a request now, between passes; what it has stays with it. From within its own pass: before the next one."""
        if seq.finished:
            return
        if seq in self._in_pass:  # a callback asks; the pass goes on with this request's blocks
            seq.cancel_requested = True
            return
        try:
            self._finish(seq, "cancelled")
        except BaseException as error:
            self._recover(error)
            raise

    def cancel_requests(self, requests: Collection[Request]) -> None:
        """Ends whatever runs for these very requests."""
        for seq in list(self._unfinished.values()):
            if any(seq.request is request for request in requests):
                self.cancel(seq)

    def cancel_all(self) -> None:
        for seq in list(self._unfinished.values()):
            self.cancel(seq)

    # --- passes -----------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Runs one pass; False once there is nothing left to do.

        If the pass is interrupted or fails, its requests end as cancelled, all others go on, and the exception is passed on.
        """
        self._refuse_within_pass()
        try:
            for seq in [s for s in self._unfinished.values() if s.cancel_requested]:
                self._finish(seq, "cancelled")
            if not self.has_work:
                return False
            self._hurried = any(queue and queue[0].request.tier == "priority" for queue in (self.running, self.waiting))
            self._plan_drafts()
            step, matches = self._decide()
            began = perf_counter()
            work = self._apply(step, matches)
            while not work and step.preempt:  # it only made room
                step, matches = self._decide()
                work = self._apply(step, matches)
            if work:
                standard_there = self._hurried and any(map(is_standard, (*self.running[-1:], *self.waiting[-1:])))
                self._run(work)
                rows, seconds = step.rows, perf_counter() - began
                self._counting.took(step, rows, seconds, standard_there=standard_there)
                self._time_step(step, rows, seconds)
            else:
                self._fail_head()
        except BaseException as error:
            self._recover(error)
            raise
        return self.has_work

    def score(self, ids: NDArray[np.int32], take: Callable[[int, NDArray[np.float32]], None], *, first: int = 0) -> None:
        """Hands out the logits of every position from ``first`` on: position of a first row and rows ``(n, vocab)``, valid during the call.

        Nothing comes from the prefix cache: each row is computed.
        """
        self._refuse_within_pass()
        need = self._blocks.blocks_for(len(ids))
        if not self._blocks.can_allocate(need):
            raise CapacityError(f"{len(ids)} tokens need {need} key-value blocks, {self._blocks.free_blocks} are free")
        try:
            table = BlockTable()
            self._blocks.allocate(table, need)
            for position, rows in self._runner.score(ids, table.blocks, first=first):
                take(position, rows)
            self._blocks.free(table)
        except BaseException as error:
            self._recover(error)
            raise

    def calibrate(self, known: Mapping[int, float] | None = None) -> dict[int, float]:
        """Measures passes by rows, so that draft lengths start from this machine's costs. Only before the first request.

        ``known``: what an earlier start measured; taken instead where it has the rows that would be measured here.
        """
        most = min(self._limits.max_rows, self._limits.max_logit_rows, self.context)
        rows = [rows for rows in _CALIBRATION_ROWS if rows <= most]
        seconds = dict(known) if known is not None and sorted(known) == rows else self._runner.measure(rows)
        if len(seconds) > 1:
            self.drafting.policy.cost = StepCost(seconds)
        self.drafting.calibrate()
        return seconds

    def clear_caches(self) -> None:
        """Forgets prefixes and what earlier requests taught about drafts. Requests in flight keep their blocks."""
        self._blocks.clear()
        self._counting.forget_prompts()
        self.drafting.clear()

    def reschedule(self, scheduling: Scheduling) -> None:
        """Other limits from the next request on. The cache is emptied. Raises UsageError while there are requests."""
        if self.has_work:
            raise UsageError(f"limits change between requests only; {len(self.running)} run and {len(self.waiting)} wait")
        self.scheduling = scheduling
        self._limits = scheduling.limits(self.backend, self.levers)
        self._reset_cache()

    def snapshot(self) -> EngineSnapshot:
        """Queues, blocks, the last pass and what was counted so far; takes microseconds."""
        return self._counting.snapshot(self.waiting, self.running, self._blocks)

    # --- deciding ---------------------------------------------------------------------------------------------------------

    def _decide(self) -> tuple[Step, dict[int, PrefixMatch]]:
        blocks = self._blocks
        tight = self._is_tight() or (self._hurried and self.waiting[:1] != [] and not is_standard(self.waiting[0]))
        running = running_candidates(self.running, blocks, owned=tight)
        waiting: list[Candidate] = []
        matches: dict[int, PrefixMatch] = {}
        if self.waiting:
            waiting, matches = waiting_candidates(admissible(self.waiting, self.running, self._limits), blocks)
        step = next_step(waiting, running, free_blocks=blocks.free_blocks, limits=self._limits, pass_s=self._pass_s)
        return step, matches

    def _plan_drafts(self) -> None:
        decoding = [seq for seq in self.running if seq.length - seq.computed == 1]
        most = min(self._limits.max_rows, self._limits.max_logit_rows)
        started = perf_counter()
        self._pass_s.step = self.drafting.policy.cost
        if self._hurried:
            self._plan_hurried(decoding, most)
        else:
            if self._limits.mixed_passes and self._reads_prompts(decoding):
                most = rows_beside_prompts(self._limits, self._pass_s)
            self.drafting.plan(decoding, most_rows=most)
        self.drafting_s += perf_counter() - started

    def _reads_prompts(self, decoding: list[Sequence]) -> bool:
        """Whether the next pass is likely to hold rows of prompts beside those that decode."""
        if not self.waiting:
            return len(decoding) < len(self.running)
        return len(decoding) < len(self.running) or (len(self.running) < self._limits.max_running and not self._short_of_blocks())

    def _plan_hurried(self, decoding: list[Sequence], most: int) -> None:
        """Drafts for a pass with priority rows: theirs as if nobody else were there, and others' only where they may ride along."""
        first = priority_count(decoding)
        priority, standard = decoding[:first], decoding[first:]
        self.drafting.plan(priority, most_rows=min(self._limits.priority_rows, most))
        rows = sum(1 + seq.draft_length for seq in priority)
        slack, pass_s = self._limits.priority_slack, self._pass_s
        if slack is None or (rows and pass_s(rows + 1) > pass_s(rows) * (1.0 + slack)):
            self.drafting.skip(standard)
        elif standard:
            self.drafting.plan(standard, most_rows=most, beside=rows, stepwise=False)

    # --- carrying out -----------------------------------------------------------------------------------------------------

    def _apply(self, step: Step, matches: dict[int, PrefixMatch]) -> list[tuple[Work, Sequence]]:
        if step.work:
            self._count_step(step)
        by_key = {seq.key: seq for seq in self.running}
        for key in step.preempt:
            self._preempt(by_key[key])
        for key in step.admit:  # cached blocks are taken before any block is allocated, or they could be evicted
            by_key[key] = self._admit(self._unfinished[key], matches[key])
        tight = self._hurried or self._is_tight()
        work: list[tuple[Work, Sequence]] = []
        for w in step.work:
            seq = by_key[w.key]
            if w.new_blocks:
                held = len(seq.table.blocks)
                self._blocks.allocate(seq.table, w.new_blocks)
                self._runner.extend_table(seq, held)
            if w.draft and seq.draft is not None:
                seq.ids[seq.length : seq.length + w.draft] = seq.draft.tokens[: w.draft]
            elif seq.draft_length and tight:
                seq.draft_declined = True  # no block or no time was left for it
            work.append((w, seq))
        return work

    def _admit(self, seq: Sequence, match: PrefixMatch) -> Sequence:
        self.waiting.remove(seq)
        insort(self.running, seq, key=precedence)
        self._blocks.adopt(seq.table, match)
        seq.computed = len(match.blocks) * self._blocks.block_size
        seq.state = State.RUNNING
        self._runner.open_slot(seq)
        if not seq.scheduled_s:
            self._counting.start(seq, held=len(match.blocks), evictions=self._blocks.evictions)
        return seq

    def _preempt(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._release(seq)
        seq.restart()
        insort(self.waiting, seq, key=precedence)
        self.evidence.passes.preemptions += 1

    def _run(self, work: list[tuple[Work, Sequence]]) -> None:
        self._in_pass = tuple(seq for _, seq in work)
        began = perf_counter()
        logits = self._runner.run(work)
        self.pass_s += perf_counter() - began
        hidden = self._runner.hidden(work) if self.drafting.wants_hidden else [None] * len(work)
        for (w, seq), rows, behind in zip(work, logits, hidden, strict=True):
            reason = None
            if rows is None:
                seq.computed = w.start + w.rows
            else:
                known = seq.length
                reason = self._delivery.deliver(seq, w, rows, behind)
                self.evidence.passes.tokens += seq.length - known
            self._blocks.enter(seq.table, seq.ids, seq.computed)
            self._counting.computed(seq, before=w.start)
            if reason is not None:
                self._finish(seq, reason)
        self._in_pass = ()

    def _time_step(self, step: Step, rows: int, seconds: float) -> None:
        """Sampling and delivery count too: a token that comes with another one's pass saves its share of them."""
        if not self.drafting.active and not self._limits.mixed_passes:
            return
        if all(w.sample and w.rows == 1 for w in step.work):
            self.drafting.policy.cost.observe(rows, seconds)
        else:
            self._pass_s.observe(rows, seconds)

    def _finish(self, seq: Sequence, reason: FinishReason) -> None:
        self._delivery.close(seq, reason)
        if seq.state is State.RUNNING:
            self.running.remove(seq)
            self._release(seq)
        elif seq in self.waiting:
            self.waiting.remove(seq)
        seq.state = State.FINISHED
        self._forget(seq)

    def _forget(self, seq: Sequence) -> None:
        if self._unfinished.pop(seq.key, None) is not None:
            self.drafting.close(seq)

    def _release(self, seq: Sequence) -> None:
        self._blocks.free(seq.table)
        self._runner.close_slot(seq)

    def _fail_head(self) -> None:
        """Nothing can run: the first request in line needs more blocks than there will ever be."""
        seq = self.running[0] if self.running else self.waiting[0]
        need = self._blocks.blocks_for(seq.length)
        seq.error = CapacityError(f"{seq.length} tokens need {need} key-value blocks, the cache has {self._blocks.total_blocks}")
        self._finish(seq, "cancelled")

    def _recover(self, error: BaseException) -> None:
        """A step broke off anywhere in its middle: the requests of its pass end, all others start over from their tokens."""
        in_pass, self._in_pass = self._in_pass, ()
        self._reset_cache()
        self.running, self.waiting = [], []
        for key in sorted(self._unfinished):
            seq = self._unfinished[key]
            seq.table, seq.slot = BlockTable(), -1
            if seq in in_pass or seq.finish_reason is not None:
                seq.error = error if isinstance(error, Exception) and seq.finish_reason is None else seq.error
                seq.finish_reason = seq.finish_reason or "cancelled"
                seq.finished_s = seq.finished_s or perf_counter()
                seq.state = State.FINISHED
                self._forget(seq)
            else:
                seq.restart()
                insort(self.waiting, seq, key=precedence)

    def _refuse_within_pass(self) -> None:
        """A callback may look at its row. A pass inside its pass would overwrite that row, and run requests that are half delivered."""
        if self._in_pass:
            raise UsageError("on_logits must not generate or ask for logits: its pass is not over")

    def _reset_cache(self) -> None:
        self._blocks = BlockManager(self.backend.kv_blocks, self.backend.kv_block_size, prefix_cache="prefix_cache" in self.levers)
        most_running = self._limits.max_running + self._limits.priority_running
        self._runner = Runner(self.backend, context=self.context, max_running=most_running)
        self._counting.forget_prompts()

    # --- counting ---------------------------------------------------------------------------------------------------------

    def _count_step(self, step: Step) -> None:
        filled = step.fills(self._limits)
        # Priority rows may leave neither time nor a row for standard requests: that these do not share the pass is then as it should be.
        first = priority_count(self.running) if step.declined or (filled and step.work[0].tier == "priority") else len(self.running)
        self._counting.step(
            step,
            requests=len(self.running) + len(self.waiting),
            decoding=any(seq.length - seq.computed == 1 for seq in self.running[:first]),
            full=step.declined > 0
            or filled
            or self._only_seat_taken(step.work[0])
            or bool(step.preempt)
            or not self._limits.mixed_passes
            or self._short_of_blocks(),
            lever_uses=self.backend.lever_uses,
        )

    def _only_seat_taken(self, work: Work) -> bool:
        """The tier of ``work`` runs one request at a time, and every other request is of this tier."""
        seats = self._limits.priority_running if work.tier == "priority" else self._limits.max_running
        return seats == 1 and all(seq.request.tier == work.tier for seq in (*self.running, *self.waiting))

    def _is_tight(self) -> bool:
        """The next pass may not find a block for every row it could use."""
        return self._blocks.free_blocks < 2 * len(self.running)

    def _short_of_blocks(self) -> bool:
        return bool(self.waiting) and self._blocks.free_blocks <= self._blocks.blocks_for(self.waiting[0].length) + len(self.running)
