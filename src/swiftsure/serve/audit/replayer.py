"""The process that computes answers once more: mode default, niceness 19, stopped by a signal whenever somebody waits for an answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from swiftsure.errors import DigestError
from swiftsure.records.machine import peak_rss_bytes
from swiftsure.serve.audit.cases import Case
from swiftsure.serve.engine_process.client import EngineProcess
from swiftsure.serve.jobs import Outcome
from swiftsure.serve.settings import ModelSettings

LOOK_S = 0.02  # how often it is looked whether requests run
NICENESS = 19
_T = TypeVar("_T")


class Replayer:
    """One model's engine in mode default, apart from the one that serves."""

    def __init__(self, settings: ModelSettings, *, context: int, busy: Callable[[], bool], note: Callable[[str], None]) -> None:
        """``context``: of the engine that serves, so that what fitted there fits here. ``busy``: whether requests run."""
        self.model = settings.name
        keywords = {**settings.load, "mode": "default", "without": [], "draft": None, "context": context}
        self._engine = EngineProcess({"model": settings.source, **keywords}, note=note, niceness=NICENESS)
        self._busy = busy

    @property
    def memory_bytes(self) -> int | None:
        """The most that the process has had in memory so far; None where the system does not say."""
        return None if self._engine.pid is None else peak_rss_bytes(str(self._engine.pid))

    async def start(self) -> None:
        """Raises what a load raises."""
        await self._while_idle(self._engine.start())

    async def replay(self, case: Case) -> tuple[tuple[int, ...], Outcome]:
        """The tokens that mode default gives to the same request, as many as were given, and their digest.

        Raises DigestError where the model file is no longer the one that was served, and what an engine raises for a job.
        """
        self._check(case, numerics=True)
        sampling = replace(case.job.sampling, max_tokens=len(case.token_ids), logprobs=None)
        answer = self._engine.submit(replace(case.job, sampling=sampling, tier="standard", deadline_s=None))
        async with answer:
            whole, outcome = await self._while_idle(answer.finish())
        return whole.token_ids, outcome

    async def weigh(self, case: Case) -> list[tuple[list[float], int]]:
        """What mode default makes of the rows that a case's tokens were drawn from: see ``EngineProcess.weigh``.

        Raises DigestError where the model file is no longer the one that was served, and what an engine raises.
        """
        self._check(case, numerics=False)
        wanted = [ids for ids, _ in case.outcome.best]
        return await self._while_idle(self._engine.weigh(case.job.prompt_ids, case.token_ids, wanted))

    def _check(self, case: Case, *, numerics: bool) -> None:
        facts = self._engine.facts
        if facts is None or facts.weights_sha256 != case.facts.weights_sha256 or (numerics and facts.numerics != case.facts.numerics):
            raise DigestError(
                f"the model to replay is not the one that answered: {facts and facts.fingerprint}, not {case.facts.fingerprint}"
            )

    async def stop(self) -> None:
        self._engine.resume()
        await self._engine.stop(reason="the audit is over")

    async def _while_idle(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Awaits ``work`` of the process, which stands still as long as requests run."""
        task = asyncio.create_task(work)
        try:
            while not task.done():
                if self._busy():
                    self._engine.pause()
                else:
                    self._engine.resume()
                await asyncio.wait({task}, timeout=LOOK_S)
            return task.result()
        finally:
            if not task.done():
                self._engine.resume()
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
