"""``swiftsure profile``: where a token's time goes, operation by operation, against the limit that binds each.

The limits are measured in the same run with the same threads: reading a buffer as large as what the pass reads (the memory wall), and
arithmetic on registers. A limit's time is what the operation would take if it did nothing but that; the larger one binds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swiftsure.engine.llm import LLM
from swiftsure.engine.profile import Case, CaseTimes, GenerationTimes, Profiler
from swiftsure.engine.threads import ThreadChoice
from swiftsure.models.costs import StepCost
from swiftsure.models.tensors import BLOCK_TYPES
from swiftsure.records.arithmetic_peak import ArithmeticPeak, measure_arithmetic_peak
from swiftsure.records.machine import peak_rss_bytes, read_machine
from swiftsure.records.memory_wall import ReadBandwidth, combine, measure_read_bandwidth
from swiftsure.records.run_record import RunRecord
from swiftsure.verify.proving.builtin import RATE_LIMITER

KINDS = ("embed+select", "norms+quantize", "qkv", "rope+cache", "attention", "o", "gate_up", "activation", "down", "head")
"""The order of a token's way through the model; other kinds follow in the order of the schedule."""
MEMORY, ARITHMETIC = "memory", "arithmetic"
_PROBE_PASSES = 5
_LEAST_BYTES = 4096
_TWO_DIGIT_ISAS = ("avx512_vnni", "amx")  # one product of 8 bits per digit; elsewhere a product of 16 bits takes both


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What this machine can do at most, in bytes and in operations of the plain mathematics per second."""

    read_bytes_per_s: float
    integer_ops_per_s: float  # of matmuls over quantized weights, all digits of an activation done
    float_ops_per_s: float

    def seconds(self, cost: StepCost) -> tuple[float, float]:
        """``(memory, arithmetic)``: what reading alone and arithmetic alone would take."""
        quantized = cost.name == "matmul" and any(kind in cost.shape.split()[-1].split("+") for kind in BLOCK_TYPES)
        rate = self.integer_ops_per_s if quantized else self.float_ops_per_s
        return (cost.weight_bytes + cost.kv_bytes) / self.read_bytes_per_s, cost.operations / rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A kind of operation, one operation of one layer, or something around the pass. Seconds are per pass (a prefill: all of its passes).

    ``work_s`` is the mean over threads; ``wait_s`` what threads waited at the ends of its stages, which ``barriers+idle`` sums up.
    """

    name: str
    work_s: float
    wait_s: float = 0.0
    kind: str | None = None  # of an operation: what it is folded under
    layer: int | None = None
    bytes: int = 0
    operations: int = 0
    limit: str | None = None  # the one that binds; None: nothing of note is read or computed
    limit_s: float = 0.0

    @property
    def span_s(self) -> float:
        """What it adds to the pass: work and waiting. Rates and fractions count over this, as the limits' own measurement does."""
        return self.work_s + self.wait_s

    @property
    def gb_per_s(self) -> float | None:
        return _rate(self.bytes, self.span_s)

    @property
    def gop_per_s(self) -> float | None:
        return _rate(self.operations, self.span_s)

    @property
    def fraction(self) -> float | None:
        """Of the limit that binds: 1 is as fast as this machine can."""
        return self.limit_s / self.span_s if self.limit is not None and self.span_s > 0 else None

    def to_dict(self, total_s: float) -> dict[str, Any]:
        return {
            "name": self.name,
            **({} if self.kind is None else {"kind": self.kind, "layer": self.layer}),
            "ms": self.work_s * 1e3,
            "share": self.work_s / total_s,
            "waiting_ms": self.wait_s * 1e3,
            "bytes": self.bytes,
            "operations": self.operations,
            "gb_per_s": self.gb_per_s,
            "gop_per_s": self.gop_per_s,
            "limit": self.limit,
            "limit_fraction": self.fraction,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseProfile:
    """One case. ``rows`` (kinds folded over layers, then what is around the pass) sum to ``total_s``; ``operations`` unfold the kinds."""

    case: Case
    rows: tuple[Row, ...]
    operations: tuple[Row, ...]
    total_s: float
    pass_s: float  # the pass alone, as the core timed it
    limit: str
    limit_s: float  # of the whole pass: operations one after another, each at its limit
    wall_s: float  # reading all that the pass reads, at the memory wall
    untimed_median_s: float
    timed_median_s: float
    repeats: int
    threads: tuple[tuple[float, float], ...]  # (work, waiting) of each
    bandwidth: ReadBandwidth

    @property
    def tokens_per_s(self) -> float:
        """Prefill: prompt tokens. Decode: the rows of a pass, which is the rate only if every one of them is kept."""
        return self.case.rows / self.total_s

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.case.name,
            "kind": self.case.kind,
            "rows": self.case.rows,
            "context": self.case.context,
            "total_ms": self.total_s * 1e3,
            "pass_ms": self.pass_s * 1e3,
            "tokens_per_s": self.tokens_per_s,
            "untimed_median_ms": self.untimed_median_s * 1e3,
            "timed_median_ms": self.timed_median_s * 1e3,
            "repeats": self.repeats,
            "limit": self.limit,
            "limit_fraction": self.limit_s / self.pass_s,
            "memory_wall_fraction": self.wall_s / self.pass_s,
            "bandwidth": self.bandwidth.to_dict(),
            "threads": [{"work_ms": work * 1e3, "waiting_ms": wait * 1e3} for work, wait in self.threads],
            "operations": [row.to_dict(self.total_s) for row in self.rows],
            "layers": [row.to_dict(self.total_s) for row in self.operations],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """Everything a profile found. ``generation`` is None when only prefill was asked for."""

    activation: Mapping[str, Any]
    pins: Mapping[str, Any]
    cases: tuple[CaseProfile, ...]
    generation: GenerationTimes | None
    peaks: tuple[ArithmeticPeak, ...]
    load_s: float
    wall_s: float
    thread_choice: ThreadChoice | None = None
    machine: Any = field(default_factory=read_machine)

    def to_dict(self) -> dict[str, Any]:
        generation = self.generation
        return {
            "cases": [case.to_dict() for case in self.cases],
            "generation": None if generation is None else {name: getattr(generation, name) for name in generation.__slots__},
            "peaks": [peak.to_dict() for peak in self.peaks],
        }

    def record(self, arguments: Sequence[str]) -> RunRecord:
        return RunRecord.of(
            self.activation,
            command="profile",
            arguments=tuple(arguments),
            thread_choice=self.thread_choice.to_dict() if self.thread_choice else None,
            pins=self.pins,
            machine=self.machine,
            phases_s={"load": self.load_s, "profile": self.wall_s},
            peak_rss_bytes=peak_rss_bytes(),
            results=self.to_dict(),
        )


def profile(
    llm: LLM,
    cases: Sequence[Case],
    *,
    repeats: int | None = None,
    generated: int = 64,
    advance: Callable[[str], None] = lambda name: None,
) -> ProfileResult:
    """Measures the cases on a loaded model that nobody else uses. ``advance`` hears what comes next.

    Raises UsageError for a case that no pass takes and ContextLengthError for one that the context does not hold.
    """
    began = time.perf_counter()
    ids = llm.model.tokenizer.encode(RATE_LIMITER, special=False)
    profiler = Profiler(llm, ids)
    for case in cases:
        profiler.check(case)
    isa, threads = llm.activation.isa, llm.activation.threads
    advance("arithmetic on registers")
    peaks = tuple(measure_arithmetic_peak(kind, isa=isa, threads=threads) for kind in ("integer", "float"))
    generation = None
    if any(case.kind == "decode" for case in cases):
        advance("a generation")
        prompt = max(min(len(ids), llm.context - generated), 1)
        generation = profiler.time_generation(prompt=prompt, tokens=min(generated, llm.context - prompt))
    profiles = []
    for case in cases:
        advance(case.name)
        profiles.append(_profile_case(profiler, case, peaks, generation, repeats, digits=2 if isa in _TWO_DIGIT_ISAS else 1))
    files, activation = llm.model.files, llm.activation
    return ProfileResult(
        activation=activation.to_dict(),
        pins={"model": files.pins()},
        cases=tuple(profiles),
        generation=generation,
        peaks=peaks,
        load_s=sum(llm.load_phases.values()),
        wall_s=time.perf_counter() - began,
        thread_choice=llm.thread_choice,
    )


def _profile_case(
    profiler: Profiler,
    case: Case,
    peaks: tuple[ArithmeticPeak, ...],
    generation: GenerationTimes | None,
    repeats: int | None,
    *,
    digits: int,
) -> CaseProfile:
    """The memory wall is probed before and after the case: the machine's speed drifts."""
    size = max(profiler.read_bytes(case), _LEAST_BYTES)
    threads = peaks[0].threads
    before = measure_read_bandwidth(size, threads=threads, passes=_PROBE_PASSES)
    times = profiler.time_case(case, repeats=repeats)
    bandwidth = combine([before, measure_read_bandwidth(size, threads=threads, passes=_PROBE_PASSES)])
    integer, floating = (peak.ops_per_s for peak in peaks)
    limits = Limits(read_bytes_per_s=bandwidth.bytes_per_s, integer_ops_per_s=integer / digits, float_ops_per_s=floating)
    return summarise(times, limits, generation, bandwidth)


def summarise(times: CaseTimes, limits: Limits, generation: GenerationTimes | None, bandwidth: ReadBandwidth) -> CaseProfile:
    """From measured times to rows. Pure."""
    operations = tuple(_operation_rows(times, limits))
    found = {row.kind: [other for other in operations if other.kind == row.kind] for row in operations}
    kinds = [_fold(kind, found[kind]) for kind in dict.fromkeys((*KINDS, *found)) if kind is not None and kind in found]
    rows = [*kinds, *_around(times, kinds, generation)]
    costs = [cost for one in times.costs for cost in one]
    memory, arithmetic = (sum(part) for part in zip(*(limits.seconds(cost) for cost in costs), strict=True))
    inside = times.times
    return CaseProfile(
        case=times.case,
        rows=tuple(rows),
        operations=operations,
        total_s=sum(row.work_s for row in rows),
        pass_s=inside.wall_s,
        limit=MEMORY if memory >= arithmetic else ARITHMETIC,
        limit_s=sum(row.limit_s for row in kinds),
        wall_s=memory,
        untimed_median_s=times.untimed_median_s,
        timed_median_s=times.timed_median_s,
        repeats=times.repeats,
        threads=inside.threads,
        bandwidth=bandwidth,
    )


def _operation_rows(times: CaseTimes, limits: Limits) -> Iterable[Row]:
    """One row per piece, in the order of the work; a part of an operation has no cost of its own."""
    work, wait = times.times.work_s.tolist(), times.times.wait_s.tolist()
    for piece, work_s, wait_s in zip(times.pieces, work, wait, strict=True):
        costs = [one[piece.op] for one in times.costs] if piece.whole else []
        seconds = [limits.seconds(cost) for cost in costs]
        memory, arithmetic = sum(a for a, _ in seconds), sum(b for _, b in seconds)
        limit_s = sum(max(pair) for pair in seconds)
        yield Row(
            name=piece.kind if piece.name == "matmul" else piece.name,
            kind=piece.kind,
            layer=piece.layer,
            work_s=work_s,
            wait_s=wait_s,
            bytes=sum(cost.weight_bytes + cost.kv_bytes for cost in costs),
            operations=sum(cost.operations for cost in costs),
            limit=None if limit_s == 0 else MEMORY if memory >= arithmetic else ARITHMETIC,
            limit_s=limit_s,
        )


def _fold(name: str, rows: Sequence[Row]) -> Row:
    """Rows of one kind as one. The limit that binds the larger part of their time is named."""
    shares = {limit: sum(row.limit_s for row in rows if row.limit == limit) for limit in (MEMORY, ARITHMETIC)}
    return Row(
        name=name,
        work_s=sum(row.work_s for row in rows),
        wait_s=sum(row.wait_s for row in rows),
        bytes=sum(row.bytes for row in rows),
        operations=sum(row.operations for row in rows),
        limit=max(shares, key=shares.__getitem__) if any(shares.values()) else None,
        limit_s=sum(row.limit_s for row in rows),
    )


def _around(times: CaseTimes, kinds: Sequence[Row], generation: GenerationTimes | None) -> Iterable[Row]:
    """Waiting, what others took, and what lies outside the stages and outside the pass."""
    yield Row(name="barriers+idle", work_s=sum(row.wait_s for row in kinds))
    yield Row(name="interrupted", work_s=times.times.interrupted_s)
    yield Row(name="plan+call", work_s=times.times.call_s + times.call_s)
    if times.case.kind == "decode" and generation is not None and times.sampling_s is not None:
        yield Row(name="sampling", work_s=times.sampling_s)
        if generation.drafting_s > 0:
            yield Row(name="drafting", work_s=generation.drafting_s)
        yield Row(name="python", work_s=generation.python_s)


def _rate(amount: int, seconds: float) -> float | None:
    """Giga per second; None where there is nothing to count."""
    return amount / seconds / 1e9 if amount and seconds > 0 else None
