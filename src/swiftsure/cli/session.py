"""One run in one mode: load, ACTIVE, the work, LEVER and EXIT lines, and the way out when something fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from swiftsure.cli.console import ProgressBar, note
from swiftsure.errors import ContractError, NotActiveError, UnprovedError

if TYPE_CHECKING:
    from swiftsure import LLM
    from swiftsure.engine.activation import Status
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.engine.scheduling import Scheduling


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """Which model, in which mode (None: ``SWIFTSURE_MODE``, else default), and how."""

    model: str
    mode: str | None
    options: LoadOptions
    scheduling: Scheduling | None = None


@dataclass(slots=True)
class Tally:
    """What a work has done so far: the ``items=done/total`` of the EXIT line."""

    done: int = 0
    total: int = 0


Work = Callable[["LLM", Tally], None]


def load(request: LoadRequest) -> LLM:
    """Loads the model, with a progress bar when that takes long."""
    import swiftsure

    with ProgressBar("loading") as progress:
        keywords = request.options.keywords()
        return swiftsure.load(request.model, mode=request.mode, scheduling=request.scheduling, **keywords, progress=progress)


def run_in_mode(request: LoadRequest, work: Work, *, fall_back: bool, allow_fallback: bool) -> int:
    """Runs ``work`` on the loaded model and returns the exit code.

    With ``fall_back`` a mode that cannot engage, stays unproved or breaks its contract is followed, openly, by a run in ``default``;
    that still ends with 3 unless ``allow_fallback``.
    """
    from swiftsure.signals import terminate_as_interrupt

    with terminate_as_interrupt():
        return _run_in_mode(request, work, fall_back=fall_back, allow_fallback=allow_fallback)


def _run_in_mode(request: LoadRequest, work: Work, *, fall_back: bool, allow_fallback: bool) -> int:
    from swiftsure.engine.activation import resolve_mode

    mode = resolve_mode(request.mode)
    try:
        return _attempt(request, work, mode)
    except (NotActiveError, UnprovedError, ContractError) as error:
        if not fall_back or mode == "default":
            if isinstance(error, NotActiveError):  # said already, as a NOT ACTIVE line
                return error.exit_code
            raise
        note(f"FALLBACK from={mode} to=default reason={'_'.join(str(error).split())}")
    os.environ.pop("SWIFTSURE_MODE", None)  # the mode that failed; the fallback is openly another one
    plain = replace(request, mode="default", options=replace(request.options, without=(), draft=None))
    code = _attempt(plain, work, "default")
    return code if code or allow_fallback else NotActiveError.exit_code


def _attempt(request: LoadRequest, work: Work, mode: str) -> int:
    from swiftsure.engine.activation import exit_line, not_active_line

    began = time.perf_counter()
    try:
        llm = load(request)
    except KeyboardInterrupt:
        note(exit_line(mode, "failed", 0, 0, time.perf_counter() - began))
        raise
    except NotActiveError as error:
        note(not_active_line(mode, str(error)))
        raise
    with llm:
        note(llm.activation.active_line())
        if llm.memory.fitted:
            note(f"note: {llm.memory.reason}")
        for text in llm.load_notes:
            note(f"note: {text}")
        started, tally = time.perf_counter(), Tally()
        status: Status = "failed"
        try:
            work(llm, tally)
            status = llm.activation.status
        finally:
            activation = llm.activation
            for line in activation.lever_lines():
                note(line)
            note(activation.exit_line(status, tally.done, tally.total, time.perf_counter() - started))
        if activation.unproved:
            raise UnprovedError("; ".join(activation.unproved))
    return 0
