"""From a model's name to a loaded model: pins, machine, mode, levers, memory plan, back end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from swiftsure.engine.activation import require_available, resolve_mode
from swiftsure.engine.drafting.attach import BuiltDraft, OpenDraft, build_source, open_draft, require_speculation
from swiftsure.engine.load_options import LoadOptions
from swiftsure.engine.memory import MemoryPlan, available_memory, plan_memory
from swiftsure.engine.modes import LEVERS, EngineFacts, active_levers, mode_spec
from swiftsure.engine.numerics import Numerics, packed_weight_bytes, plan_numerics
from swiftsure.engine.threads import AUTO, NeighbourLook, ThreadChoice, choose_threads
from swiftsure.errors import NotActiveError, UsageError
from swiftsure.models.schedule import Matmul, Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from swiftsure.engine.backend import Backend
    from swiftsure.engine.engine import Engine
    from swiftsure.engine.llm import LLM
    from swiftsure.engine.scheduling import Scheduling
    from swiftsure.models.cache import Progress
    from swiftsure.models.licences import AcceptLicence
    from swiftsure.models.model import Model

MAX_ROWS = 256  # rows a pass: the "large passes" in which prompts are read
MAX_LOGIT_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is decided before a back end is built."""

    mode: str
    levers: tuple[str, ...]
    levers_off: tuple[str, ...]
    isa: str
    threads: ThreadChoice
    schedule: Schedule
    memory: MemoryPlan
    numerics: Numerics
    draft: OpenDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What it takes to find a model's files, and to fetch them where they are not there; see :func:`load`."""

    offline: bool
    progress: Progress | None
    accept_licence: AcceptLicence

    def open(self, model: str | Path) -> Model:
        from swiftsure.models.catalogue import resolve
        from swiftsure.models.model import open_model

        return open_model(resolve(model, offline=self.offline, progress=self.progress, accept_licence=self.accept_licence))

    def open_draft(self, draft: str | Path | None, target: Model) -> OpenDraft | None:
        return open_draft(draft, target, offline=self.offline, progress=self.progress, accept_licence=self.accept_licence)


class Phases:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[name] = perf_counter() - start


