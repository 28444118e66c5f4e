"""Where a token's time goes: passes of a loaded model, with the compiled core's clock off and on, and a generation around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine import compiled
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.llm import LLM
from swiftsure.engine.pass_times import PassTimes, Piece, TypicalTimes, pass_times, together, typical
from swiftsure.engine.request import Request, TokenSampler, as_ids
from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import ContextLengthError, UsageError
from swiftsure.models.costs import StepCost, pass_costs

CASE_SECONDS = 2.0  # of passes, half of them timed inside
LEAST_REPEATS, MOST_REPEATS = 5, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``decode``: one pass of ``rows`` rows after ``context`` cached positions, logits of all. ``prefill``: a prompt of ``rows`` tokens,
    read from the start in as large passes as the back end takes, logits of the last."""

    kind: str  # "decode" or "prefill"
    rows: int
    context: int = 0

    @property
    def name(self) -> str:
        if self.kind == "prefill":
            return f"prefill of {self.rows} tokens"
        return f"decode, {self.rows} {'row' if self.rows == 1 else 'rows'} at context {self.context}"

    @property
    def positions(self) -> int:
        return self.context + self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTimes:
    """Medians over repeats. Whole calls were measured in turn with the clock in the core off and on."""

    case: Case
    pieces: tuple[Piece, ...]
    times: TypicalTimes
    call_s: float  # of a timed call, what the core does not see: the binding
    costs: tuple[tuple[StepCost, ...], ...]  # by pass
    untimed_median_s: float
    timed_median_s: float
    repeats: int
    sampling_s: float | None  # median time to sample every row of a decode pass; None: a prefill


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationTimes:
    """The typical decode step of one generation through the engine, in seconds; the four parts sum to ``step_s``."""

    steps: int
    tokens: int
    step_s: float
    pass_s: float
    sampling_s: float
    drafting_s: float
    python_s: float  # scheduling, arrays of the pass, text: everything else


