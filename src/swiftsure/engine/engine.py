"""The engine: requests in, passes, tokens and text out. Synchronous; one call of ``step`` is one pass.

Life of a request: ``add`` puts it in ``waiting``; a step admits it (blocks, cached prefix), prefills it, decodes it token by token or draft
by draft, and finishes it. A preempted request goes back to the head of ``waiting`` and is recomputed. Whatever happens to one request
(a callback that raises, a cancellation) happens to that request alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from collections.abc import Sequence as SequenceOf
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.backend import Backend
from swiftsure.engine.delivery import Delivery, Describe
from swiftsure.engine.drafting.planner import DraftPlanner
from swiftsure.engine.drafting.source import DraftSource
from swiftsure.engine.evidence import Evidence, count_pass
from swiftsure.engine.kv_blocks import BlockManager, BlockTable, PrefixMatch
from swiftsure.engine.request import FinishReason, Request, Sequence, State, TokenSampler
from swiftsure.engine.runner import Runner
from swiftsure.engine.scheduler import Candidate, Limits, Step, Work, next_step
from swiftsure.engine.speculation import StepCost
from swiftsure.engine.text import TextAssembler, TokenBytes
from swiftsure.engine.token_chain import StartChain, TokenChain
from swiftsure.errors import CapacityError, UsageError

MAX_RUNNING = 16
_REMEMBERED_PROMPTS = 65_536  # first blocks remembered, to know an occasion of the prefix cache when it comes
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
    ) -> None:
        """``start_chain``: None where nobody will ask for digests."""
        self.backend = backend
        self.context = context
        self.levers = frozenset(levers)
        self.evidence = Evidence()
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of arrival
        self.drafting = DraftPlanner(sources if "speculation" in self.levers else (), self.evidence.speculation)
        self.pass_s = 0.0  # spent in the back end, in all passes so far
        self.drafting_s = 0.0  # and on guessing what comes next
        self._tokenizer = tokenizer
        self._make_sampler = make_sampler
        self._start_chain = start_chain
        self._delivery = Delivery(self.drafting, frozenset(end_ids), describe)
        most = min(MAX_RUNNING, backend.max_rows, backend.max_logit_rows) if "batching" in self.levers else 1
        self._limits = Limits(
            max_rows=backend.max_rows,
            max_logit_rows=backend.max_logit_rows,
            block_size=backend.kv_block_size,
            max_running=most,
            mixed_passes="chunked_prefill" in self.levers,
        )
        self._reset_cache()
        self._next_key = 0
        self._unfinished: dict[int, Sequence] = {}  # the truth about who is there, even when an interrupt tears a queue
        self._in_pass: tuple[Sequence, ...] = ()

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
        self.waiting.append(seq)
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
            step, matches = self._decide()
            began = perf_counter()
            work = self._apply(step, matches)
            if work:
                self._run(work)
                self._time_step(work, perf_counter() - began)
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
        self._seen_first_blocks.clear()
        self.drafting.clear()

    # --- deciding ---------------------------------------------------------------------------------------------------------

    def _decide(self) -> tuple[Step, dict[int, PrefixMatch]]:
        self._plan_drafts()
        blocks = self._blocks
        tight = self._is_tight()
        running = [
            Candidate(
                key=seq.key,
                length=seq.length,
                computed=seq.computed,
                blocks=len(seq.table.blocks),
                draft=seq.draft_length,
                owned=blocks.owned(seq.table) if tight else 0,
            )
            for seq in self.running
        ]
        waiting: list[Candidate] = []
        matches: dict[int, PrefixMatch] = {}
        if self.waiting:
            for seq in list(self.waiting)[: self._limits.max_running - len(running)]:
                match = matches[seq.key] = blocks.match(seq.ids[: seq.length])
                held = len(match.blocks)
                waiting.append(Candidate(key=seq.key, length=seq.length, computed=held * blocks.block_size, blocks=held, idle=match.idle))
        return next_step(waiting, running, free_blocks=blocks.free_blocks, limits=self._limits), matches

    def _plan_drafts(self) -> None:
        decoding = [seq for seq in self.running if seq.length - seq.computed == 1]
        started = perf_counter()
        self.drafting.plan(decoding, most_rows=min(self._limits.max_rows, self._limits.max_logit_rows))
        self.drafting_s += perf_counter() - started

    # --- carrying out -----------------------------------------------------------------------------------------------------

    def _apply(self, step: Step, matches: dict[int, PrefixMatch]) -> list[tuple[Work, Sequence]]:
        self._count_step(step)
        by_key = {seq.key: seq for seq in self.running}
        for key in step.preempt:  # latest arrival first, so the earliest ends up at the head
            self._preempt(by_key[key])
        for key in step.admit:  # cached blocks are taken before any block is allocated, or they could be evicted
            seq = by_key[key] = self._admit(matches[key])
            if seq.key != key:
                raise RuntimeError(f"request {key} was admitted before request {seq.key}")
        tight = self._is_tight()
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
                seq.draft_declined = True  # no block was left for it
            work.append((w, seq))
        return work

    def _admit(self, match: PrefixMatch) -> Sequence:
        seq = self.waiting.popleft()
        self.running.append(seq)
        self._blocks.adopt(seq.table, match)
        seq.computed = len(match.blocks) * self._blocks.block_size
        seq.state = State.RUNNING
        self._runner.open_slot(seq)
        if not seq.scheduled_s:
            seq.scheduled_s = perf_counter()
            self._count_lookup(seq, len(match.blocks))
        return seq

    def _preempt(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._release(seq)
        seq.restart()
        self.waiting.appendleft(seq)
        self.evidence.passes.preemptions += 1

    def _run(self, work: list[tuple[Work, Sequence]]) -> None:
        self._in_pass = tuple(seq for _, seq in work)
        began = perf_counter()
        logits = self._runner.run(work)
        self.pass_s += perf_counter() - began
        hidden = self._runner.hidden(work) if self.drafting.wants_hidden else [None] * len(work)
        for (w, seq), rows, behind in zip(work, logits, hidden, strict=True):
            if rows is None:
                seq.computed = w.start + w.rows
                reason = None
            else:
                reason = self._delivery.deliver(seq, w, rows, behind)
            self._blocks.enter(seq.table, seq.ids, seq.computed)
            if w.start < self._blocks.block_size <= seq.computed:
                self._remember_first_block(seq)
            if reason is not None:
                self._finish(seq, reason)
        self._in_pass = ()

    def _time_step(self, work: list[tuple[Work, Sequence]], seconds: float) -> None:
        """Sampling and delivery count too: a token that comes with another one's pass saves its share of them."""
        if self.drafting.active and all(w.sample and w.rows == 1 for w, _ in work):
            self.drafting.policy.cost.observe(sum(1 + w.draft for w, _ in work), seconds)

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
        self.running, self.waiting = [], deque()
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
                self.waiting.append(seq)

    def _refuse_within_pass(self) -> None:
        """A callback may look at its row. A pass inside its pass would overwrite that row, and run requests that are half delivered."""
        if self._in_pass:
            raise UsageError("on_logits must not generate or ask for logits: its pass is not over")

    def _reset_cache(self) -> None:
        self._blocks = BlockManager(self.backend.kv_blocks, self.backend.kv_block_size, prefix_cache="prefix_cache" in self.levers)
        self._runner = Runner(self.backend, context=self.context, max_running=self._limits.max_running)
        self._seen_first_blocks: set[bytes] = set()

    # --- counting ---------------------------------------------------------------------------------------------------------

    def _count_lookup(self, seq: Sequence, held: int) -> None:
        """One look into the prefix cache per request. The occasion is known apart from the cache: this beginning was computed before."""
        if "prefix_cache" not in self.levers or seq.length <= self._blocks.block_size:
            return
        counts = self.evidence.prefix_cache
        first_block = seq.ids[: self._blocks.block_size].tobytes()
        occasion = first_block in self._seen_first_blocks
        reused = held * self._blocks.block_size
        counts.lookups += 1
        counts.occasions += occasion
        counts.hits += held > 0
        counts.evicted += occasion and not held and self._blocks.evictions > 0
        counts.tokens_reused += reused
        seq.count("prefix_cache", lookups=1, occasions=int(occasion), hits=int(held > 0), tokens_reused=reused)

    def _remember_first_block(self, seq: Sequence) -> None:
        if len(self._seen_first_blocks) < _REMEMBERED_PROMPTS:
            self._seen_first_blocks.add(seq.ids[: self._blocks.block_size].tobytes())

    def _count_step(self, step: Step) -> None:
        if not step.work:
            return
        count_pass(
            self.evidence,
            step,
            requests=len(self.running) + len(self.waiting),
            decoding=any(seq.length - seq.computed == 1 for seq in self.running),
            full=step.fills(self._limits) or bool(step.preempt) or not self._limits.mixed_passes or self._short_of_blocks(),
            levers=self.levers,
        )
        for name, count in self.backend.lever_uses.items():
            self.evidence.count_numeric(name, count)

    def _is_tight(self) -> bool:
        """The next pass may not find a block for every row it could use."""
        return self._blocks.free_blocks < 2 * len(self.running)

    def _short_of_blocks(self) -> bool:
        return bool(self.waiting) and self._blocks.free_blocks <= self._blocks.blocks_for(self.waiting[0].length) + len(self.running)
