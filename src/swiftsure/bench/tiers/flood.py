"""The priority tier alone and in a flood of standard requests: what its tokens wait for, and what is left for the others.

Priority requests come one after the other. In a flood there are always more standard requests than may run, whose prompts are read and
whose answers end all the time; answers are the same tokens as alone, only their moments differ.

A gap between deliveries has two causes: who else rides along, and how many drafts of its own the request brings to the pass, which in a
flood are not always as many as alone, and whose tokens then come together. The promise is about the gaps, whatever their cause. Beside them
stands their stretch, over the median gap alone of passes with as many rows of the request: what is due to the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from typing import Any, Literal, TypeAlias

from swiftsure.bench.percentiles import percentile
from swiftsure.bench.tiers.boarding import Ride
from swiftsure.bench.tiers.riders import prompts
from swiftsure.engine.llm import LLM
from swiftsure.engine.request import Sequence as Running
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.errors import UsageError
from swiftsure.records.statistics import median

ALLOWANCE = 0.1
"""A flood may move the 99th percentile by the slack and this share of it."""
_STANDARD_TOKENS = (24, 40, 64)
_SETTLE_PASSES = 25  # of standard requests alone, before the first priority request comes


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodOptions:
    """slacks: values of ``priority_slack`` to be measured. requests: of the priority tier in each run. standing: standard requests that
    run or wait at any time, of which ``running`` may share passes."""

    slacks: tuple[float, ...] = (0.1, 0.3, 0.5)
    running: int = 16
    requests: int = 16
    tokens: int = 128
    prompt_tokens: int = 64
    standing: int = 24
    rounds: int = 3
    seed: int = 11

    def __post_init__(self) -> None:
        for name in ("requests", "standing", "rounds", "prompt_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.tokens < 2:
            raise UsageError(f"tokens must be at least 2, got {self.tokens}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tide:
    """One run. Seconds and tokens/s; gaps are between deliveries of a priority request. standard_tokens_per_s: of all standard ones."""

    gap_p50_s: float
    gap_p99_s: float
    gaps: int
    ttft_p50_s: float
    ttft_p99_s: float
    priority_tokens_per_s: float
    standard_tokens_per_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodResult:
    """At one slack. standard_alone_tokens_per_s: what standard requests get where there is no priority request. rounds_moved,
    rounds_stretched: by what share each flood moved the 99th percentile of the gaps, and of their stretch, against the run alone just
    before it."""

    slack: float
    alone: Tide
    flood: Tide
    standard_alone_tokens_per_s: float
    rounds_moved: tuple[float, ...]
    rounds_stretched: tuple[float, ...]

    @property
    def moved(self) -> float:
        """By what share a flood moves the 99th percentile of the gaps: the median of the rounds."""
        return median(self.rounds_moved)

    @property
    def stretched(self) -> float:
        """The same of the gaps' stretch: what company does to passes with the same rows of the request."""
        return median(self.rounds_stretched)

    @property
    def moved_median(self) -> float:
        return self.flood.gap_p50_s / self.alone.gap_p50_s - 1.0

    @property
    def allowed(self) -> float:
        return self.slack + ALLOWANCE

    @property
    def verdict(self) -> Literal["kept", "broken", "unsure"]:
        """Of the promise that a flood moves the gaps by no more than is allowed. Unsure: rounds of both kinds, so it was not measured well
        enough to tell."""
        kept = [moved <= self.allowed for moved in self.rounds_moved]
        return "kept" if all(kept) else "unsure" if any(kept) else "broken"

    @property
    def left(self) -> float:
        """The share of standard throughput that is left."""
        return self.flood.standard_tokens_per_s / self.standard_alone_tokens_per_s

    def to_dict(self) -> dict[str, Any]:
        figures = ("moved", "stretched", "moved_median", "allowed", "verdict", "left")
        return asdict(self) | {name: getattr(self, name) for name in figures}


def pieces(options: FloodOptions) -> int:
    """How often ``advance`` is called."""
    return 1 + 2 * options.rounds * len(options.slacks)


def measure_floods(llm: LLM, options: FloodOptions, *, advance: Callable[[str], None] = lambda name: None) -> tuple[FloodResult, ...]:
    """One result a slack, on a model that nobody else uses; its own limits are put back at the end. Alone and in a flood take turns, so
    that a slow moment of the machine hits both.

    Raises UsageError for what the model was not loaded for: no batching, or too little key-value memory for the requests that run.
    """
    before = llm.scheduling
    rounds: dict[float, list[tuple[_Run, _Run]]] = {slack: [] for slack in options.slacks}
    try:
        advance("warming up")
        _Run(llm, replace(options, requests=2), options.standing).run()
        for _ in range(options.rounds):
            for slack in options.slacks:
                llm.reschedule(replace(before, priority_slack=slack, max_running=_seats(llm, options)))
                advance("priority alone")
                alone = _Run(llm, options, 0).run()
                advance(f"priority in a flood, slack {slack:g}")
                rounds[slack].append((alone, _Run(llm, options, options.standing).run()))
    finally:
        llm.cancel()
        llm.reschedule(before)
    return tuple(_result(slack, pairs) for slack, pairs in rounds.items())


