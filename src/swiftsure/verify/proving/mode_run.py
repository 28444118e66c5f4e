"""One mode while ``prove`` runs: its worker, what was compared and what was timed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from swiftsure.engine.activation import MODE_VARIABLE, not_active_line
from swiftsure.engine.modes import mode_spec
from swiftsure.errors import NotActiveError
from swiftsure.verify.compare.logit_files import BitComparison
from swiftsure.verify.proving.client import WorkerClient, WorkerError
from swiftsure.verify.proving.measure import Sample

if TYPE_CHECKING:
    from swiftsure.verify.proving.prove import ProveOptions
    from swiftsure.verify.proving.screen import Screen

BASE = "default"


@dataclass(slots=True)
class Proof:
    """What was compared for one mode with its reference, and the first thing that went wrong. The reference is default's first pass for
    modes that keep its bits, and the mode's own first pass for the others."""

    bits_compared: int = 0
    bits_differing: int = 0
    rows: int = 0
    passes: dict[str, int] = field(default_factory=dict)  # name -> bits compared
    failure: str | None = None
    failed_prompts: set[str] = field(default_factory=set)

    def add(self, name: str, prompt: str, comparison: BitComparison, failure: str | None) -> None:
        self.bits_compared += comparison.bits_compared
        self.bits_differing += comparison.bits_differing
        self.rows += comparison.rows_compared
        self.passes[name] = self.passes.get(name, 0) + comparison.bits_compared
        if failure is not None:
            self.fail(failure, prompt)

    def fail(self, reason: str, prompt: str | None = None) -> None:
        """Keeps the first reason, and counts the prompt as failed."""
        self.failure = self.failure or reason
        if prompt is not None:
            self.failed_prompts.add(prompt)

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "bits_by_pass": dict(self.passes), "first_failure": self.failure}


@dataclass(slots=True, eq=False)
class ModeRun:
    """Without a client the mode does not run. ``reason`` says why it is not active; a mode that broke has ``proof.failure``."""

    name: str
    client: WorkerClient | None = None
    reason: str | None = None
    loaded: dict[str, Any] = field(default_factory=dict)
    proof: Proof = field(default_factory=Proof)
    samples: list[Sample] = field(default_factory=list)
    levers: dict[str, dict[str, Any]] = field(default_factory=dict)
    unproved: tuple[str, ...] = ()  # reasons, one for each lever without evidence
    peak_rss_bytes: int | None = None
    truths: list[dict[str, Any]] = field(default_factory=list)  # per prompt the answer that every other pass of this mode must repeat
    contract: dict[str, Any] = field(default_factory=dict)  # what was found where the mode owes tolerances, see verify/tolerance.py

    @property
    def keeps_bits(self) -> bool:
        """It owes the bits of default; otherwise its own, in whatever company, and a contract."""
        return mode_spec(self.name).keeps_bits

    @property
    def running(self) -> bool:
        return self.client is not None

    @property
    def sound(self) -> bool:
        """Running, and nothing that it did so far broke its promise."""
        return self.running and self.proof.failure is None

    def worker(self) -> WorkerClient:
        if self.client is None:
            raise RuntimeError(f"mode {self.name} does not run")
        return self.client

    def retire(self, reason: str) -> None:
        """The mode turned out not to be available; its worker ends."""
        self.reason = reason
        self._end()

    def break_off(self, error: WorkerError) -> None:
        """The worker refused or died in the middle: the mode failed. For default that is the end of the whole run."""
        if self.name == BASE:
            raise error
        self.proof.fail(str(error))
        self._end()

    def _end(self) -> None:
        if self.client is not None:
            self.client.kill()
            self.client = None


def check_modes(options: ProveOptions, names: Iterable[str]) -> dict[str, ModeRun]:
    """A run per mode, with the reason where ``check`` says that it cannot be activated. Raises NotActiveError when default cannot."""
    from swiftsure.engine.checking import check

    runs = {}
    for name in names:
        with _no_mode_variable():
            result = check(options.model, name, **options.load_in(name).keywords())
        reason = (result.reason or "check gave no reason").removeprefix(f"mode {name} is not active: ")
        runs[name] = ModeRun(name=name, reason=None if result.active else reason)
    if runs[BASE].reason is not None:
        raise NotActiveError(f"mode {BASE} is not active: {runs[BASE].reason}")
    return runs


@contextmanager
def _no_mode_variable() -> Iterator[None]:
    """Hides SWIFTSURE_MODE: here every mode is named in turn, and a second name could only contradict it."""
    value = os.environ.pop(MODE_VARIABLE, None)
    try:
        yield
    finally:
        if value is not None:
            os.environ[MODE_VARIABLE] = value


def start_worker(run: ModeRun, options: ProveOptions, *, worker: Sequence[str], screen: Screen, stack: ExitStack) -> None:
    """Starts the mode's process and loads the model. A mode that says NotActiveError there is not active; default must load."""
    screen.show(f"loading in mode {run.name}", 0, None)
    run.client = stack.enter_context(WorkerClient(run.name, on_line=screen.line, command=worker))
    try:
        run.loaded = run.client.ask("load", model=options.model, mode=run.name, options=options.load_in(run.name).keywords())
    except WorkerError as error:
        if error.kind == "NotActiveError" and run.name != BASE:
            screen.line(not_active_line(run.name, str(error)))
            run.retire(str(error))
        else:
            run.break_off(error)
