"""The server's side of an engine: starts the process, submits jobs, hands out what comes back, and starts it anew when it dies.

A job's tokens are a function of the job (design section 2), so a job that an engine died under is run again on the next one, and its reader
sees the stream go on where it was: what was told before is left out. A job that was there at two deaths may be their cause; it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal, TypeAlias

from swiftsure import errors
from swiftsure.engine.activation import MODE_VARIABLE
from swiftsure.engine.request import TokenLogprob
from swiftsure.errors import SwiftsureError
from swiftsure.serve.engine_process.protocol import (
    HEADER,
    body_length,
    facts_from_wire,
    frame,
    job_to_wire,
    logprob_from_wire,
    message_of,
    outcome_from_wire,
)
from swiftsure.serve.jobs import Chunk, EngineFacts, Job, Outcome
from swiftsure.serve.origin import ORIGIN, Origin
from swiftsure.serve.problems import EngineLostError, UnavailableError

PROGRAM = (sys.executable, "-m", "swiftsure.serve.engine_process")
"""What an engine's process runs; the number of its end of the socket pair follows."""

EngineState: TypeAlias = Literal["starting", "ready", "restarting", "failed", "stopped"]

_MOST_DEATHS = 5  # in _DEATHS_WITHIN_S: then the engine is left down, with the reason
_DEATHS_WITHIN_S = 300.0
_MOST_DEATHS_OF_A_JOB = 2
_RESTART_S = 5.0  # what a client is told to wait


class Answer:
    """Chunks of one job as they come: ``async for chunk in answer``, then ``answer.outcome``.

    Iterating raises what ended the job otherwise (a SwiftsureError). ``cancel`` ends it from any place on the event loop; the outcome still
    comes. Leaving an answer without reading it to the end must cancel it: use ``async with``.
    """

    def __init__(self, job: Job, cancel: Callable[[], None]) -> None:
        self.job = job
        self.outcome: Outcome | None = None
        self.error: SwiftsureError | None = None
        self.origin = ORIGIN.get() or Origin()
        self.origin.add(self)
        self.arrivals: list[tuple[float, int]] = []  # (seconds, tokens that came then), for what has to know how long users waited
        self.submitted_s, self.ended_s = monotonic(), 0.0
        self.token_ids: list[int] = []  # all that came, read or not
        self._cancel = cancel
        self._chunks: deque[Chunk] = deque()
        self._changed = asyncio.Event()

    @property
    def ended(self) -> bool:
        return self.outcome is not None or self.error is not None

    @property
    def ttft_s(self) -> float | None:
        """From submission to the first token; None while there is none."""
        return self.arrivals[0][0] - self.submitted_s if self.arrivals else None

    @property
    def total_s(self) -> float | None:
        """From submission to the end; None before it."""
        return self.ended_s - self.submitted_s if self.ended else None

    def cancel(self) -> None:
        if not self.ended:
            self._cancel()

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        while True:
            if self._chunks:
                yield self._take()
            elif self.error is not None:
                raise self.error
            elif self.outcome is not None:
                return
            else:
                self._changed.clear()
                await self._changed.wait()

    async def finish(self) -> tuple[Chunk, Outcome]:
        """The whole answer as one chunk."""
        texts: list[str] = []
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        async for chunk in self:
            texts.append(chunk.text)
            tokens.extend(chunk.token_ids)
            logprobs.extend(chunk.logprobs)
        if self.outcome is None:
            raise RuntimeError("an answer ended without outcome or error")
        return Chunk(text="".join(texts), token_ids=tuple(tokens), logprobs=tuple(logprobs)), self.outcome

    def _take(self) -> Chunk:
        """Everything there is, as one: a slow reader gets larger chunks, not more of them."""
        if len(self._chunks) == 1:
            return self._chunks.popleft()
        chunks = list(self._chunks)
        self._chunks.clear()
        return Chunk(
            text="".join(chunk.text for chunk in chunks),
            token_ids=tuple(token for chunk in chunks for token in chunk.token_ids),
            logprobs=tuple(entry for chunk in chunks for entry in chunk.logprobs),
        )

    def _put(self, chunk: Chunk) -> None:
        if chunk.token_ids:
            self.arrivals.append((monotonic(), len(chunk.token_ids)))
        self._chunks.append(chunk)
        self.token_ids += chunk.token_ids
        self._changed.set()

    def _end(self, *, outcome: Outcome | None = None, error: SwiftsureError | None = None) -> None:
        self.outcome, self.error, self.ended_s = outcome, error, monotonic()
        self._changed.set()