def _seats(llm: LLM, options: FloodOptions) -> int:
    """Standard requests that may share passes: as many as the key-value memory holds beside a priority one, so that none is preempted."""
    size = llm.memory.kv_block_size
    priority, standard = (-(-(options.prompt_tokens + tokens) // size) + 1 for tokens in (options.tokens, max(_STANDARD_TOKENS)))
    return max(1, min(options.running, (llm.memory.kv_blocks - priority) // standard))


def _result(slack: float, pairs: Sequence[tuple[_Run, _Run]]) -> FloodResult:
    floods = [flood for _, flood in pairs]
    return FloodResult(
        slack=slack,
        alone=_tide([alone for alone, _ in pairs]),
        flood=_tide(floods),
        standard_alone_tokens_per_s=median(run.standard_before_per_s for run in floods),
        rounds_moved=tuple(_tide([flood]).gap_p99_s / _tide([alone]).gap_p99_s - 1.0 for alone, flood in pairs),
        rounds_stretched=tuple(stretch_p99(flood.gaps, alone.gaps) / stretch_p99(alone.gaps, alone.gaps) - 1.0 for alone, flood in pairs),
    )


Gap: TypeAlias = tuple[int, float]
"""Rows of the request, drafts included, in the pass that ended a gap, and its seconds."""


def stretch_p99(gaps: Sequence[Gap], alone: Sequence[Gap]) -> float:
    """The 99th percentile of gaps over the median of those ``alone`` with as many rows; between the numbers of rows seen, in proportion."""
    import numpy as np

    by_rows: dict[int, list[float]] = {}
    for rows, seconds in alone:
        by_rows.setdefault(rows, []).append(seconds)
    seen = sorted(by_rows)
    usual = np.interp([rows for rows, _ in gaps], seen, [median(by_rows[rows]) for rows in seen])
    return percentile([seconds / float(other) for (_, seconds), other in zip(gaps, usual, strict=True)], 99)


def _tide(runs: Sequence[_Run]) -> Tide:
    rides = [ride for run in runs for ride in run.rides]
    gaps = [gap for ride in rides for gap in ride.gaps_s]
    wall = sum(run.wall_s for run in runs)
    return Tide(
        gap_p50_s=median(gaps),
        gap_p99_s=percentile(gaps, 99),
        gaps=len(gaps),
        ttft_p50_s=median(ride.ttft_s for ride in rides),
        ttft_p99_s=percentile((ride.ttft_s for ride in rides), 99),
        priority_tokens_per_s=median(rate for ride in rides if (rate := ride.tokens_per_s) is not None),
        standard_tokens_per_s=sum(run.standard_tokens for run in runs) / wall,
    )


class _Run:
    """Priority requests one after the other, among so many ``standing`` standard ones."""

    def __init__(self, llm: LLM, options: FloodOptions, standing: int) -> None:
        self._llm, self._options, self._standing = llm, options, standing

        def encode(text: str) -> list[int]:
            return llm.model.tokenizer.encode(text, special=False)

        self._prompts = prompts(options.requests, options.prompt_tokens, encode=encode, seed=options.seed)
        others = prompts(4 * standing, options.prompt_tokens, encode=encode, seed=options.seed + 1)
        self._others = cycle(zip(others, cycle(_STANDARD_TOKENS), strict=False))
        self._flood: list[Running] = []
        self._standard_ended = 0  # tokens of those that have ended
        self.rides: list[Ride] = []
        self.gaps: list[Gap] = []
        self.standard_tokens = 0
        self.standard_before_per_s = 0.0
        self.wall_s = 0.0

    def run(self) -> _Run:
        self._llm.clear_caches()
        self._settle()
        began, before = time.perf_counter(), self._standard_now()
        for prompt in self._prompts:
            self._serve(prompt, began)
        self.wall_s = time.perf_counter() - began
        self.standard_tokens = self._standard_now() - before
        self._llm.cancel()
        return self

    def _settle(self) -> None:
        """Standard requests alone; the second half of the passes says what they get then."""
        if not self._standing:
            return
        for _ in range(_SETTLE_PASSES):
            self._step()
        began, before = time.perf_counter(), self._standard_now()
        for _ in range(_SETTLE_PASSES):
            self._step()
        self.standard_before_per_s = (self._standard_now() - before) / (time.perf_counter() - began)

    def _serve(self, prompt: tuple[int, ...], began: float) -> None:
        arrived = time.perf_counter() - began
        ride = Ride(arrived_s=arrived, boarded_s=arrived)
        running = self._submit(prompt, self._options.tokens, "priority")
        while not running.finished:
            self._step()
            if new := running.output_length - ride.tokens:
                now = time.perf_counter() - began
                if ride.deliveries:
                    self.gaps.append((1 + running.draft_length, now - ride.deliveries[-1][0]))
                ride.deliveries.append((now, new))
        if running.error is not None:
            raise running.error
        self.rides.append(ride)

    def _step(self) -> None:
        for running in [one for one in self._flood if one.finished]:
            if running.error is not None:
                raise running.error
            self._standard_ended += running.output_length
            self._flood.remove(running)
        while len(self._flood) < self._standing:
            prompt, tokens = next(self._others)
            self._flood.append(self._submit(prompt, tokens, "standard"))
        self._llm.step()

    def _submit(self, prompt: tuple[int, ...], tokens: int, tier: Tier) -> Running:
        return self._llm.submit(prompt, sampling=SamplingParams(max_tokens=tokens, ignore_eos=True), tier=tier)

    def _standard_now(self) -> int:
        return self._standard_ended + sum(one.output_length for one in self._flood)
