"""Limits on what a client may send, before any of it is parsed."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swiftsure.serve.apis import errors as wire_errors
from swiftsure.serve.problems import Problem


class BodyLimit:
    """Middleware: 413 for a body of more than ``most_bytes``. One without an announced length is counted as it comes."""

    def __init__(self, app: ASGIApp, *, most_bytes: int) -> None:
        self._app = app
        self._most = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Request(scope).headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > self._most:
            await self._refuse(scope, receive, send)
            return
        seen, exceeded, started = 0, False, False

        async def counted() -> Message:
            nonlocal seen, exceeded
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                exceeded = True
                raise _TooLargeError
            return message

        async def noticed(message: Message) -> None:
            nonlocal started
            if exceeded and not started:  # the application took the error for one of its own
                raise _TooLargeError
            started = True
            await send(message)

        try:
            await self._app(scope, counted, noticed)
        except _TooLargeError:
            if started:
                raise
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = Problem(status=413, kind="too_large", message=f"a request's body must hold at most {self._most} bytes")
        headers = {"connection": "close"}
        await JSONResponse(wire_errors.body_for(scope["path"], problem), 413, headers=headers)(scope, receive, send)


class _TooLargeError(Exception):
    pass
