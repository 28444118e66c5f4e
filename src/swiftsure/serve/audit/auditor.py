"""Replays finished answers while the server is idle, and acts on the first one that differs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from swiftsure.serve.audit.cases import Case, CaseQueue, picked
from swiftsure.serve.audit.record import first_difference, write_record
from swiftsure.serve.audit.replayer import LOOK_S, NICENESS, Replayer
from swiftsure.serve.audit.tolerance import Distance
from swiftsure.serve.jobs import Outcome

if TYPE_CHECKING:
    from swiftsure.serve.engine_process.client import Answer
    from swiftsure.serve.service import ServedModel, Service
    from swiftsure.serve.settings import AuditSettings


class Auditor:
    """One for the server. Counts: ``audited``, ``mismatches``, ``failures`` (replays that gave no answer), ``waiting``, ``dropped``."""

    def __init__(self, service: Service, settings: AuditSettings, *, note: Callable[[str], None]) -> None:
        self.audited = self.mismatches = self.failures = 0
        self._service = service
        self._settings = settings
        self._note = note
        self._queue = CaseQueue(most_requests=settings.most_requests, most_tokens=settings.most_tokens)
        self._arrived = asyncio.Event()
        self._replayer: Replayer | None = None
        self._used_at = 0.0
        self._distances: dict[str, Distance] = {}  # of models in mode fast
        self._acting: asyncio.Task[None] | None = None  # on what was found

    @property
    def share(self) -> float:
        """Of requests, above 0 and at most 1."""
        return self._settings.share

    @property
    def counts(self) -> dict[str, int]:
        """By the names of their metrics."""
        return {
            "audited_total": self.audited,
            "audit_mismatch_total": self.mismatches,
            "audit_failed_total": self.failures,
            "audit_dropped_total": self._queue.dropped,
            "audit_waiting": len(self._queue),
        }

    @property
    def distances(self) -> Mapping[str, Distance]:
        """How far audited answers of mode fast are from default, by model."""
        return self._distances

    def heard(self, model: ServedModel, answer: Answer) -> None:
        """An answer has ended. Keeps it if it is one of those to audit."""
        outcome, facts = answer.outcome, model.engine.facts
        if outcome is None or facts is None or not answer.token_ids or not picked(answer.job.id, self._settings.share):
            return
        if facts.mode == "fast" and len(outcome.best) != len(answer.token_ids):  # of an engine that has fallen back meanwhile
            return
        case = Case(
            model=model.name,
            facts=facts,
            job=answer.job,
            token_ids=tuple(answer.token_ids),
            outcome=outcome,
            request_id=answer.origin.request_id,
        )
        if self._queue.put(case):
            self._arrived.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                case = await self._next()
                try:
                    await self._audit(case)
                except Exception as error:  # of the replay, not of the answer: the next one may work
                    self.failures += 1
                    self._note(f"audit of request {case.name} failed: {type(error).__name__}: {error}")
                    await self._end_replayer()
        finally:
            if self._acting is not None:  # an engine must not be left between stopped and started
                with contextlib.suppress(Exception):
                    await self._acting
            await self._end_replayer()

    async def _next(self) -> Case:
        """The next case, once no request runs. Ends the process when it was not needed for a while."""
        while True:
            if self._replayer is not None and monotonic() - self._used_at > self._settings.idle_s:
                await self._end_replayer()
            if not len(self._queue):
                self._arrived.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._arrived.wait(), None if self._replayer is None else self._settings.idle_s)
            elif self._service.under_way:
                await asyncio.sleep(LOOK_S)
            else:
                return self._queue.take()

    async def _audit(self, case: Case) -> None:
        model = self._service.served(case.model)
        replayer = await self._replayer_of(model, case)
        if case.facts.mode == "fast":
            rows = await replayer.weigh(case)
            self._used_at = monotonic()
            distance = self._distances.setdefault(model.name, Distance(self._settings.tolerance))
            broken = distance.add(case.outcome.best, rows)
            self.audited += 1
            if broken:
                self.mismatches += 1
                await self._breach(model, case, *_beyond(case, broken, distance))
            return
        token_ids, outcome = await replayer.replay(case)
        self._used_at = monotonic()
        self.audited += 1
        if outcome.digest != case.outcome.digest:
            self.mismatches += 1
            await self._breach(model, case, *_differs(case, token_ids, outcome))

    async def _replayer_of(self, model: ServedModel, case: Case) -> Replayer:
        if self._replayer is not None and self._replayer.model != model.name:
            await self._end_replayer()
        if self._replayer is None:
            replayer = Replayer(
                model.settings, context=case.facts.context, busy=lambda: self._service.under_way > 0, note=lambda text: self._note(text)
            )
            try:
                await replayer.start()
            except BaseException:
                await replayer.stop()
                raise
            self._replayer = replayer
            self._note(
                f"AUDIT model={model.name} process=started mode=default nice={NICENESS} memory_bytes={replayer.memory_bytes or 'unknown'}"
            )
        return self._replayer

    async def _end_replayer(self) -> None:
        replayer, self._replayer = self._replayer, None
        if replayer is not None:
            await replayer.stop()

    async def _breach(self, model: ServedModel, case: Case, place: str, reason: str, found: dict[str, Any]) -> None:
        """One answer broke the mode's promise: nothing that this engine would say is trusted any more."""
        try:
            path = write_record(
                self._settings.records,
                case,
                levers=model.engine.levers,
                found=found,
                pins=model.model.files.pins(),
                with_prompt=self._service.settings.log_prompts,
            )
            self._note(f"AUDIT MISMATCH model={model.name} request={case.name} {place} record={path}")
        except OSError as error:
            self._note(f"AUDIT MISMATCH model={model.name} request={case.name} found={found} (no record: {error})")
        self._queue.discard(lambda waiting: waiting.model == model.name)
        fall_back = self._settings.on_fail == "default" and case.facts.mode != "default"
        self._acting = asyncio.create_task(model.fall_back(reason) if fall_back else model.halt(reason))
        await asyncio.shield(self._acting)


def _differs(case: Case, token_ids: tuple[int, ...], outcome: Outcome) -> tuple[str, str, dict[str, Any]]:
    """Of an answer with other bits than default's: its place, the reason in words, and what the record says."""
    difference = first_difference(case, token_ids, outcome)
    position = difference["position"]
    found = {"digest_served": case.outcome.digest, "digest_replayed": outcome.digest, "first_difference": difference}
    reason = f"an audit found that mode {case.facts.mode} differs from default at position {position} of request {case.name}"
    return f"position={position}", reason, found


def _beyond(case: Case, broken: list[dict[str, Any]], distance: Distance) -> tuple[str, str, dict[str, Any]]:
    """The same of an answer beyond the tolerances of mode fast."""
    first = broken[0]
    where = f" at position {len(case.job.prompt_ids) - 1 + first['output_index']}" if "output_index" in first else ""
    reason = (
        f"an audit found that mode {case.facts.mode} is beyond its tolerance{where} of request {case.name}: "
        f"{first['name']} {first['value']:.4g} against a limit of {first['limit']:g}"
    )
    so_far = {"rows": distance.rows, "kl_mean": distance.kl_mean, "top1_agreement": distance.top1_agreement}
    return f"{first['name']}={first['value']:.4g}", reason, {"broken": broken, "so_far": so_far}
