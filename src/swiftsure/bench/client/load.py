"""The requests of one process, as users of a closed loop or as arrivals of an open one."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Iterator
from time import perf_counter

from swiftsure.bench.client.lag import LagMeter
from swiftsure.bench.client.messages import InFlight, Plan, ProcessFacts
from swiftsure.bench.client.occupancy import Occupancy
from swiftsure.bench.client.reading import retry_after
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.client.sender import Sender
from swiftsure.bench.exchange import Request
from swiftsure.bench.percentiles import percentile

_REPORT_S = 0.2
_LONGEST_PAUSE_S = 30.0
_FIRST_PAUSE_S, _LARGEST_STEP_S = 0.1, 5.0


class Load:
    """``run`` hands each recording to ``report`` when its request has ended, and gives the process's facts at the end."""

    def __init__(self, plan: Plan, report: Callable[[Recording | InFlight], None]) -> None:
        self._plan = plan
        self._report = report
        self._lag = LagMeter()
        self._sender = Sender(plan.target, process=plan.process, worst_lag_since=self._lag.worst_since)
        self._requests: Iterator[tuple[int, Request]] = iter(plan.requests)
        self._start = 0.0
        self._taken_up = Occupancy()  # from a user's turn to the recording, the connection included
        self._full: tuple[float, float] | None = None  # when the last request was taken up, and the area by then
        self._paused_s = 0.0
        self._late_s = array("d")

    async def run(self, start: float) -> ProcessFacts:
        """``start``: the moment that is the load's 0. Cancelled, it closes all connections and still gives the facts."""
        self._start = self._sender.start = start
        await asyncio.sleep(start - perf_counter())
        cpu = time.process_time()
        self._lag.start()
        reporting = asyncio.create_task(self._report_in_flight())
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._plan.users is None:
                    await self._arrive(tasks)
                else:
                    for _ in range(self._plan.users):
                        tasks.create_task(self._user())
        except asyncio.CancelledError:
            pass  # stopped: what had ended was reported
        reporting.cancel()
        self._lag.stop()
        self._sender.close()
        return self._facts(time.process_time() - cpu)

    async def _user(self) -> None:
        failures = 0
        for index, request in self._requests:
            recording = await self._one(index, request, perf_counter() - self._start)
            failed = recording.error is not None or (recording.status or 0) >= 400
            failures = failures + 1 if failed else 0
            pause_s = pause_after(recording, failures) if failed else 0.0
            if pause_s and self._full is None:
                self._paused_s += pause_s
                await asyncio.sleep(pause_s)
        self._full = self._full or (perf_counter(), self._taken_up.area)

    async def _arrive(self, tasks: asyncio.TaskGroup) -> None:
        for index, request in self._requests:
            assert request.at_s is not None
            await asyncio.sleep(max(0.0, self._start + request.at_s - perf_counter()))
            self._late_s.append(perf_counter() - self._start - request.at_s)
            tasks.create_task(self._one(index, request, request.at_s))

    async def _one(self, index: int, request: Request, scheduled_s: float) -> Recording:
        self._taken_up.change(1)
        try:
            recording = await self._sender.send(index, request, scheduled_s=scheduled_s)
        finally:
            self._taken_up.change(-1)
        self._report(recording)
        return recording

    async def _report_in_flight(self) -> None:
        while True:
            self._report(InFlight(requests=self._sender.in_flight.now))
            await asyncio.sleep(_REPORT_S)

    def _facts(self, cpu_s: float) -> ProcessFacts:
        now = perf_counter()
        wall_s = max(now - self._start, 1e-9)
        full_at, area = self._full or (now, self._taken_up.area)
        return ProcessFacts(
            wall_s=wall_s,
            in_flight_area_s=self._sender.in_flight.area,
            full_s=full_at - self._start,
            users_area_s=area + self._paused_s,
            lag_p50_s=self._lag.percentile(50),
            lag_p99_s=self._lag.percentile(99),
            lag_max_s=self._lag.percentile(100),
            cpu_share=cpu_s / wall_s,
            late_p99_s=percentile(self._late_s, 99) if self._late_s else None,
            ran_out=self._sender.ran_out,
        )


def pause_after(recording: Recording, failures: int) -> float:
    """How long a user waits after its ``failures``-th failure in a row: as long as the endpoint asks, else longer each time.

    A refused request (4xx) is no reason to wait: the next is another one.
    """
    asked_s = retry_after(recording.headers)
    if asked_s is not None:
        return min(asked_s, _LONGEST_PAUSE_S)
    if recording.status is not None and 400 <= recording.status < 500 and recording.status != 429:
        return 0.0
    return float(min(_FIRST_PAUSE_S * 2 ** min(failures - 1, 10), _LARGEST_STEP_S))
