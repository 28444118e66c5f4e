"""Limits on what a client may send, before any of it is parsed."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swiftsure.errors import quotable
from swiftsure.serve.apis import errors as wire_errors
from swiftsure.serve.problems import Problem
from swiftsure.serve.settings import is_loopback


class BodyLimit:
    """Middleware: 413 for a body of more than ``most_bytes``, 415 for a compressed one, whose size nobody knows. One without an announced
    length is counted as it comes."""

    def __init__(self, app: ASGIApp, *, most_bytes: int) -> None:
        self._app = app
        self._most = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Request(scope).headers
        if (coding := headers.get("content-encoding", "identity").strip().lower()) != "identity":
            message = f"a request's body must come as it is, without content-encoding, got {quotable(coding)[:40]}"
            await self._answer(Problem(status=415, kind="invalid_request", message=message), scope, receive, send)
            return
        announced = headers.get("content-length", "0")
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
        await self._answer(problem, scope, receive, send)

    @staticmethod
    async def _answer(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        """Without reading the body."""
        headers = {"connection": "close"}
        await JSONResponse(wire_errors.body_for(scope["path"], problem), problem.status, headers=headers)(scope, receive, send)


class OwnNames:
    """Middleware for a server that lets everyone on this machine in: 403 for a Host that is no name of this machine.

    A page in a browser can have its own name point at 127.0.0.1 (DNS rebinding) and then read what it likes; the Host that the browser
    sends is still that name.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and not is_loopback(HTTPConnection(scope).url.hostname or ""):
            problem = Problem(status=403, kind="permission", message="a server without API keys answers to names of this machine only")
            await JSONResponse(wire_errors.body_for(scope["path"], problem), 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class _TooLargeError(Exception):
    pass
