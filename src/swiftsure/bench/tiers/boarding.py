"""Who may share passes, and since when: three ways to board, driven over a loaded model from outside.

``seats`` is the most requests that share passes. A bus is a group that boards together and ends together: ``at_once`` leaves with whoever
is there, ``full`` waits until all seats are taken (static batching). ``continuous`` has no bus: whoever comes takes a free seat at the next
edge between passes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from swiftsure.bench.tiers.riders import Rider
from swiftsure.engine.llm import LLM
from swiftsure.engine.request import Sequence as Running
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier

Boarding: TypeAlias = Literal["at_once", "continuous", "full"]
BOARDINGS: tuple[Boarding, ...] = ("at_once", "continuous", "full")


@dataclass(slots=True, kw_only=True)
class Ride:
    """What one request saw. Moments in seconds from the start; ``deliveries``: a moment and how many tokens came then."""

    arrived_s: float
    boarded_s: float = 0.0
    deliveries: list[tuple[float, int]] = field(default_factory=list)

    @property
    def wait_s(self) -> float:
        """For a seat."""
        return self.boarded_s - self.arrived_s

    @property
    def ttft_s(self) -> float:
        return self.deliveries[0][0] - self.arrived_s

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.deliveries)

    @property
    def ended_s(self) -> float:
        return self.deliveries[-1][0]

    @property
    def tokens_per_s(self) -> float | None:
        """From the first delivery on, as a reader sees them come; None where all came at once."""
        first, last = self.deliveries[0], self.deliveries[-1]
        return (self.tokens - first[1]) / (last[0] - first[0]) if last[0] > first[0] else None

    @property
    def gaps_s(self) -> list[float]:
        """Between deliveries: tokens of one pass come together."""
        moments = [at for at, _ in self.deliveries]
        return [later - earlier for earlier, later in pairwise(moments)]


def ride(llm: LLM, riders: Sequence[Rider], *, seats: int, boarding: Boarding, tier: Tier = "standard") -> list[Ride]:
    """Runs all requests to their ends, on a model that nobody else uses; one ride each, in the riders' order.

    Riders come in the order of their arrival. The last bus leaves though it is not full. Raises what a request's own error is.
    """
    trip = _Trip(llm, riders, seats, boarding, tier)
    try:
        return trip.run()
    finally:
        llm.cancel()  # nothing is left but after an error or an interrupt


class _Trip:
    def __init__(self, llm: LLM, riders: Sequence[Rider], seats: int, boarding: Boarding, tier: Tier) -> None:
        self._llm, self._riders, self._seats, self._boarding, self._tier = llm, riders, seats, boarding, tier
        self._coming = deque(range(len(riders)))
        self._queue: deque[int] = deque()
        self._aboard: dict[int, Running] = {}
        self._rides = [Ride(arrived_s=rider.arrives_s) for rider in riders]

    def run(self) -> list[Ride]:
        began = time.perf_counter()
        while self._coming or self._queue or self._aboard:
            now = time.perf_counter() - began
            while self._coming and self._riders[self._coming[0]].arrives_s <= now:
                self._queue.append(self._coming.popleft())
            for _ in range(self._free_seats()):
                self._board(self._queue.popleft(), now)
            if self._aboard:
                self._llm.step()
                self._note(time.perf_counter() - began)
            else:
                time.sleep(max(0.0, self._riders[self._coming[0]].arrives_s - now))
        return self._rides

    def _free_seats(self) -> int:
        """How many may board now."""
        there = min(len(self._queue), self._seats - len(self._aboard))
        if self._boarding == "continuous":
            return there
        if self._aboard or (self._boarding == "full" and there < self._seats and self._coming):
            return 0
        return there

    def _board(self, number: int, now_s: float) -> None:
        rider = self._riders[number]
        sampling = SamplingParams(max_tokens=rider.tokens, ignore_eos=True)
        self._rides[number].boarded_s = now_s
        self._aboard[number] = self._llm.submit(rider.prompt_ids, sampling=sampling, tier=self._tier)

    def _note(self, at_s: float) -> None:
        for number, running in list(self._aboard.items()):
            ride = self._rides[number]
            new = running.output_length - ride.tokens
            if new:
                ride.deliveries.append((at_s, new))
            if running.finished:
                del self._aboard[number]
                if running.error is not None:
                    raise running.error
