"""The WebSocket: one connection, many responses, by the protocol of https://developers.openai.com/api/docs/guides/websocket-mode

Responses of one lane (``stream_id``; those without one are a lane too) come one after the other, lanes beside each other. What a connection
made can be continued on it, stored or not. Whatever is wrong with a frame is told in an ``error`` event, and the connection stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import ValidationError

from swiftsure.errors import quotable
from swiftsure.serve.apis.errors import openai_body
from swiftsure.serve.apis.responses.output import WireEvent
from swiftsure.serve.apis.responses.request import CreateResponse
from swiftsure.serve.apis.responses.steering import Lane, Steering
from swiftsure.serve.apis.responses.store import Kept, ResponseStore
from swiftsure.serve.apis.responses.turn import Turn, begin
from swiftsure.serve.keys import key_of
from swiftsure.serve.problems import BusyError, KeyRefusedError, Problem, RefusedError, problem_of
from swiftsure.serve.service import Service
from swiftsure.serve.settings import ApiKey

MAX_OPEN = 32  # responses of a connection under way, waiting ones included
IDLE_S = 600.0  # without a frame and without a response under way
SEND_S = 60.0  # for a client to take one event
KEPT_RESPONSES = 256  # of a connection
KEPT_BYTES = 32 * 2**20
_LONGEST_STREAM_ID = 256
_GOING_AWAY, _POLICY = 1001, 1008


def refusal(service: Service, websocket: WebSocket) -> tuple[ApiKey | None, Problem | None]:
    """The key that a connection comes with, or why it is not let in.

    A browser opens WebSockets to any address for any page, so where no key keeps strangers out, pages of other origins are.
    """
    try:
        key = key_of(service.settings.keys, websocket)
    except KeyRefusedError as error:
        return None, problem_of(error)
    origin = websocket.headers.get("origin")
    if key is None and origin is not None and urlsplit(origin).netloc != websocket.headers.get("host"):
        return None, Problem(status=403, kind="permission", message="pages of other origins may not connect")
    return key, None


class Connection:
    """One client. ``run`` returns once it has left; its responses that are under way end with it, and no others."""

    def __init__(self, service: Service, websocket: WebSocket, key: ApiKey | None, store: ResponseStore) -> None:
        self._service = service
        self._socket = websocket
        self._key = key
        self._owner = None if key is None else key.name
        self._store = store
        self._kept = ResponseStore(max_responses=KEPT_RESPONSES, max_bytes=KEPT_BYTES)
        self._lanes: dict[str | None, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._steering = Steering()
        self._sending = asyncio.Lock()

    async def run(self) -> None:
        try:
            while True:
                try:
                    message = await asyncio.wait_for(self._socket.receive(), IDLE_S)
                except TimeoutError:
                    if self._tasks:
                        continue
                    await self._socket.close(_GOING_AWAY, f"idle for {IDLE_S:.0f} s")
                    return
                if message["type"] == "websocket.disconnect":
                    return
                await self._frame(message)
        except (WebSocketDisconnect, RuntimeError, _SlowClientError):  # it left while something was sent
            return
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- frames in --------------------------------------------------------------------------------------------------------

    async def _frame(self, message: Mapping[str, Any]) -> None:
        lane = None
        try:
            event = self._event_of(message)
            kind = event.pop("type", None)
            if kind == "response.create":
                lane = _stream_id(event)
                self._create(event, lane)
            elif kind == "response.steer":
                await self._steer(event)
            else:
                raise RefusedError(quotable(f"type must be response.create or response.steer, got {kind!r:.80}"), param="type")
        except Exception as error:
            await self._tell(error, lane)

    def _event_of(self, message: Mapping[str, Any]) -> dict[str, Any]:
        text = message.get("text")
        if text is None:
            raise RefusedError("an event is a text frame, got a binary one")
        most = self._service.settings.max_body_bytes
        if len(text) > most or len(text.encode("utf-8", "replace")) > most:
            raise RefusedError(f"an event must hold at most {most} bytes", code="message_too_big")
        try:
            event = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RefusedError(f"an event is a JSON object: {str(error)[:200]}", code="invalid_json") from None
        if not isinstance(event, dict):
            raise RefusedError(f"an event is a JSON object, got {type(event).__name__}", code="invalid_json")
        return event

    def _create(self, event: dict[str, Any], stream_id: str | None) -> None:
        if len(self._tasks) >= MAX_OPEN:
            raise BusyError(f"a connection takes at most {MAX_OPEN} responses at a time", retry_after_s=1.0)
        if event.pop("stream", None) is False:
            raise RefusedError("stream cannot be false on a WebSocket", param="stream")
        try:
            body = CreateResponse.model_validate(event)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise RefusedError(quotable(f"{place}: {first['msg']}"), param=place or None) from None
        lane = self._lanes.setdefault(stream_id, Lane(stream_id=stream_id))
        lane.waiting += 1
        task = asyncio.create_task(self._respond(body, lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- responses --------------------------------------------------------------------------------------------------------

    async def _respond(self, body: CreateResponse, lane: Lane) -> None:
        """One response, and those that steering adds to it."""
        try:
            async with lane.order:
                following: CreateResponse | None = body
                while following is not None:
                    following = await self._one(following, lane)
        except (WebSocketDisconnect, RuntimeError, _SlowClientError):
            with contextlib.suppress(RuntimeError):
                await self._socket.close(_POLICY, "events were not taken")
        finally:
            lane.waiting -= 1
            if not lane.waiting:
                self._lanes.pop(lane.stream_id, None)

    async def _one(self, body: CreateResponse, lane: Lane) -> CreateResponse | None:
        """Runs a response to its end; returns the one that accepted steering asks for next."""
        try:
            body = self._steering.filled(body)
            turn = await begin(self._service, body, self._key, self._find)
        except Exception as error:
            for event in self._steering.not_begun(body, str(error)):
                await self._send(event, lane.stream_id)
            await self._tell(error, lane.stream_id)
            return None
        self._steering.begun(turn, lane, body)
        try:
            async with contextlib.aclosing(turn.events()) as events:
                async for new in events:
                    if turn.response is not None:  # the last one: who reads it may continue at once
                        self._keep(turn)
                    if new is not None:
                        await self._send(new, lane.stream_id)
        finally:
            turn.answer.cancel()
            told, following = self._steering.ended(turn)
        for event in told:
            await self._send(event, lane.stream_id)
        return following

    async def _steer(self, event: dict[str, Any]) -> None:
        told, lane = self._steering.take(event)
        await self._send(told, None if lane is None else lane.stream_id)

    def _find(self, response_id: str) -> Kept | None:
        return self._kept.get(response_id, self._owner) or self._store.get(response_id, self._owner)

    def _keep(self, turn: Turn) -> None:
        self._kept.add(turn.kept)
        if turn.asked.store:
            self._store.add(turn.kept)

    # --- events out -------------------------------------------------------------------------------------------------------

    async def _send(self, event: WireEvent, stream_id: str | None) -> None:
        text = json.dumps(event if stream_id is None else {**event, "stream_id": stream_id}, separators=(",", ":"))
        async with self._sending:
            try:
                await asyncio.wait_for(self._socket.send_text(text), SEND_S)
            except TimeoutError:
                raise _SlowClientError from None

    async def _tell(self, error: Exception, stream_id: str | None) -> None:
        if isinstance(error, WebSocketDisconnect | _SlowClientError):
            raise error
        problem = problem_of(error)
        if problem.kind == "internal":
            traceback.print_exception(error, file=sys.stderr)
        told: dict[str, Any] = {**openai_body(problem)["error"], **({"headers": problem.headers} if problem.headers else {})}
        await self._send({"type": "error", "status": problem.status, "error": told}, stream_id)


class _SlowClientError(Exception):
    pass


def _stream_id(event: dict[str, Any]) -> str | None:
    value = event.pop("stream_id", None)
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= _LONGEST_STREAM_ID):
        raise RefusedError(f"stream_id must be a string of 1 to {_LONGEST_STREAM_ID} characters", param="stream_id")
    return value
