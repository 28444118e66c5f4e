"""Counts what the engine does where it happens: lookups in the prefix cache, passes, tiers, tokens."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from swiftsure.engine.candidates import priority_count
from swiftsure.engine.evidence import Evidence, count_pass, count_start, count_tiers
from swiftsure.engine.snapshot import EngineSnapshot

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf

    from swiftsure.engine.kv_blocks import BlockManager
    from swiftsure.engine.request import Sequence
    from swiftsure.engine.scheduler import Step

_REMEMBERED_PROMPTS = 65_536  # first blocks remembered, to know an occasion of the prefix cache when it comes


class Counting:
    """Writes the evidence of one engine."""

    def __init__(self, levers: Collection[str], block_size: int) -> None:
        self.evidence = Evidence()
        self._levers = levers
        self._block_size = block_size
        self._seen_first_blocks: set[bytes] = set()
        self._last_rows = (0, 0)  # of standard and of priority requests

    def forget_prompts(self) -> None:
        self._seen_first_blocks.clear()

    def start(self, seq: Sequence, *, held: int, evictions: int) -> None:
        """A request runs its first row; the prefix cache gave it ``held`` blocks.

        One look into the prefix cache per request. The occasion is known apart from the cache: this beginning was computed before.
        """
        seq.scheduled_s = perf_counter()
        count_start(self.evidence.tiers, seq.request.tier, seq.scheduled_s - seq.queued_s)
        if "prefix_cache" not in self._levers or seq.length <= self._block_size:
            return
        counts = self.evidence.prefix_cache
        occasion = seq.ids[: self._block_size].tobytes() in self._seen_first_blocks
        reused = held * self._block_size
        counts.lookups += 1
        counts.occasions += occasion
        counts.hits += held > 0
        counts.evicted += occasion and not held and evictions > 0
        counts.tokens_reused += reused
        seq.count("prefix_cache", lookups=1, occasions=int(occasion), hits=int(held > 0), tokens_reused=reused)

    def computed(self, seq: Sequence, *, before: int) -> None:
        """So many positions were computed ``before`` a pass, and ``seq.computed`` are now."""
        if before < self._block_size <= seq.computed and len(self._seen_first_blocks) < _REMEMBERED_PROMPTS:
            self._seen_first_blocks.add(seq.ids[: self._block_size].tobytes())

    def step(self, step: Step, *, requests: int, decoding: bool, full: bool, lever_uses: Mapping[str, int]) -> None:
        """What a pass is about to do; as :func:`count_pass`."""
        count_pass(self.evidence, step, requests=requests, decoding=decoding, full=full, levers=self._levers)
        for name, count in lever_uses.items():
            self.evidence.count_numeric(name, count)

    def took(self, step: Step, rows: int, seconds: float, *, standard_there: bool) -> None:
        """A pass of ``rows`` rows took ``seconds``. ``standard_there``: a standard request was running or waiting."""
        self._last_rows = count_tiers(self.evidence.tiers, step, rows, seconds, standard_there=standard_there)

    def snapshot(self, waiting: SequenceOf[Sequence], running: SequenceOf[Sequence], blocks: BlockManager) -> EngineSnapshot:
        """``waiting`` and ``running`` in order of precedence."""
        evidence = self.evidence
        passes, cache, tiers = evidence.passes, evidence.prefix_cache, evidence.tiers
        priority_waiting, priority_running = priority_count(waiting), priority_count(running)
        standard_rows, priority_rows = self._last_rows
        return EngineSnapshot(
            waiting_standard=len(waiting) - priority_waiting,
            waiting_priority=priority_waiting,
            running_standard=len(running) - priority_running,
            running_priority=priority_running,
            kv_blocks_free=blocks.free_blocks,
            kv_blocks_total=blocks.total_blocks,
            last_pass_rows_standard=standard_rows,
            last_pass_rows_priority=priority_rows,
            passes=passes.passes,
            rows=passes.rows,
            prompt_rows=passes.prompt_rows,
            tokens=passes.tokens,
            preemptions=passes.preemptions,
            prefix_lookups=cache.lookups,
            prefix_hits=cache.hits,
            prefix_tokens_reused=cache.tokens_reused,
            drafted=evidence.speculation.drafted,
            accepted=evidence.speculation.accepted,
            rides_granted=tiers.rides_granted,
            rides_declined=tiers.rides_declined,
            standard_held_s=tiers.standard_held_s,
        )
