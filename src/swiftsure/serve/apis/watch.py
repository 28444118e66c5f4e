"""``/v1/swiftsure/state`` and ``/v1/swiftsure/events``: what runs, on what, with which evidence, now and live. No text of users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import StreamingResponse

from swiftsure import __version__
from swiftsure.engine.modes import mode_spec
from swiftsure.serve.jobs import TIERS, EngineFacts
from swiftsure.serve.keys import require_key
from swiftsure.serve.problems import BusyError
from swiftsure.serve.service import ServedModel, Service
from swiftsure.serve.settings import ApiKey

MOST_WATCHERS = 64
_PULSE_S = 0.1  # as often as an engine tells its snapshot
_STATE_S = 2.0  # at least so often the whole state, which also shows whether the client is still there


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["state"])
    watchers = _Watchers()
    may_enter = Depends(require_key(service.settings.keys))

    @routes.get("/v1/swiftsure/state")
    async def state(key: ApiKey | None = may_enter) -> dict[str, Any]:
        """Of each model the active mode, its levers with their evidence, queues, key-value blocks and lanes; of the server its audits."""
        return state_of(service, key)

    @routes.get("/v1/swiftsure/events", include_in_schema=False)  # it never ends by itself
    async def events(key: ApiKey | None = may_enter) -> StreamingResponse:
        """Server-sent events: ``state``, the whole, when it changed and every 2 s; ``pulse``, queues and counters, as engines tell."""
        watchers.check_room()
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(watchers.counted(_events(service, key)), media_type="text/event-stream", headers=headers)

    return routes


class _Watchers:
    """How many watch, and that they are not too many."""

    def __init__(self) -> None:
        self.count = 0

    def check_room(self) -> None:
        if self.count >= MOST_WATCHERS:
            raise BusyError(f"at most {MOST_WATCHERS} clients may watch at a time", retry_after_s=5.0)

    async def counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self.count += 1
        try:
            async for event in events:
                yield event
        finally:
            self.count -= 1


async def _events(service: Service, key: ApiKey | None) -> AsyncIterator[str]:
    """Until the server drains, or the client leaves."""
    loop = asyncio.get_running_loop()
    told: Any = None
    snapshots: list[Mapping[str, Any]] = []
    next_state = 0.0
    while True:
        now, gist = loop.time(), _gist(service)
        if gist != told or now >= next_state:
            told, next_state = gist, now + _STATE_S
            yield _event("state", state_of(service, key))
        elif any(old is not new for old, new in zip(snapshots, (model.engine.snapshot for model in service.models), strict=True)):
            yield _event("pulse", {"models": {model.name: pulse_of(model) for model in service.models}})
        snapshots = [model.engine.snapshot for model in service.models]
        if service.draining:
            return
        await asyncio.sleep(_PULSE_S)


def _gist(service: Service) -> Any:
    """What is told at once when it changes."""
    models = tuple((model.engine.state, model.engine.facts, model.breach, model.fell_back) for model in service.models)
    return service.unready, models, None if service.auditor is None else service.auditor.counts


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def state_of(service: Service, key: ApiKey | None) -> dict[str, Any]:
    """Everything. ``tiers``: those that the key may use."""
    reason = service.unready
    return {
        "version": __version__,
        "ready": reason is None,
        "reason": reason,
        "tiers": [tier for tier in TIERS if key is None or tier in key.tiers],
        "audit": None if service.auditor is None else {"share": service.auditor.share, **service.auditor.counts},
        "models": [_model(model) for model in service.models],
    }


def _model(model: ServedModel) -> dict[str, Any]:
    engine, facts = model.engine, model.engine.facts
    return {
        "name": model.name,
        "state": engine.state,
        "reason": engine.reason or None,
        "deaths": engine.deaths,
        "breach": model.breach,
        "fell_back": model.fell_back,
        "chat": model.has_chat_template,
        "facts": None if facts is None else _facts(facts),
        **pulse_of(model),
    }


def _facts(facts: EngineFacts) -> dict[str, Any]:
    """The ACTIVE line's, and what the mode promises."""
    spec = mode_spec(facts.mode)
    return {
        "mode": facts.mode,
        "promise": spec.promise,
        "keeps_bits": spec.keeps_bits,
        "model": facts.model,
        "weights_sha256": facts.weights_sha256,
        "numerics": facts.numerics,
        "isa": facts.isa,
        "threads": facts.threads,
        "context": facts.context,
        "levers_on": facts.activation["levers_on"],
        "levers_off": facts.activation["levers_off"],
        "active_line": facts.active_line,
        "notes": list(facts.notes),
    }


def pulse_of(model: ServedModel) -> dict[str, Any]:
    """What changes while requests run."""
    facts = model.engine.facts
    levers = model.engine.levers or (facts.activation["levers"] if facts is not None else {})
    return {
        "engine": dict(model.engine.snapshot),
        "levers": levers,
        "lanes": {
            tier: {
                "requests": lane.requests,
                "requests_limit": lane.limits.requests,
                "tokens": lane.tokens,
                "tokens_limit": lane.limits.tokens,
                "refused": lane.refused,
            }
            for tier, lane in model.lanes.items()
        },
    }