@dataclass(slots=True)
class _Flight:
    """A job under way. ``skip_*``: of what a new engine says of it, told already."""

    answer: Answer
    ends_at: float | None
    deaths: int = 0
    cancelled: bool = False
    told_text: int = 0
    told_tokens: int = 0
    skip_text: int = 0
    skip_tokens: int = 0

    def restart(self) -> None:
        self.skip_text, self.skip_tokens = self.told_text, self.told_tokens

    def chunk(self, text: str, token_ids: list[int], logprobs: list[Any]) -> Chunk | None:
        """What of this is new; None if nothing is."""
        if self.skip_text or self.skip_tokens:
            drop_text, drop_tokens = min(self.skip_text, len(text)), min(self.skip_tokens, len(token_ids))
            self.skip_text -= drop_text
            self.skip_tokens -= drop_tokens
            text, token_ids, logprobs = text[drop_text:], token_ids[drop_tokens:], logprobs[drop_tokens:]
        if not text and not token_ids:
            return None
        self.told_text += len(text)
        self.told_tokens += len(token_ids)
        return Chunk(text=text, token_ids=tuple(token_ids), logprobs=tuple(logprob_from_wire(entry) for entry in logprobs))


OnEnd: TypeAlias = Callable[[Answer], None]


class EngineProcess:
    """One engine process and its jobs. All methods belong to the event loop that called ``start``."""

    def __init__(
        self,
        keywords: Mapping[str, Any],
        *,
        on_end: OnEnd = lambda answer: None,
        note: Callable[[str], None] = print,
        niceness: int = 0,
    ) -> None:
        """``keywords`` of :func:`swiftsure.load`, JSON values only. ``on_end`` sees each ended answer, ``note`` lines for a log.
        ``niceness``: what the process adds to its own before it loads."""
        self.state: EngineState = "stopped"
        self.reason = "it was not started"
        self.facts: EngineFacts | None = None
        self.snapshot: Mapping[str, Any] = {}
        self.levers: Mapping[str, Any] = {}
        self.lever_lines: tuple[str, ...] = ()
        self.unproved: tuple[str, ...] = ()
        self.deaths = 0
        self._keywords = dict(keywords)
        self._on_end = on_end
        self._note = note
        self._niceness = niceness
        self._paused = False
        self._flights: dict[int, _Flight] = {}
        self._weighings: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._death_times: deque[float] = deque()

    @property
    def under_way(self) -> int:
        return len(self._flights)

    async def start(self) -> EngineFacts:
        """Returns once the model is loaded. Raises what the load raised (see :func:`swiftsure.load`)."""
        self.state, self.reason = "starting", "the engine loads its model"
        try:
            reader, facts = await self._launch()
        except BaseException as error:
            self.state, self.reason = "failed", str(error)
            await self._reap()
            raise
        self._supervisor = asyncio.create_task(self._supervise(reader))
        return facts

    def submit(self, job: Job) -> Answer:
        """Queues a job. Raises UnavailableError while there is no engine and none is about to come."""
        if self.state == "restarting":
            raise UnavailableError("the engine restarts after a failure", retry_after_s=_RESTART_S)
        if self.state != "ready":
            raise UnavailableError(
                f"the engine is not ready: {self.reason}", retry_after_s=_RESTART_S if self.state == "starting" else None
            )
        job_id, self._next_id = self._next_id, self._next_id + 1
        answer = Answer(job, lambda: self._cancel(job_id))
        ends_at = None if job.deadline_s is None else monotonic() + job.deadline_s
        flight = self._flights[job_id] = _Flight(answer=answer, ends_at=ends_at)
        self._send_job(job_id, flight)
        return answer

    async def weigh(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], wanted: Sequence[Sequence[int]]
    ) -> list[tuple[list[float], int]]:
        """See ``weighing.weigh``. Raises what that raises, EngineLostError or UnavailableError when the process ends meanwhile."""
        if self.state != "ready":
            raise UnavailableError(f"the engine is not ready: {self.reason}")
        number, self._next_id = self._next_id, self._next_id + 1
        weighing = self._weighings[number] = asyncio.get_running_loop().create_future()
        self._send({"kind": "weigh", "id": number, "prompt_ids": list(prompt_ids), "token_ids": list(token_ids), "wanted": wanted})
        try:
            rows = await weighing
        finally:
            self._weighings.pop(number, None)
        return [(values, likeliest) for values, likeliest in rows]

    async def stop(self, *, drain_s: float = 0.0, reason: str = "the server stops") -> None:
        """Takes no more jobs, lets those under way go on for ``drain_s``, then ends them as cancelled and the process with them."""
        was = self.state
        self.state, self.reason = "stopped", reason
        if was == "ready":
            ends = monotonic() + drain_s
            while self._flights and monotonic() < ends and self._writer is not None:
                await asyncio.sleep(0.02)
        if self._supervisor is not None:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
            self._supervisor = None
        self._fail_all(UnavailableError(reason))
        await self._reap()

    def pause(self) -> None:
        """The process stands still until ``resume``; its jobs wait."""
        self._signal(signal.SIGSTOP, paused=True)

    def resume(self) -> None:
        self._signal(signal.SIGCONT, paused=False)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _signal(self, number: signal.Signals, *, paused: bool) -> None:
        if self._process is not None and self._process.returncode is None and self._paused != paused:
            self._process.send_signal(number)
            self._paused = paused

    # --- the process ------------------------------------------------------------------------------------------------------

    async def _launch(self) -> tuple[asyncio.StreamReader, EngineFacts]:
        ours, theirs = socket.socketpair()
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 2**20)  # a pass must not wait for a busy event loop
            self._process = await asyncio.create_subprocess_exec(
                *PROGRAM,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                env={name: value for name, value in os.environ.items() if name != MODE_VARIABLE},  # the mode is named, and may be another
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C in the terminal is the server's to answer
            )
            self._paused = False
            reader, self._writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._send({"kind": "load", "keywords": self._keywords, "niceness": self._niceness})
        message = await _receive(reader)
        if message is None:
            raise EngineLostError("the engine's process ended while it loaded the model; its log says why")
        if message["kind"] == "refused":
            raise _error_of(message)
        self.facts = facts_from_wire(message["facts"])
        self.state, self.reason = "ready", ""
        return reader, self.facts

    async def _supervise(self, reader: asyncio.StreamReader) -> None:
        """Reads what the engine says; when it dies, starts another and gives it the jobs."""
        while True:
            try:
                while (message := await _receive(reader)) is not None:
                    self._take(message)
            except (ValueError, KeyError, TypeError) as error:  # not our protocol any more: as good as dead
                self._note(f"engine: a message makes no sense: {error!r}")
            code = await self._reap()
            self.deaths += 1
            self._fail_weighings(EngineLostError("the engine failed while it weighed an answer"))
            self._note(f"engine: its process ended with {code}; {len(self._flights)} requests were under way")
            self.state, self.reason = "restarting", "the engine restarts after a failure"
            self._count_deaths()
            while True:
                if self._dies_too_often():
                    self.state, self.reason = "failed", f"the engine died {_MOST_DEATHS} times within {_DEATHS_WITHIN_S:.0f} s"
                    self._note(f"engine: {self.reason}; it stays down")
                    self._fail_all(UnavailableError(f"the engine is down: {self.reason}"))
                    return
                try:
                    reader, _ = await self._launch()
                    break
                except SwiftsureError as error:
                    self._note(f"engine: it did not start again: {error}")
                    await self._reap()
                    await asyncio.sleep(0.5 * len(self._death_times))
            for job_id, flight in list(self._flights.items()):
                flight.restart()
                self._send_job(job_id, flight)

    def _count_deaths(self) -> None:
        for job_id, flight in list(self._flights.items()):
            flight.deaths += 1
            if flight.cancelled or flight.deaths >= _MOST_DEATHS_OF_A_JOB:
                self._end(job_id, error=EngineLostError("the engine failed twice while this request ran; it is not tried again"))

    def _dies_too_often(self) -> bool:
        now = monotonic()
        self._death_times.append(now)
        while self._death_times[0] < now - _DEATHS_WITHIN_S:
            self._death_times.popleft()
        return len(self._death_times) >= _MOST_DEATHS

    async def _reap(self) -> int | None:
        """Ends the process if it is still there, and returns its exit code."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self.resume()
        process, self._process = self._process, None
        if process is None:
            return None
        try:
            return await asyncio.wait_for(process.wait(), 5.0)  # it ends with the socket
        except TimeoutError:
            process.kill()
            return await process.wait()

    # --- jobs -------------------------------------------------------------------------------------------------------------

    def _take(self, message: Mapping[str, Any]) -> None:
        match message["kind"]:
            case "progress":
                for job_id, text, token_ids, logprobs, outcome in message["items"]:
                    if (flight := self._flights.get(job_id)) is None:
                        continue
                    if (chunk := flight.chunk(text, token_ids, logprobs)) is not None:
                        flight.answer._put(chunk)
                    if outcome is not None:
                        self._end(job_id, outcome=outcome_from_wire(outcome))
            case "weighed":
                if (weighing := self._weighings.get(message["id"])) is not None and not weighing.done():
                    weighing.set_result(message["rows"])
            case "failed":
                if (weighing := self._weighings.get(message["id"])) is not None and not weighing.done():
                    weighing.set_exception(_error_of(message))
                self._end(message["id"], error=_error_of(message))
            case "snapshot":
                self.snapshot, self.levers = message["engine"], message["levers"]
                self.lever_lines, self.unproved = tuple(message["lever_lines"]), tuple(message["unproved"])
            case kind:
                raise ValueError(f"unknown kind {kind!r}")

    def _end(self, job_id: int, *, outcome: Outcome | None = None, error: SwiftsureError | None = None) -> None:
        flight = self._flights.pop(job_id, None)
        if flight is not None:
            flight.answer._end(outcome=outcome, error=error)
            self._on_end(flight.answer)

    def _fail_all(self, error: SwiftsureError) -> None:
        for job_id in list(self._flights):
            self._end(job_id, error=error)
        self._fail_weighings(error)

    def _fail_weighings(self, error: SwiftsureError) -> None:
        for weighing in self._weighings.values():
            if not weighing.done():
                weighing.set_exception(error)

    def _cancel(self, job_id: int) -> None:
        if (flight := self._flights.get(job_id)) is not None and not flight.cancelled:
            flight.cancelled = True
            self._send({"kind": "cancel", "id": job_id})

    def _send_job(self, job_id: int, flight: _Flight) -> None:
        wire = job_to_wire(flight.answer.job)
        if flight.ends_at is not None:
            wire["deadline_s"] = max(0.0, flight.ends_at - monotonic())
        self._send({"kind": "submit", "id": job_id, "job": wire})

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(message))


async def _receive(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; None once the engine is gone."""
    try:
        header = await reader.readexactly(HEADER.size)
        return message_of(await reader.readexactly(body_length(header)))
    except (asyncio.IncompleteReadError, OSError):
        return None


def _error_of(message: Mapping[str, Any]) -> SwiftsureError:
    """The error that the engine named, if it is one of ours; otherwise one that says no more than that it failed."""
    kind = getattr(errors, message["error"], None)
    if isinstance(kind, type) and issubclass(kind, SwiftsureError):
        return kind(message["message"])
    return EngineLostError("the engine failed on this request; its log says how")