def load(
    model: str | Path,
    *,
    mode: str | None = None,
    threads: int | str | None = AUTO,
    context: int | None = None,
    kv_memory: int | str | None = None,
    kv_contexts: int = 1,
    isa: str | None = None,
    without: Iterable[str] = (),
    draft: str | Path | None = None,
    offline: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
    accept_licence: AcceptLicence = False,
    scheduling: Scheduling | None = None,
) -> LLM:
    """Loads a model in a mode.

    model: a name of the catalogue, a path, or ``hf:org/name``. mode: ``default`` or ``exact``; None: ``SWIFTSURE_MODE``, else ``default``.
    threads: a number, or "auto" (None is the same): chosen by cores, affinity, quota and neighbours, see engine/threads.py.
    context: most tokens of a request; None: the model's, or what fits memory.
    kv_memory: limit for the key-value cache, bytes or text like ``"512MB"``. kv_contexts: how many requests of the whole context it is to
    hold at once, as far as the limit goes; memory is taken as it is first used.
    isa: instruction set; None: ``SWIFTSURE_ISA``, else the best. without: levers to leave off.
    draft: what speculates beside the look-up, a smaller model of the same vocabulary or a draft head made for this model; None or "none":
    neither. offline: never touch the network. cache: read
    packed weights and costs of rows that an earlier load kept, and keep what this one makes (checked, bounded in size: see
    engine/packed_store.py); False: neither. progress: called with bytes done and bytes in all while a file is fetched or hashed, and again
    while weights are packed. accept_licence: True agrees to the terms of a model of the catalogue that asks for that before its first
    download (so does ``SWIFTSURE_ACCEPT_LICENCE=1``); a callback (name, licence) -> bool is asked; an agreement is recorded.
    scheduling: how requests share passes; None: as :class:`~swiftsure.engine.scheduling.Scheduling` has it.

    Raises UsageError, the ModelError family (LicenceError: nobody agreed), NotActiveError (mode, lever or instruction set) and
    CapacityError (memory).
    """
    options = LoadOptions(
        threads=threads,
        context=context,
        kv_memory=kv_memory,
        kv_contexts=kv_contexts,
        isa=isa,
        without=without,
        draft=draft,
        offline=offline,
        cache=cache,
    )
    mode = resolve_mode(mode)
    require_available(mode)
    fetch = Fetching(offline=offline, progress=progress, accept_licence=accept_licence)
    speculates = require_speculation(options.draft, mode, active_levers(mode_spec(mode), options.without)[0])
    if scheduling is not None and scheduling.max_running > MAX_LOGIT_ROWS:
        raise UsageError(f"max_running must be at most {MAX_LOGIT_ROWS}, the rows with logits of a pass, got {scheduling.max_running}")
    phases, look = Phases(), NeighbourLook()
    with phases.timed("resolve_s"):
        opened = fetch.open(model)
    beside: OpenDraft | None = None
    try:
        with ThreadPoolExecutor(1) as pool:  # builds the tokenizer beside the rest, which leaves the interpreter free
            tokenizer = pool.submit(lambda: opened.tokenizer)
            with phases.timed("plan_s"):
                beside = fetch.open_draft(options.draft, opened) if speculates else None
                plan = make_plan(opened, mode, options, draft=beside, look=look)
            backend, notes = _cpu_backend(opened, plan, phases, cache=cache, progress=progress)
            try:
                with phases.timed("tokenizer_s"):
                    tokenizer.result()
                opened.check_unchanged()  # last: a folder's tokenizer is read from a file of its own
                return assemble(opened, backend, plan, phases, (*opened.files.notes, *notes), cache=cache, scheduling=scheduling)
            except BaseException:
                backend.close()
                raise
    except BaseException:
        if beside is not None:
            beside.close()
        opened.close()
        raise


def make_plan(
    model: Model,
    mode: str,
    options: LoadOptions | None = None,
    *,
    draft: OpenDraft | None = None,
    look: NeighbourLook | None = None,
) -> Plan:
    """Decides; allocates nothing. ``draft``: the one that ``options`` name, opened. ``look``: at other processes, begun before the model
    was opened. Raises as :func:`load`."""
    from swiftsure import kernels
    from swiftsure.engine.cpu import require_runnable

    options = options or LoadOptions()
    levers, levers_off = active_levers(mode_spec(mode), options.without)
    schedule = model.schedule()
    require_runnable(schedule)
    numerics = plan_numerics(schedule, model.tensors, levers)
    memory = plan_memory(
        schedule,
        kv_bits=numerics.kv_bits,
        weight_bytes=packed_weight_bytes(schedule, model.tensors, numerics),
        available=available_memory(),
        context=options.context,
        kv_memory=options.kv_memory,
        kv_contexts=options.kv_contexts,
        draft_weight_bytes=draft.info.weight_bytes if draft else 0,
        draft_kv_bytes_per_token=draft.info.kv_bytes_per_token if draft else 0,
    )
    facts = EngineFacts(
        max_rows=MAX_ROWS,
        max_logit_rows=MAX_LOGIT_ROWS,
        kv_blocks=memory.kv_blocks,
        matmul_columns=tuple(model.tensors.info(op.weights[0]).shape[1] for op in schedule.ops if isinstance(op, Matmul)),
    )
    for name in levers:
        unmet = LEVERS[name].unmet(facts)
        if unmet is not None:
            raise NotActiveError(f"lever {name} cannot engage: {unmet}; leave it off with without={name}")
    return Plan(
        mode=mode,
        levers=levers,
        levers_off=levers_off,
        isa=kernels.resolve_isa(options.isa),
        threads=choose_threads(options.threads, look=look),
        schedule=schedule,
        memory=memory,
        draft=draft,
        numerics=numerics,
    )


