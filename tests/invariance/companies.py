"""Requests in company through the engine, and each alone: one row a pass, on the portable path, without any lever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from worlds import BitsDifferError, Tally, check_row

from swiftsure.engine import compiled
from swiftsure.engine.backend import Backend, RowBatch
from swiftsure.engine.engine import Engine
from swiftsure.engine.request import Request
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.engine.scheduling import Scheduling
from swiftsure.engine.speculation import DraftPolicy, Offer
from swiftsure.engine.token_chain import TokenChain
from swiftsure.kernels import digest_reference

NO_DRAFT = np.zeros(0, dtype=np.int32)


@dataclass(frozen=True)
class Alone:
    """What a request gives by itself."""

    prompt: NDArray[np.int32]
    sampling: SamplingParams
    tokens: list[int]
    rows: NDArray[np.float32]  # (tokens, vocab): row j is what token j was sampled from

    @cached_property
    def digest(self) -> str:
        """Of the rows above, through the slow twin of the fingerprint."""
        chain = TokenChain(numerics="any", weights_sha256="none", prompt_ids=self.prompt, hash_row=digest_reference.hash_row)
        for position, (token, row) in enumerate(zip(self.tokens, self.rows, strict=True), len(self.prompt) - 1):
            chain.extend(position, token, row)
        return chain.digest


@dataclass(frozen=True, slots=True)
class Company:
    """One schedule: which requests, when each arrives (in passes of the engine), the levers and limits, what drafts are tried, and which
    requests are priority ones."""

    isa: str
    threads: int
    requests: tuple[tuple[int, int], ...]  # (request, passes before it arrives)
    levers: frozenset[str]
    max_rows: int
    max_logit_rows: int
    draft_seed: int
    scheduling: Scheduling = field(default_factory=Scheduling)
    priority: frozenset[int] = frozenset()  # places in ``requests``


def alone(backend: Backend, prompt: NDArray[np.int32], sampling: SamplingParams) -> Alone:
    """Token by token on ``backend``, which should be the portable path with one thread."""
    sampler = compiled.sampler_factory(backend.vocab_size, backend.isa)(Request(prompt_ids=prompt, sampling=sampling))
    table = np.arange(backend.kv_blocks, dtype=np.int32)[None, :]
    zero = np.zeros(1, dtype=np.int32)
    ids, rows = prompt.tolist(), []
    for position in range(len(prompt) + sampling.max_tokens - 1):
        one = np.array([ids[position]], dtype=np.int32)
        where = np.array([position], dtype=np.int32)
        row = backend.run(RowBatch(tokens=one, positions=where, sequences=zero, block_tables=table, logit_rows=zero)).copy()
        if position >= len(prompt) - 1:
            rows.append(row[0])
            ids.append(int(sampler.accept(row, NO_DRAFT)[0]))
    return Alone(prompt, sampling, ids[len(prompt) :], np.array(rows))


class Narrow:
    """A back end that takes fewer rows a pass and counts the passes it ran."""

    def __init__(self, inner: Backend, max_rows: int, max_logit_rows: int) -> None:
        self._inner = inner
        self.max_rows, self.max_logit_rows = max_rows, max_logit_rows
        self.passes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        if len(batch.tokens) > self.max_rows or len(batch.logit_rows) > self.max_logit_rows:
            raise AssertionError(f"{len(batch.tokens)} rows, {len(batch.logit_rows)} wanted: over the limits of the back end")
        self.passes += 1
        return self._inner.run(batch)


class AnyLength(DraftPolicy):
    """Takes drafts of any length, by chance: what is right must not depend on what pays."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._rng = np.random.default_rng(seed)

    def choose(self, offers: Sequence[Offer], *, base_rows: int, max_rows: int) -> list[int]:
        room = max_rows - base_rows
        lengths = []
        for offer in offers:
            lengths.append(int(self._rng.integers(0, min(offer.available, room) + 1)) if room > 0 else 0)
            room -= lengths[-1]
        return lengths


