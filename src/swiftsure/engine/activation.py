"""What is active, and the proof that it was: the lines of design section 3, machine-readable, ``key=value`` without blanks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from swiftsure.engine.drafting.attach import DraftInfo
from swiftsure.engine.evidence import Evidence
from swiftsure.engine.modes import LEVERS, LeverSpec, mode_spec
from swiftsure.errors import NotActiveError, UsageError

MODE_VARIABLE = "SWIFTSURE_MODE"
DEFAULT_MODE = "default"

State: TypeAlias = Literal["on", "off", "idle"]
Status: TypeAlias = Literal["ok", "unproved", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverState:
    """One lever so far. ``idle``: no occasion arose; ``off``: switched off by ``without``. ``counts`` is its evidence."""

    name: str
    state: State
    occasions: int
    counts: dict[str, int]
    unproved: str | None = None  # why its evidence is missing

    def line(self) -> str:
        counts = "".join(f" {name}={value}" for name, value in self.counts.items())
        return f"LEVER name={self.name} state={self.state} occasions={self.occasions}{counts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A snapshot: which mode runs on what, with the evidence so far."""

    mode: str
    model: str
    weights_sha256: str
    numerics: str
    isa: str
    threads: int
    levers: tuple[str, ...]
    levers_off: tuple[str, ...] = ()
    lever_states: tuple[LeverState, ...] = ()
    passes: dict[str, int] = field(default_factory=dict)
    tiers: dict[str, float] = field(default_factory=dict)
    draft: DraftInfo | None = None  # beside the look-up that speculation always has

    @property
    def unproved(self) -> tuple[str, ...]:
        """One reason for each lever whose occasions arose while its evidence is missing."""
        return tuple(state.unproved for state in self.lever_states if state.unproved)

    @property
    def status(self) -> Status:
        """``unproved`` or ``ok``; only the caller knows whether the work itself failed."""
        return "unproved" if self.unproved else "ok"

    def active_line(self) -> str:
        off = f" levers_off={','.join(self.levers_off)}" if self.levers_off else ""
        draft = f" {self.draft.text()}" if self.draft else ""
        return (
            f"ACTIVE mode={self.mode} model={_word(self.model)} weights=sha256:{self.weights_sha256} numerics={self.numerics} "
            f"isa={self.isa} threads={self.threads} levers={','.join(self.levers) or 'none'}{off}{draft}"
        )

    def lever_lines(self) -> list[str]:
        return [state.line() for state in self.lever_states]

    def exit_line(self, status: Status, done: int, total: int, wall_s: float) -> str:
        return exit_line(self.mode, status, done, total, wall_s)

    def to_dict(self) -> dict[str, Any]:
        levers = {s.name: {"state": s.state, "occasions": s.occasions, **s.counts} for s in self.lever_states}
        values = asdict(self)
        del values["lever_states"], values["levers"], values["levers_off"]
        return {**values, "levers_on": list(self.levers), "levers_off": list(self.levers_off), "levers": levers, "status": self.status}


def exit_line(mode: str, status: Status, done: int, total: int, wall_s: float) -> str:
    return f"EXIT mode={mode} status={status} items={done}/{total} wall_s={wall_s:.1f}"


def not_active_line(mode: str, reason: str) -> str:
    return f"NOT ACTIVE mode={mode} reason={_word(reason.removeprefix(f'mode {mode} is not active: '))}"


def lever_states(on: Iterable[str], off: Iterable[str], evidence: Evidence) -> tuple[LeverState, ...]:
    """The states of a mode's levers, in the order of ``LEVERS``."""
    on, off = frozenset(on), frozenset(off)
    return tuple(_lever_state(LEVERS[name], name in off, evidence) for name in LEVERS if name in on or name in off)


def resolve_mode(mode: str | None) -> str:
    """The named mode: the argument, else ``SWIFTSURE_MODE``, else ``default``.

    Raises UsageError for an unknown name, and when argument and variable disagree.
    """
    wanted = os.environ.get(MODE_VARIABLE) or None
    if mode is not None:
        mode_spec(mode)
    if wanted is not None:
        try:
            mode_spec(wanted)
        except UsageError as error:
            raise UsageError(f"{MODE_VARIABLE}: {error}") from None
    if mode is not None and wanted is not None and mode != wanted:
        raise UsageError(f"mode {mode!r} and {MODE_VARIABLE}={wanted!r} disagree; name one mode")
    return mode or wanted or DEFAULT_MODE


def require_available(mode: str) -> None:
    """Raises NotActiveError with the reason if this release has no such mode."""
    spec = mode_spec(mode)
    if spec.reason is not None:
        raise NotActiveError(f"mode {mode} is not active: {spec.reason}")


def _lever_state(spec: LeverSpec, is_off: bool, evidence: Evidence) -> LeverState:
    counts = evidence.of(spec.name)
    occasions = counts.pop("occasions")
    if is_off:
        return LeverState(name=spec.name, state="off", occasions=occasions, counts=counts)
    due = occasions - (counts[spec.excused] if spec.excused else 0)
    missing = due > 0 and counts[spec.proof] == 0
    return LeverState(
        name=spec.name,
        state="on" if occasions else "idle",
        occasions=occasions,
        counts=counts,
        unproved=f"lever {spec.name}: {due} occasions ({spec.occasion}) but {spec.proof}=0" if missing else None,
    )


def _word(text: str) -> str:
    """A value without blanks."""
    return re.sub(r"\s+", "_", text.strip()) or "none"
