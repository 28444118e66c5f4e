"""One request over HTTP, from a free connection to the recording of its answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter

from swiftsure import __version__
from swiftsure.bench.client.connection import Connection, ConnectionFailedError, Pool, place_of
from swiftsure.bench.client.http_response import ResponseReader
from swiftsure.bench.client.interfaces import wire_of
from swiftsure.bench.client.occupancy import Occupancy
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.exchange import ErrorKind, Prompt, Request
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError

_REFUSALS = (400, 404, 415, 422, 501)  # statuses by which endpoints refuse a field
_NAMED_BY = {"max_tokens": b"max_completion_tokens"}  # words that a refusal of the field must hold, where they are not its name


class Sender:
    """``send`` never raises for what the endpoint does: that is in the recording. ``ran_out``: what this client had too little of.

    ``start`` is the moment that counts as the load's 0. ``in_flight`` counts requests from the moment they are sent.
    """

    def __init__(self, target: Target, *, process: int, worst_lag_since: Callable[[float], float]) -> None:
        self._target = target
        self._wire = wire_of(target.interface)
        place = place_of(target.url)
        self._pool = Pool(place)
        self._process = process
        self._worst_lag_since = worst_lag_since
        self._without: set[str] = set()  # fields that the endpoint refused once
        headers = {
            "Host": place.authority,
            "User-Agent": f"swiftsure-bench/{__version__}",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **self._wire.headers(target),
            **target.headers,
        }
        self._head = f"POST {place.path}{self._wire.path} HTTP/1.1\r\n" + "".join(f"{name}: {line}\r\n" for name, line in headers.items())
        self.in_flight = Occupancy()
        self.start = 0.0
        self.ran_out: str | None = None

    async def send(self, index: int, request: Request, *, scheduled_s: float) -> Recording:
        """Sends it, and again without a field that the endpoint refuses, or where a kept connection turns out to have been closed."""
        kept: Connection | None = self._pool.free()
        while True:
            recording = await self._attempt(index, request, scheduled_s, kept)
            if recording is None:
                kept = None
                continue
            refused = self._refused_field(recording)
            if refused is None:
                return recording
            self._without.add(refused)
            kept = self._pool.free()

    def close(self) -> None:
        self._pool.close()

    async def _attempt(self, index: int, request: Request, scheduled_s: float, kept: Connection | None) -> Recording | None:
        """None: the kept connection was closed before anything came, which says nothing about the endpoint."""
        without = frozenset(self._without)
        raw = self._request(request.prompt, without)
        reader = ResponseReader()
        error: ErrorKind | None = None
        words = connected_s = None
        asked = sent = perf_counter()
        started = datetime.now(UTC)
        connection = kept
        try:
            async with asyncio.timeout(self._target.time_limit_s):
                if connection is None:
                    connection = await self._pool.connect()
                    connected_s = perf_counter() - asked
                started = datetime.now(UTC)
                self.in_flight.change(1)
                try:
                    sent, ended = connection.send(raw, reader)
                    await ended
                finally:
                    self.in_flight.change(-1)
        except TimeoutError:
            what = "no connection" if connection is None else "no whole answer"
            error, words = "timeout", f"{what} within {self._target.time_limit_s:g} s"
        except ConnectionFailedError as failure:
            if kept is not None and reader.last_read is None and failure.kind == "broken":
                return None
            error, words = failure.kind, str(failure)
            self.ran_out = words if failure.own else self.ran_out
        finally:
            if connection is not None and not reader.done:
                connection.close()
        if connection is not None:
            self._pool.give_back(connection)
        return Recording(
            index=index,
            process=self._process,
            started=started.isoformat(timespec="milliseconds"),
            scheduled_s=scheduled_s,
            sent_s=sent - self.start,
            connected_s=connected_s,
            status=reader.status,
            headers=reader.headers,
            body=bytes(reader.body),
            ends=reader.ends,
            moments=type(reader.moments)("d", [moment - sent for moment in reader.moments]),
            ended_s=None if reader.last_read is None else reader.last_read - sent,
            error=error,
            error_words=words,
            dropped=tuple(sorted(without)),
            client_lag_s=self._worst_lag_since(sent),
        )

    def _request(self, prompt: Prompt, without: frozenset[str]) -> bytes:
        body = json.dumps(self._wire.body(prompt, self._target, without), ensure_ascii=False, separators=(",", ":"))
        content = body.encode(errors="replace")  # a lone surrogate is no text
        return f"{self._head}Content-Length: {len(content)}\r\n\r\n".encode("latin-1") + content

    def _refused_field(self, recording: Recording) -> str | None:
        """The field that an answer refuses, if the request can do without and was not sent so already."""
        if recording.status not in _REFUSALS:
            return None
        for field in self._wire.optional:
            if field not in recording.dropped and _NAMED_BY.get(field, field.encode()) in recording.body:
                return field
        return None


def check_target(target: Target) -> None:
    """Raises UsageError for a target that cannot be sent to."""
    place_of(target.url)
    if not target.time_limit_s > 0:
        raise UsageError(f"time_limit_s must be above 0, got {target.time_limit_s}")
    for name, value in {**target.headers, **wire_of(target.interface).headers(target)}.items():
        if not (f"{name}{value}".isascii() and f"{name}{value}".isprintable()) or ":" in name or " " in name or not name:
            raise UsageError(f"a header must be printable ASCII on one line, header {name!r} is not")  # its value may be a key
