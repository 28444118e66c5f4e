"""The measurement: every batch alone, then three ways to board it under the same arrivals. Rounds repeat all of it; figures are medians."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from swiftsure.bench.tiers.boarding import BOARDINGS, Boarding, ride
from swiftsure.bench.tiers.figures import CLAIMED_PRICE, CLAIMED_SPEED, Claim, Figures, claim, figures, middle
from swiftsure.bench.tiers.flood import FloodOptions, FloodResult, measure_floods, pieces
from swiftsure.bench.tiers.riders import Rider, arrivals, prompts
from swiftsure.engine.llm import LLM
from swiftsure.engine.scheduling import Scheduling
from swiftsure.errors import ContextLengthError, UsageError
from swiftsure.records.machine import MachineFacts, peak_rss_bytes, read_machine
from swiftsure.records.run_record import RunRecord

Advance = Callable[[str, int, int], None]
"""What is being measured, and how many settings of how many are done."""

MOST_SEATS = 64
_FLOOD_ROUNDS = 3  # of a 99th percentile, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOptions:
    """What is measured.

    rows: batches, requests that share a pass. requests: of each setting, at least as many as the largest batch. load: arrivals, as a share
    of what the largest batch can answer; every way to board has the same ones. price_hour: of the machine, in any currency. speed, price:
    the claim. slacks: at which a priority request is measured in a flood of standard ones; none: it is not.

    Raises UsageError for a value that its message states.
    """

    rows: tuple[int, ...] = (1, 2, 4, 8, 16)
    requests: int = 32
    prompt_tokens: int = 64
    tokens: int = 64
    load: float = 0.7
    rounds: int = 2
    price_hour: float = 1.0
    speed: float = CLAIMED_SPEED
    price: float = CLAIMED_PRICE
    slacks: tuple[float, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.rows or list(self.rows) != sorted(set(self.rows)) or not 1 <= self.rows[0] <= self.rows[-1] <= MOST_SEATS:
            raise UsageError(f"rows must be different numbers from 1 to {MOST_SEATS} in rising order, got {','.join(map(str, self.rows))}")
        for name, least in (("requests", self.rows[-1]), ("prompt_tokens", 1), ("tokens", 2), ("rounds", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("load", "price_hour", "speed", "price"):
            if not 0.0 < getattr(self, name) < 1e9:
                raise UsageError(f"{name} must be a number above 0, got {getattr(self, name)}")
        for slack in self.slacks:
            Scheduling(priority_slack=slack)

    @property
    def flood(self) -> FloodOptions:
        return FloodOptions(
            slacks=self.slacks,
            prompt_tokens=self.prompt_tokens,
            tokens=2 * self.tokens,  # enough gaps for a 99th percentile
            rounds=max(_FLOOD_ROUNDS, self.rounds),
            seed=self.seed + 10,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """curve: each batch with its seats always taken. boarding: under ``arrivals_per_s`` requests a second."""

    options: TierOptions
    activation: dict[str, Any]
    pins: dict[str, Any]
    curve: tuple[Figures, ...]
    boarding: tuple[Figures, ...]
    arrivals_per_s: float
    claim: Claim
    floods: tuple[FloodResult, ...]
    load_s: float
    wall_s: float
    machine: MachineFacts = field(default_factory=read_machine)

    def to_dict(self) -> dict[str, Any]:
        return {
            "options": asdict(self.options),
            "curve": [point.to_dict() for point in self.curve],
            "claim": self.claim.to_dict(),
            "arrivals_per_s": self.arrivals_per_s,
            "boarding": [point.to_dict() for point in self.boarding],
            "floods": [flood.to_dict() for flood in self.floods],
        }

    def record(self, arguments: Sequence[str]) -> RunRecord:
        return RunRecord.of(
            self.activation,
            command="bench tiers",
            arguments=tuple(arguments),
            pins=self.pins,
            machine=self.machine,
            phases_s={"load": self.load_s, "measure": self.wall_s},
            peak_rss_bytes=peak_rss_bytes(),
            results=self.to_dict(),
        )


def measure(llm: LLM, options: TierOptions, *, advance: Advance = lambda name, done, total: None) -> TierResult:
    """Measures on a loaded model that nobody else uses, in a mode that batches, with room for the largest batch.

    Raises UsageError and ContextLengthError for what this model was not loaded for.
    """
    _check(llm, options)
    began = time.perf_counter()
    bench = _Bench(llm, options, advance)
    curve = bench.curve()
    boarding, per_s = bench.boarding(curve)
    floods = bench.floods()
    return TierResult(
        options=options,
        activation=llm.activation.to_dict(),
        pins={"model": llm.model.files.pins()},
        curve=curve,
        boarding=boarding,
        arrivals_per_s=per_s,
        claim=claim(curve, speed=options.speed, price=options.price),
        floods=floods,
        load_s=sum(llm.load_phases.values()),
        wall_s=time.perf_counter() - began,
    )


def _check(llm: LLM, options: TierOptions) -> None:
    if "batching" not in llm.activation.levers:
        raise UsageError(f"bench tiers measures requests that share passes, which mode {llm.mode} does not have here; take mode exact")
    seats = llm.scheduling.max_running
    if options.rows[-1] > seats:
        raise UsageError(f"the model was loaded for at most {seats} requests in a pass, {options.rows[-1]} are to be measured")
    need, memory = options.prompt_tokens + (2 if options.slacks else 1) * options.tokens, llm.memory
    if need > llm.context:
        raise ContextLengthError(f"{need} tokens, prompt and answer, do not fit the context of {llm.context} tokens")
    blocks = options.rows[-1] * (-(-need // memory.kv_block_size) + 1)  # one each to grow into
    if blocks > memory.kv_blocks:
        raise UsageError(
            f"{options.rows[-1]} requests of {need} tokens need {blocks} key-value blocks at once, there are {memory.kv_blocks}: "
            f"the rows of a pass would wait for memory; take fewer rows or shorter requests"
        )


class _Bench:
    """Every setting gets the same prompts, and nothing remembers them in between."""

    def __init__(self, llm: LLM, options: TierOptions, advance: Advance) -> None:
        self._llm, self._options, self._advance = llm, options, advance
        encode = llm.model.tokenizer.encode
        self._prompts = prompts(options.requests, options.prompt_tokens, encode=lambda text: encode(text, special=False), seed=options.seed)
        ways = [(seats, boarding) for seats in options.rows for boarding in (BOARDINGS if seats > 1 else ("continuous",))]
        self._ways: list[tuple[int, Boarding]] = ways  # with one seat all ways are one
        floods = pieces(options.flood) if options.slacks else 0
        self._done, self._total = 0, options.rounds * (len(options.rows) + len(ways)) + 1 + floods

    def curve(self) -> tuple[Figures, ...]:
        """Batches in changing order, each with all of the requests, one batch after the other."""
        self._next("warming up")
        self._batches(self._options.rows[-1], most=self._options.rows[-1])
        found: dict[int, list[Figures]] = {seats: [] for seats in self._options.rows}
        for number in range(self._options.rounds):
            for seats in _turned(self._options.rows, number):
                self._next(f"{seats} a pass")
                found[seats].append(self._batches(seats))
        return tuple(middle(repeats) for repeats in found.values())

    def boarding(self, curve: Sequence[Figures]) -> tuple[tuple[Figures, ...], float]:
        options = self._options
        per_s = options.load * curve[-1].total_tokens_per_s / options.tokens
        found: dict[tuple[int, Boarding], list[Figures]] = {way: [] for way in self._ways}
        for number in range(options.rounds):
            moments = arrivals(options.requests, per_s=per_s, seed=options.seed + number)
            riders = [self._rider(prompt, at) for prompt, at in zip(self._prompts, moments, strict=True)]
            for seats, boarding in _turned(self._ways, number):
                self._next(f"{seats} seats, {boarding}")
                self._llm.clear_caches()
                rides = ride(self._llm, riders, seats=seats, boarding=boarding)
                found[seats, boarding].append(figures([rides], seats=seats, boarding=boarding, price_hour=options.price_hour))
        return tuple(middle(repeats) for repeats in found.values()), per_s

    def floods(self) -> tuple[FloodResult, ...]:
        return measure_floods(self._llm, self._options.flood, advance=self._next) if self._options.slacks else ()

    def _batches(self, seats: int, *, most: int | None = None) -> Figures:
        """All requests in full batches; what is left over after the last full one stays behind."""
        self._llm.clear_caches()
        riders = [self._rider(prompt) for prompt in self._prompts[:most]]
        starts = range(0, len(riders) - seats + 1, seats)
        groups = [ride(self._llm, riders[at : at + seats], seats=seats, boarding="full") for at in starts]
        return figures(groups, seats=seats, boarding="full", price_hour=self._options.price_hour)

    def _rider(self, prompt: tuple[int, ...], arrives_s: float = 0.0) -> Rider:
        return Rider(prompt_ids=prompt, tokens=self._options.tokens, arrives_s=arrives_s)

    def _next(self, name: str) -> None:
        self._advance(name, self._done, self._total)
        self._done += 1


def _turned(items: Sequence[Any], number: int) -> list[Any]:
    """The items in their order, and in the opposite one in every second round, so that a drift of the machine hits both ends alike."""
    return list(items) if number % 2 == 0 else list(reversed(items))