class Profiler:
    """Measures one loaded model, which nobody else uses meanwhile. ``ids``: tokens of some text, repeated as often as needed."""

    def __init__(self, llm: LLM, ids: Sequence[int]) -> None:
        if not isinstance(llm.backend, CPUBackend):
            raise UsageError(f"only the cpu back end tells what its passes are made of, not {type(llm.backend).__name__}")
        if not ids:
            raise UsageError("profiling needs at least 1 token of text")
        self._llm = llm
        self._backend = llm.backend
        self._schedule = llm.model.schedule()
        self._ids = np.resize(np.asarray(ids, np.int32), llm.context)
        self._table = np.arange(-(-llm.context // llm.backend.kv_block_size), dtype=np.int32)[None, :]
        self._filled = 0

    def check(self, case: Case) -> None:
        """Raises UsageError for rows that no pass takes and ContextLengthError for positions past the context."""
        if case.kind == "decode" and not 1 <= case.rows <= self._backend.max_logit_rows:
            raise UsageError(f"a decode pass takes 1 to {self._backend.max_logit_rows} rows, got {case.rows}")
        if case.rows < 1 or case.context < 0:
            raise UsageError(f"rows must be at least 1 and the context at least 0, got {case.rows} and {case.context}")
        if case.positions > self._llm.context:
            raise ContextLengthError(f"{case.name} needs {case.positions} positions, the context has {self._llm.context}")

    def read_bytes(self, case: Case) -> int:
        """Weights and cached positions that the largest pass of the case reads."""
        return max(sum(cost.weight_bytes + cost.kv_bytes for cost in one) for one in self._costs(case))

    def time_case(self, case: Case, *, repeats: int | None = None) -> CaseTimes:
        """Runs the case ``repeats`` times with the core's clock off and as often with it on, in turn.

        Raises as :meth:`check`.
        """
        self.check(case)
        self._fill(case.context)
        first = self._run(case)[0] + self._run(case)[0]
        repeats = repeats or min(max(int(CASE_SECONDS / first), LEAST_REPEATS), MOST_REPEATS)
        plain, timed, inside, sampling = [], [], [], []
        sampler = self._sampler()
        for _ in range(repeats):
            seconds, logits, _ = self._run(case)
            plain.append(seconds)
            if case.kind == "decode":
                sampling.append(_sample(sampler, logits))
            seconds, _, passes = self._run(case, timed=True)
            timed.append(seconds)
            inside.append(together(passes))
        return CaseTimes(
            case=case,
            pieces=self._backend.pieces(),
            times=typical(inside),
            call_s=float(np.median([seconds - one.wall_s for seconds, one in zip(timed, inside, strict=True)])),
            costs=self._costs(case),
            untimed_median_s=float(np.median(plain)),
            timed_median_s=float(np.median(timed)),
            repeats=repeats,
            sampling_s=float(np.median(sampling)) if sampling else None,
        )

    def time_generation(self, *, prompt: int, tokens: int) -> GenerationTimes:
        """Generates ``tokens`` tokens greedily after the first ``prompt`` of the text, with the levers of the mode."""
        engine = self._llm._engine
        sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        sequence = engine.add(Request(prompt_ids=as_ids(self._ids[:prompt]), sampling=sampling.resolved(), arrived_s=perf_counter()))
        self._filled = 0  # the engine writes to blocks of its own choice
        sampler = _TimedSampler(sequence.sampler)
        sequence.sampler = sampler
        speculates = "speculation" in engine.levers

        def spent() -> tuple[float, float, float]:
            return engine.pass_s, sampler.seconds, engine.drafting_s if speculates else 0.0

        steps: list[tuple[float, ...]] = []
        while not sequence.finished:
            before = spent()
            decoding = sequence.output_length > 0
            begin = perf_counter()
            engine.step()
            seconds = perf_counter() - begin
            parts = tuple(late - early for early, late in zip(before, spent(), strict=True))
            if decoding:
                steps.append((seconds, *parts, seconds - sum(parts)))
        if sequence.error is not None:
            raise sequence.error
        steps.sort()
        cut = len(steps) // 4
        step_s, pass_s, sampling_s, drafting_s, python_s = np.mean(steps[cut : len(steps) - cut], axis=0).tolist()
        return GenerationTimes(
            steps=len(steps),
            tokens=sequence.output_length - 1,
            step_s=step_s,
            pass_s=pass_s,
            sampling_s=sampling_s,
            drafting_s=drafting_s,
            python_s=python_s,
        )

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _costs(self, case: Case) -> tuple[tuple[StepCost, ...], ...]:
        """By pass. Weights count as the file stores them, or as they are packed where the mode packs them in fewer bits."""
        packed = {piece.op: piece.packed_bytes for piece in self._backend.pieces() if piece.packed_bytes}

        def read(op: int, cost: StepCost) -> StepCost:
            return replace(cost, weight_bytes=min(cost.weight_bytes, packed[op])) if op in packed else cost

        passes = (
            pass_costs(
                self._schedule,
                self._llm.model.tensors,
                positions=start + rows,
                rows=rows,
                wanted=wanted,
                kv_bits=self._backend.kv_bits,
            )
            for start, rows, wanted in self._passes(case)
        )
        return tuple(tuple(read(op, cost) for op, cost in enumerate(one)) for one in passes)

    def _fill(self, context: int) -> None:
        """Keys and values of ``context`` positions: real ones, since untouched memory is one page of zeros and would stay in the cache."""
        for start, rows, _ in _cut(self._filled, context, self._backend.max_rows):
            self._backend.run(self._batch(start, rows, 0))
        self._filled = max(self._filled, context)

    def _passes(self, case: Case) -> Iterator[tuple[int, int, int]]:
        """``(start, rows, wanted)`` of each pass of a case."""
        if case.kind == "decode":
            yield case.context, case.rows, case.rows
        else:
            for start, rows, last in _cut(0, case.rows, self._backend.max_rows):
                yield start, rows, int(last)

    def _run(self, case: Case, *, timed: bool = False) -> tuple[float, NDArray[np.float32], list[PassTimes]]:
        """Seconds of all passes, the last one's logits, and what the core saw of each."""
        backend = self._backend
        batches = [self._batch(*cut) for cut in self._passes(case)]
        seconds, inside = 0.0, []
        pieces = backend.pieces() if timed else ()
        backend.time_passes(timed)
        try:
            for batch in batches:
                begin = perf_counter()
                logits = backend.run(batch)
                seconds += perf_counter() - begin
                if timed:
                    inside.append(pass_times(pieces, backend.raw_times()))
        finally:
            backend.time_passes(False)
        return seconds, logits, inside

    def _batch(self, start: int, rows: int, wanted: int) -> RowBatch:
        return RowBatch(
            tokens=self._ids[start : start + rows],
            positions=np.arange(start, start + rows, dtype=np.int32),
            sequences=np.zeros(rows, np.int32),
            block_tables=self._table,
            logit_rows=np.arange(rows - wanted, rows, dtype=np.int32),
        )

    def _sampler(self) -> TokenSampler:
        request = Request(prompt_ids=as_ids(self._ids[:1]), sampling=SamplingParams(temperature=0.0).resolved())
        return compiled.sampler_factory(self._backend.vocab_size, self._backend.isa)(request)


class _TimedSampler:
    """A sampler that counts the seconds spent in it."""

    def __init__(self, sampler: TokenSampler) -> None:
        self._sampler = sampler
        self.seconds = 0.0

    def accept(self, logits: NDArray[np.float32], draft: NDArray[np.int32], /) -> NDArray[np.int32]:
        begin = perf_counter()
        tokens = self._sampler.accept(logits, draft)
        self.seconds += perf_counter() - begin
        return tokens


def _sample(sampler: TokenSampler, logits: NDArray[np.float32]) -> float:
    """Seconds to sample every row, as when all drafts are right."""
    tokens = logits[:-1].argmax(axis=1).astype(np.int32)
    begin = perf_counter()
    sampler.accept(logits, tokens)
    return perf_counter() - begin


def _cut(start: int, end: int, most: int) -> Iterator[tuple[int, int, bool]]:
    """``(start, rows, last)`` of as few passes of at most ``most`` rows as cover ``[start, end)``."""
    while start < end:
        rows = min(most, end - start)
        yield start, rows, start + rows == end
        start += rows
