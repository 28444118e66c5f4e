"""The listener: how connections are kept, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from swiftsure.serve.settings import ServeSettings

KEEP_ALIVE_S = 75
"""A connection without a request is kept so long. Clients give theirs up after 5 s (httpx, and with it the SDKs of OpenAI and Anthropic) to
15 s (aiohttp): the server must not close first, or a request meets a connection that is being closed."""
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Http(H11Protocol):
    """uvicorn's protocol, for requests that arrive within ``arrival_s``: one whose head or body does not end is answered 408, and its
    connection is closed."""

    def __init__(self, *args: Any, arrival_s: float, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._arrival_s = arrival_s
        self._arrival: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self._wait(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        begun = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        self._wait((begun or self.conn.their_state is h11.SEND_BODY) and not self.transport.is_closing())

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._wait(False)
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait(False)
        super().connection_lost(exc)

    def _wait(self, incomplete: bool) -> None:
        """The time runs from the first byte of a request, or from the connection, and is not begun anew by further bytes."""
        if not incomplete and self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None
        elif incomplete and self._arrival is None:
            self._arrival = self.loop.call_later(self._arrival_s, self._late)

    def _late(self) -> None:
        if self.conn.their_state is h11.IDLE or not self.cycle.response_started:
            self.transport.write(_TIMED_OUT)
        self.transport.close()


def listener(app: ASGIApp, settings: ServeSettings) -> uvicorn.Config:
    """How ``app`` is listened for: the same for ``swiftsure serve`` and for tests."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,  # answers have been waited for already; what is left is cut off
        http=partial(Http, arrival_s=settings.arrival_s),  # type: ignore[arg-type]  # called as a class would be
        ws="websockets-sansio",
        ws_max_size=2 * settings.max_body_bytes,  # up to it an event that is too large is told so; beyond, the connection ends
    )
