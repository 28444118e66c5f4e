"""The requests of a load on the built-in engine: passes and stamps in one thread, so that nothing comes between them."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING

from swiftsure.bench.client.messages import InFlight, Plan, ProcessFacts
from swiftsure.bench.client.occupancy import Occupancy
from swiftsure.bench.client.reading import exchange_of
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.client.stops import StopMeter
from swiftsure.bench.client.transcript import Transcript, mark_inline_thinking
from swiftsure.bench.exchange import ErrorKind, Exchange, Prompt, Request
from swiftsure.engine.inputs import prompt_ids, prompt_of_messages
from swiftsure.engine.sampling import SamplingParams
from swiftsure.errors import SwiftsureError, UsageError

if TYPE_CHECKING:
    from swiftsure.engine.llm import LLM
    from swiftsure.engine.request import Sequence as Running

_REPORT_S = 0.2
_LONGEST_SLEEP_S = 0.05


@dataclass(slots=True, kw_only=True)
class _Answer:
    """A request that runs. ``sent`` is when it was asked, before its prompt was made into tokens."""

    index: int
    request: Request
    scheduled_s: float
    sent: float
    started: datetime
    running: Running | None = None
    transcript: Transcript = field(default_factory=Transcript)


class EngineLoad:
    """``run`` reports each exchange when it ended. Raises UsageError for sampling values that the engine does not know."""

    def __init__(self, llm: LLM, plan: Plan, report: Callable[[Exchange | InFlight], None]) -> None:
        self._llm = llm
        self._plan = plan
        self._report = report
        self._sampling = [sampling_of(request.prompt) for _, request in plan.requests]
        self._next = 0
        self._out: list[_Answer] = []
        self._in_flight = Occupancy()
        self._stops = StopMeter()
        self._start = self._own_s = self._told = 0.0

    def run(self, start: float, stopped: Callable[[], bool]) -> ProcessFacts:
        """``start``: the moment that is the load's 0. ``stopped`` is asked between passes; once true, what runs is cancelled."""
        self._start = start
        time.sleep(max(0.0, start - perf_counter()))
        with self._stops:
            while (self._out or self._next < len(self._plan.requests)) and not stopped():
                self._take_up()
                self._pass()
                self._tell_in_flight()
        self._llm.cancel()
        return self._facts()

    def _pass(self) -> None:
        """One pass of the engine, or a short wait for the next arrival; neither where the last request of all was refused."""
        if self._out:
            self._llm.step()
            now = perf_counter()
            self._collect(now)
            self._own_s += perf_counter() - now
        elif self._next < len(self._plan.requests):
            due = self._start + (self._plan.requests[self._next][1].at_s or 0.0)
            time.sleep(min(max(0.0, due - perf_counter()), _LONGEST_SLEEP_S))

    def _take_up(self) -> None:
        """Submits what is due: the next requests while there are free users, or those whose time has come."""
        while self._next < len(self._plan.requests):
            index, request = self._plan.requests[self._next]
            now_s = perf_counter() - self._start
            users = self._plan.users
            if (users is not None and len(self._out) >= users) or (users is None and (request.at_s or 0.0) > now_s):
                return
            scheduled_s = now_s if users is not None or request.at_s is None else request.at_s
            sampling = self._sampling[self._next]
            self._next += 1
            answer = _Answer(index=index, request=request, scheduled_s=scheduled_s, sent=perf_counter(), started=datetime.now(UTC))
            try:
                answer.running = self._llm.submit(self._ids(request.prompt), sampling=sampling)
            except SwiftsureError as error:
                self._finish(answer, perf_counter(), "http_4xx", str(error))
                continue
            self._in_flight.change(1)
            self._out.append(answer)

    def _ids(self, prompt: Prompt) -> Sequence[int]:
        model = self._llm.model
        asked = prompt.text if prompt.messages is None else prompt_of_messages(model, prompt.messages)
        ids: list[int] = prompt_ids(model, asked, context=self._llm.context).tolist()
        return ids

    def _collect(self, now: float) -> None:
        """What the last pass brought."""
        for answer in list(self._out):
            seq = answer.running
            assert seq is not None
            transcript, at_s = answer.transcript, now - answer.sent
            if seq.output_length and transcript.first_event_s is None:
                transcript.first_event_s = at_s
            text = "".join(seq.take_pieces())
            if text and not transcript.arrivals:
                transcript.first_tokens = seq.output_length
            transcript.add(at_s, "answer", text)
            if seq.finished:
                self._out.remove(answer)
                self._in_flight.change(-1)
                transcript.finish_reason = seq.finish_reason
                reused = seq.counts.get("prefix_cache", {}).get("tokens_reused")
                transcript.count(prompt_tokens=seq.prompt_length, output_tokens=seq.output_length, cached_tokens=reused)
                error = seq.error
                self._finish(answer, now, "in_band" if error is not None else None, None if error is None else str(error))

    def _finish(self, answer: _Answer, now: float, error: ErrorKind | None, words: str | None) -> None:
        transcript = answer.transcript
        mark_inline_thinking(transcript)
        first = array("d", () if transcript.first_event_s is None else (transcript.first_event_s,))
        recording = Recording(
            index=answer.index,
            process=self._plan.process,
            started=answer.started.isoformat(timespec="milliseconds"),
            scheduled_s=answer.scheduled_s,
            sent_s=answer.sent - self._start,
            connected_s=None,
            moments=first,
            ended_s=now - answer.sent,
            client_lag_s=self._stops.worst_since(answer.sent),
        )
        keep = self._plan.keep_text
        self._report(exchange_of(recording, answer.request, transcript, error=error, words=words, count_tokens=None, keep_text=keep))

    def _tell_in_flight(self) -> None:
        now = perf_counter()
        if now - self._told >= _REPORT_S:
            self._told = now
            self._report(InFlight(requests=len(self._out)))

    def _facts(self) -> ProcessFacts:
        """Stamps are taken right after a pass, by the thread that ran it: there is no loop that could be late, only a process that stood
        still. What this client used of the processor is what it did between passes, the making of prompts into tokens aside, which belongs
        to the answer."""
        wall_s = max(perf_counter() - self._start, 1e-9)
        return ProcessFacts(
            wall_s=wall_s,
            in_flight_area_s=self._in_flight.area,
            full_s=0.0,
            users_area_s=0.0,
            lag_p50_s=0.0,
            lag_p99_s=0.0,
            lag_max_s=self._stops.worst_since(self._start),
            cpu_share=self._own_s / wall_s,
        )


def sampling_of(prompt: Prompt) -> SamplingParams:
    """Raises UsageError for what the engine does not know."""
    try:
        return SamplingParams.of({"max_tokens": prompt.max_tokens, **prompt.sampling})
    except UsageError as error:
        raise UsageError(f"prompt {prompt.name!r}: {error}") from None
