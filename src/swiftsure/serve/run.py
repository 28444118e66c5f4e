"""One server from start to end: load, listen, drain, stop."""

from __future__ import annotations

import asyncio
import math
import signal
from dataclasses import dataclass
from time import monotonic
from types import FrameType

import uvicorn

from swiftsure.errors import UnprovedError
from swiftsure.serve.app import create_app
from swiftsure.serve.listening import listener
from swiftsure.serve.service import Service, note
from swiftsure.serve.settings import ServeSettings


@dataclass(frozen=True, slots=True)
class Breach:
    """What an audit found of a model, and whether it was served in mode default from then on."""

    model: str
    reason: str
    fell_back: bool


class _Server(uvicorn.Server):
    """Refuses new requests from the first signal on, while those under way end."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._stops_at = math.inf
        self._idle_ticks = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._service.draining and sig == signal.SIGINT:  # the second Ctrl-C does not wait
            self.force_exit = self.should_exit = True
        if not self._service.draining:
            self._service.draining = True
            self._stops_at = monotonic() + self._service.settings.drain_s

    async def on_tick(self, counter: int) -> bool:
        """Goes on listening while answers are under way: a WebSocket would be closed over them, and whoever comes is told why not."""
        if self._service.draining:
            self._idle_ticks = 0 if self._service.under_way else self._idle_ticks + 1
            self.should_exit |= monotonic() >= self._stops_at or self._idle_ticks > 1  # one more, for events that are being sent
        return await super().on_tick(counter)

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]  # None or what uvicorn itself passes on
        if self.started:
            for listener in self.servers:
                for sock in listener.sockets:
                    host, port = sock.getsockname()[:2]
                    note(f"LISTENING url=http://{host}:{port}")


async def serve(settings: ServeSettings) -> tuple[Breach, ...]:
    """Loads the models, prints their ACTIVE lines, listens until SIGTERM or SIGINT, drains and stops. Returns what audits found.

    Raises what a load raises, before anything listens, OSError where the address cannot be had, and UnprovedError where the evidence of a
    lever is missing in the end.
    """
    service = Service(settings)
    await service.start()
    try:
        for model in service.models:
            facts = model.facts
            note(facts.active_line)
            for text in facts.notes:
                note(f"note: {text}")
        config = listener(create_app(service), settings)
        await _Server(config, service).serve()
    finally:
        await service.stop()
    for model in service.models:
        for line in model.last_lines():
            note(line)
    breaches = tuple(Breach(model.name, model.breach, model.fell_back) for model in service.models if model.breach)
    unproved = [reason for model in service.models for reason in model.engine.unproved]
    if unproved and not breaches:  # a breach weighs more
        raise UnprovedError("; ".join(unproved))
    return breaches


def run(settings: ServeSettings) -> tuple[Breach, ...]:
    return asyncio.run(serve(settings))
