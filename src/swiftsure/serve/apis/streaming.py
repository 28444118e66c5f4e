"""Answers and the connections that wait for them: who leaves ends the work that was done for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.jobs import Chunk

_T = TypeVar("_T")


class ClientGoneError(Exception):
    """The client closed its connection; there is nobody to answer."""


class Cancellable(Protocol):
    """An answer, or several."""

    def cancel(self) -> None: ...


class EventStream(StreamingResponse):
    """Server-sent events of an answer. However the response ends, also before its first byte, the answer ends with it."""

    def __init__(self, events: AsyncIterator[str], answer: Cancellable, *, headers: Mapping[str, str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"cache-control": "no-store", **headers})
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.cancel()


async def while_connected(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """What ``work`` returns. Raises ClientGoneError, with ``work`` cancelled, if the client leaves first."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def chunks_or_silence(answer: Answer, silence_s: float) -> AsyncIterator[Chunk | None]:
    """The answer's chunks, and None whenever nothing came for ``silence_s``, so that the connection can be kept alive."""
    chunks = aiter(answer)
    coming: asyncio.Future[Chunk] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(chunks))
            done, _ = await asyncio.wait((coming,), timeout=silence_s)
            if not done:
                yield None
                continue
            finished, coming = coming, None
            try:
                chunk = finished.result()
            except _EndError:
                return
            yield chunk
    finally:
        if coming is not None:
            coming.cancel()


async def _next(chunks: AsyncIterator[Chunk]) -> Chunk:
    try:
        return await anext(chunks)
    except StopAsyncIteration:  # a task cannot raise it
        raise _EndError from None


class _EndError(Exception):
    pass
