"""The main job: runs each mode on a workload and answers, per mode, whether it is still the same model and what a user gains.

Each mode lives in a worker process of its own. First the proof, untimed: default runs every prompt twice (A against A), every other mode
three times (alone, in company, and in company again on what that left behind), and all logits of all generated positions are compared as
bytes. A mode that owes tolerances instead of default's bits is compared with its own first pass there, and with default's distributions on
the texts of its contract. Then the timing: modes alternate prompt by prompt, with every store cleared before each generation, until the
rounds or the time are up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftsure.engine.activation import not_active_line
from swiftsure.engine.load_options import LoadOptions
from swiftsure.engine.modes import MODES, mode_spec
from swiftsure.engine.threads import NeighbourLook, ThreadChoice, choose_threads
from swiftsure.errors import SwiftsureError, UsageError
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import utc_now
from swiftsure.signals import terminate_as_interrupt
from swiftsure.verify.proving.builtin import builtin_workload
from swiftsure.verify.proving.client import WORKER
from swiftsure.verify.proving.mode_run import BASE, ModeRun, check_modes, start_worker
from swiftsure.verify.proving.proof import examine, groups, prove_group
from swiftsure.verify.proving.result import ProveResult
from swiftsure.verify.proving.screen import Screen
from swiftsure.verify.proving.summary import finish_mode, summarise
from swiftsure.verify.proving.timing import Clock, time_rounds
from swiftsure.verify.proving.upstream_column import compare_upstream, upstream_contract
from swiftsure.verify.proving.workload import Prompt, read_prompts
from swiftsure.verify.tolerance import measure_contract, measure_tasks, owed_contracts
from swiftsure.verify.upstream.agreement import require_upstream

if TYPE_CHECKING:
    from rich.console import Console

    from swiftsure.verify.contracts.contract import Contract

DEFAULT_BUDGET_S = 100.0
MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveOptions:
    """``modes``: those that decide the exit code (``None``: every mode that ran). ``rounds``: exactly so many timed rounds; ``None``: as
    many as fit into ``time_budget_s`` seconds from the start, at least one and at most ten (with ``full``: ten, whatever that takes)."""

    model: str = "smollm2-135m-instruct"
    modes: tuple[str, ...] | None = None
    prompts: Path | None = None
    full: bool = False
    rounds: int | None = None
    time_budget_s: float = DEFAULT_BUDGET_S
    load: LoadOptions = field(default_factory=LoadOptions)  # a draft is for the modes that speculate
    upstream: bool = False
    upstream_contract: Path | None = None  # instead of Swiftsure's own; asks for the comparison
    tasks: bool = True  # answer the items of the contracts' tasks; without, a mode that owes a contract stays INCONCLUSIVE
    thread_choice: ThreadChoice | None = None  # made once, by prove: all workers run with the same threads
    arguments: tuple[str, ...] = ()  # the command line, for the run record

    def __post_init__(self) -> None:
        for name in self.modes or ():
            mode_spec(name)
        if self.modes is not None and not self.modes:
            raise UsageError("modes must name at least 1 mode")
        if self.rounds is not None and self.rounds < 1:
            raise UsageError(f"rounds must be at least 1, got {self.rounds}")
        if not self.time_budget_s > 0:
            raise UsageError(f"time_budget_s must be above 0, got {self.time_budget_s}")

    @property
    def compares_upstream(self) -> bool:
        return self.upstream or self.upstream_contract is not None

    def load_in(self, mode: str) -> LoadOptions:
        return self.load if "speculation" in mode_spec(mode).levers else replace(self.load, draft=None)

    def workload(self) -> tuple[Prompt, ...]:
        return read_prompts(self.prompts) if self.prompts is not None else builtin_workload(full=self.full)


def prove(options: ProveOptions, *, console: Console | None = None, worker: Sequence[str] = WORKER) -> ProveResult:
    """Runs the main job. Progress and the workers' ACTIVE, LEVER and EXIT lines go to ``console`` (standard error by default).

    ``worker`` is the command that starts a worker process. Raises ``SwiftsureError`` when default itself cannot run, when the model or the
    prompts cannot be used, on Ctrl-C and on SIGTERM; a mode other than default that breaks is a verdict, not an exception.
    """
    began = time.perf_counter()
    choice = choose_threads(options.load.threads, look=NeighbourLook())
    options = replace(options, load=replace(options.load, threads=choice.threads), thread_choice=choice)
    prompts = options.workload()
    contract = None
    if options.compares_upstream:
        require_upstream()
        contract = upstream_contract(options.upstream_contract)  # what must be preserved is decided before anything runs
    try:
        with terminate_as_interrupt(), Screen(console) as screen, ExitStack() as stack:
            return _prove(options, prompts, contract, screen, stack, worker, began)
    except KeyboardInterrupt:
        raise SwiftsureError("interrupted: the workers were ended, and nothing was proved") from None


def _prove(
    options: ProveOptions,
    prompts: Sequence[Prompt],
    of_upstream: Contract | None,
    screen: Screen,
    stack: ExitStack,
    worker: Sequence[str],
    began: float,
) -> ProveResult:
    created, machine = utc_now(), read_machine()
    info = _model_info(options, screen)
    clock = Clock(began=time.perf_counter(), budget_s=None if options.full or options.rounds else options.time_budget_s)
    runs = check_modes(options, tuple(MODES))
    for run in runs.values():
        if run.reason is not None:
            screen.line(not_active_line(run.name, run.reason))
        else:
            start_worker(run, options, worker=worker, screen=screen, stack=stack)
    examine(runs[BASE].worker(), prompts)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="swiftsure-prove-")))
    advance = screen.counter("proof: comparing all logits", 2 * len(prompts))
    for group in groups(prompts):
        prove_group(group, runs, folder, advance)
    _judge_base(runs, screen)
    for run, contract in owed_contracts(runs):
        advance = screen.counter(f"contract of {run.name}: comparing distributions", len(contract.texts))
        measure_contract(runs[BASE], run, contract, folder, advance)
        if options.tasks and contract.tasks and run.contract.get("kept"):
            advance = screen.counter(f"tasks of {run.name}: answering items", sum(rules.asked for rules in contract.tasks))
            measure_tasks(runs[BASE], run, contract, advance)
    truths = runs[BASE].truths
    rounds = options.rounds or MOST_ROUNDS
    probes = time_rounds(runs, prompts, rounds=rounds, clock=clock, buffer_bytes=_token_bytes(info), screen=screen)
    for run in runs.values():
        finish_mode(run, prompts=len(prompts), wall_s=time.perf_counter() - began, screen=screen)
    upstream = compare_upstream(of_upstream, options, info, truths, runs[BASE].loaded["threads"], screen)
    return summarise(
        runs,
        options=options,
        prompts=prompts,
        truths=truths,
        info=info,
        machine=machine,
        probes=probes,
        upstream=upstream,
        created=created,
        wall_s=time.perf_counter() - began,
    )


def _model_info(options: ProveOptions, screen: Screen) -> dict[str, Any]:
    """Fetches the model if need be, so that workers find it, and reads its pins."""
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.model import open_model

    with open_model(resolve(options.model, offline=options.load.offline, progress=screen.fetching)) as model:
        return model.info()


def _judge_base(runs: dict[str, ModeRun], screen: Screen) -> None:
    """A against A: where default differs from itself, no mode can claim its bits."""
    base = runs[BASE]
    if base.proof.failure is None:
        return
    for run in runs.values():
        if run is not base and run.running:
            reason = f"default differs from itself on this machine ({base.proof.failure}), so there are no bits to keep"
            screen.line(not_active_line(run.name, reason))
            run.retire(reason)


def _token_bytes(info: Mapping[str, Any]) -> int:
    """The size of the buffer whose reading is the memory wall: the weights that a token reads."""
    return max(int(info["decode_bytes_per_token"]), 4096)