@dataclass(slots=True)
class Seen:
    """What happened over all schedules, so that a test can tell whether it tried anything."""

    drafted: int = 0
    accepted: int = 0
    hits: int = 0
    shared_passes: int = 0
    preemptions: int = 0
    rides: int = 0
    declined: int = 0


class NoText:
    """Stands for a tokenizer where text is not of interest."""

    special_ids: frozenset[int] = frozenset()

    def token_bytes(self, token_id: int) -> bytes:
        return b"."


@dataclass(slots=True)
class Hall:
    """The requests of one model and its back ends."""

    name: str
    requests: list[Alone]
    backends: dict[tuple[str, int], Backend]
    tally: Tally
    context: int
    seen: Seen = field(default_factory=Seen)

    def run(self, company: Company) -> None:
        """Raises :class:`BitsDifferError` when a request does not get its own tokens and rows."""
        inner = self.backends[company.isa, company.threads]
        backend = Narrow(inner, company.max_rows, company.max_logit_rows)
        engine = Engine(
            backend,  # type: ignore[arg-type]
            NoText(),
            context=self.context,
            end_ids=(),
            levers=company.levers,
            make_sampler=compiled.sampler_factory(inner.vocab_size, inner.isa),
            sources=compiled.free_sources(),
            describe=compiled.describer(inner.isa),
            start_chain=compiled.chain_starter(numerics="any", weights_sha256="none", isa=inner.isa),
            scheduling=company.scheduling,
        )
        engine.drafting.policy = AnyLength(company.draft_seed)
        tiers: list[Tier] = ["priority" if place in company.priority else "standard" for place in range(len(company.requests))]
        arrivals = sorted(zip(company.requests, tiers, strict=True), key=lambda arrival: arrival[0][1])
        running, passes = [], 0
        while arrivals or engine.has_work:
            while arrivals and (arrivals[0][0][1] <= passes or not engine.has_work):
                (index, _), tier = arrivals.pop(0)
                running.append(self._add(engine, self.requests[index % len(self.requests)], tier))
            engine.step()
            passes += 1
        for expected, sequence, rows in running:
            if sequence.error is not None:
                raise sequence.error
            generation = sequence.generation()
            self._check(expected, list(generation.token_ids), rows)
            if generation.digest != expected.digest:
                raise BitsDifferError(f"digest {generation.digest} instead of {expected.digest}")
        self._count(engine, backend.passes)
        self.tally.schedules.add(hash((self.name, company)))

    def _add(self, engine: Engine, expected: Alone, tier: Tier):  # type: ignore[no-untyped-def]
        rows: list[tuple[int, NDArray[np.float32]]] = []
        request = Request(
            prompt_ids=expected.prompt,
            sampling=expected.sampling,
            tier=tier,
            on_logits=lambda position, row: rows.append((position, row.copy())),
            digest=True,
        )
        return expected, engine.add(request), rows

    def _check(self, expected: Alone, tokens: list[int], rows: list[tuple[int, NDArray[np.float32]]]) -> None:
        first = len(expected.prompt) - 1
        if [position for position, _ in rows] != list(range(first, first + len(expected.tokens))):
            raise BitsDifferError(f"rows were reported for positions {[position for position, _ in rows]}")
        for (position, row), truth in zip(rows, expected.rows, strict=True):
            check_row(row, truth, f"position {position}")
            self.tally.add(row)
        if tokens != expected.tokens:
            raise BitsDifferError(f"tokens {tokens} instead of {expected.tokens}")

    def _count(self, engine: Engine, passes: int) -> None:
        evidence = engine.evidence
        self.tally.passes += passes
        self.seen.drafted += evidence.speculation.drafted
        self.seen.accepted += evidence.speculation.accepted
        self.seen.hits += evidence.prefix_cache.hits
        self.seen.shared_passes += evidence.batching.shared_passes
        self.seen.preemptions += evidence.passes.preemptions
        self.seen.rides += evidence.tiers.rides_granted
        self.seen.declined += evidence.tiers.rides_declined