def assemble(
    model: Model,
    backend: Backend,
    plan: Plan,
    phases: Phases,
    notes: Sequence[str] = (),
    *,
    cache: bool = False,
    scheduling: Scheduling | None = None,
) -> LLM:
    """A loaded model from its parts. ``notes``: what a user should know of how it was loaded. The rest: as for :func:`load`."""
    from swiftsure.engine import compiled
    from swiftsure.engine.constraints.compiler import GrammarCompiler
    from swiftsure.engine.engine import Engine
    from swiftsure.engine.llm import LLM

    tokenizer = model.tokenizer
    built: BuiltDraft | None = None
    if plan.draft is not None:
        with phases.timed("draft_s"):
            built = build_source(plan.draft, model, plan.schedule, backend, kv_blocks=plan.memory.kv_blocks, cache=cache)
    grammars = GrammarCompiler(tokenizer, vocab_size=backend.vocab_size, end_ids=tokenizer.eos_ids)
    engine = Engine(
        backend,
        tokenizer,
        context=plan.memory.context,
        end_ids=tokenizer.eos_ids,
        levers=plan.levers,
        make_sampler=compiled.sampler_factory(backend.vocab_size, backend.isa, grammars),
        sources=(*compiled.free_sources(), *((built.source,) if built else ())) if "speculation" in plan.levers else (),
        describe=compiled.describer(backend.isa),
        start_chain=compiled.chain_starter(numerics=backend.numerics, weights_sha256=model.files.sha256, isa=backend.isa),
        scheduling=scheduling,
    )
    if "speculation" in plan.levers:
        with phases.timed("calibrate_s"):
            _calibrate(engine, backend, model, plan, cache=cache)
    return LLM(
        model,
        backend,
        engine,
        mode=plan.mode,
        levers_off=plan.levers_off,
        memory=plan.memory,
        load_phases=phases.seconds,
        load_notes=notes,
        draft=plan.draft.info if plan.draft else None,
        close_with=[part for part in (built and built.backend, plan.draft) if part],
        thread_choice=plan.threads,
        grammars=grammars,
    )


def _calibrate(engine: Engine, backend: Backend, model: Model, plan: Plan, *, cache: bool) -> None:
    """Costs of rows from an earlier start's record, else measured and kept."""
    from swiftsure import __version__, machine
    from swiftsure.engine.calibration import CalibrationKey, keep_costs, known_costs

    if not cache:
        engine.calibrate()
        return
    key = CalibrationKey(
        weights_sha256=model.files.sha256,
        variant=plan.numerics.variant,
        version=__version__,
        numerics=backend.numerics,
        levers=",".join(plan.levers),
        isa=backend.isa,
        threads=backend.threads,
        processor=machine.processor_name(),
    )
    known, began = known_costs(key), perf_counter()
    costs = engine.calibrate(known)
    if costs != known:
        keep_costs(key, costs, took_s=perf_counter() - began, others_busy_cpus=plan.threads.others_busy_cpus)


def _cpu_backend(model: Model, plan: Plan, phases: Phases, *, cache: bool, progress: Progress | None) -> tuple[Backend, tuple[str, ...]]:
    """The back end, and notes on where its packed weights came from; the phases ``packed_*`` say it too."""
    from swiftsure.engine.cpu import CPUBackend
    from swiftsure.engine.packed_store import PackedKey, PackedStore

    store = PackedStore(PackedKey(weights_sha256=model.files.sha256, variant=plan.numerics.variant)) if cache else None
    with phases.timed("pack_s"):
        backend = CPUBackend(
            plan.schedule,
            model.tensors,
            isa=plan.isa,
            threads=plan.threads.threads,
            kv_blocks=plan.memory.kv_blocks,
            max_rows=MAX_ROWS,
            max_logit_rows=MAX_LOGIT_ROWS,
            numerics=plan.numerics,
            progress=progress,
            store=store,
        )
    if store is None:
        return backend, ()
    phases.seconds["pack_s"] -= sum(store.phases_s.values())
    phases.seconds |= store.phases_s
    return backend, tuple(store.notes)
