"""The processes of a load, from their parent's side."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from time import perf_counter
from types import TracebackType
from typing import Any, Self

from swiftsure import errors
from swiftsure.bench.client.messages import Failed, FromParent, FromProcess, Plan, ProcessFacts, Ready, Start, Stop
from swiftsure.errors import ContractError

_LEAD_S = 0.02  # between the word to start and the start, so that it reaches all processes in time


class LoadProcess:
    """One process in a session of its own, so that Ctrl-C in a terminal reaches the parent alone."""

    def __init__(self, plan: Plan) -> None:
        self.target = plan.target
        module = "engine_process" if plan.target.interface == "engine" else "load_process"
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"swiftsure.bench.client.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin as stdin, self._process.stdout as stdout:
            self._to: Connection[FromParent, FromProcess] = Connection(os.dup(stdin.fileno()), readable=False)
            self.pipe: Connection[FromParent, FromProcess] = Connection(os.dup(stdout.fileno()), writable=False)
        self.facts: ProcessFacts | None = None
        self.tell(plan)

    def take_up(self, plan: Plan) -> Self:
        """Another load on the engine that it holds."""
        self.facts = None
        self.tell(plan)
        return self

    def tell(self, message: FromParent) -> None:
        with suppress(BrokenPipeError):  # it died, which the other pipe tells
            self._to.send(message)

    def hear(self) -> FromProcess:
        """Its next message. Raises what it failed with, and ContractError where it died."""
        try:
            message = self.pipe.recv()
        except EOFError:
            code = self._process.wait()
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
            raise ContractError(f"a process of the load {how} in the middle of it") from None
        if isinstance(message, Failed):
            raise getattr(errors, message.kind, ContractError)(message.words)
        if isinstance(message, ProcessFacts):
            self.facts = message
        return message

    def close(self) -> None:
        """Ends the process, done or not."""
        if self.facts is None:
            self._process.kill()
        self._to.close()
        self.pipe.close()
        self._process.wait()


class ProcessGroup:
    """All processes of a load. Entered, they are ready; left, they are gone."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._processes: list[LoadProcess] = []

    def __enter__(self) -> Self:
        try:
            self._processes += map(_process_for, self._plans)
            for process in self._processes:
                ready = process.hear()
                assert isinstance(ready, Ready)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def start(self) -> None:
        at = perf_counter() + _LEAD_S
        for process in self._processes:
            process.tell(Start(at=at))

    def stop(self) -> None:
        """Asks all to end what they are at; their facts still come."""
        for process in self._processes:
            process.tell(Stop())

    @property
    def running(self) -> bool:
        return any(process.facts is None for process in self._processes)

    @property
    def facts(self) -> list[ProcessFacts]:
        return [process.facts for process in self._processes if process.facts is not None]

    def messages(self, timeout_s: float) -> Iterator[tuple[int, FromProcess]]:
        """What has come by now, one message a process, with the process's number; waits at most so long for the first."""
        pipes: dict[Any, int] = {process.pipe: number for number, process in enumerate(self._processes) if process.facts is None}
        for pipe in wait(list(pipes), timeout_s):
            yield pipes[pipe], self._processes[pipes[pipe]].hear()

    def _close(self) -> None:
        for process in self._processes:
            if process.target.interface == "engine" and process.facts is not None:
                _keep(process)
            else:
                process.close()


_spare: list[LoadProcess] = []
"""The last built-in engine, at most one: its model stays loaded and its caches know what it was asked, over the loads of one round."""


def _process_for(plan: Plan) -> LoadProcess:
    if _spare and _spare[0].target == plan.target:
        return _spare.pop().take_up(plan)
    close_spare()
    return LoadProcess(plan)


def _keep(process: LoadProcess) -> None:
    close_spare()
    _spare.append(process)


@atexit.register
def close_spare() -> None:
    """Ends the built-in engine that is kept for the next load, if there is one."""
    while _spare:
        _spare.pop().close()
