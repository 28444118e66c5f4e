"""How much may be under way at once, by tier: a full lane refuses at the door, with a time to come back, and never serves another tier."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from swiftsure.engine.scheduler import Tier
from swiftsure.serve.jobs import Job
from swiftsure.serve.problems import BusyError
from swiftsure.serve.settings import LaneLimits

_WINDOW_S = 10.0  # tokens that ended in so many seconds say how fast a lane empties
_MOST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRoom:
    """What a lane still takes, and the seconds until a request is expected to have left it."""

    requests: int
    tokens: int
    reset_s: float


class Lane:
    """One tier's requests under way. ``enter`` before a job is submitted, ``leave`` once it has ended, however it did."""

    def __init__(self, tier: Tier, limits: LaneLimits, *, clock: Callable[[], float] = monotonic) -> None:
        self.tier = tier
        self.limits = limits
        self.requests = 0
        self.tokens = 0
        self.refused = 0
        self._clock = clock
        self._ended: deque[tuple[float, int]] = deque()

    def enter(self, job: Job) -> None:
        """Raises BusyError where the lane has no room for it. A job larger than the whole lane may pass through it alone."""
        if self.requests + 1 > self.limits.requests:
            self._refuse(f"{self.limits.requests} requests", 0)
        if self.requests and self.tokens + job.tokens > self.limits.tokens:
            self._refuse(f"{self.limits.tokens} tokens", self.tokens + job.tokens - self.limits.tokens)
        self.requests += 1
        self.tokens += job.tokens

    def leave(self, job: Job) -> None:
        self.requests -= 1
        self.tokens -= job.tokens
        self._ended.append((self._clock(), job.tokens))

    @property
    def remaining(self) -> LaneRoom:
        return LaneRoom(
            requests=self.limits.requests - self.requests, tokens=max(0, self.limits.tokens - self.tokens), reset_s=self._wait_s(1)
        )

    def _refuse(self, limit: str, excess: int) -> None:
        self.refused += 1
        wait = self._wait_s(excess)
        raise BusyError(f"the {self.tier} tier takes at most {limit} at a time; come back in about {wait:.0f} s", retry_after_s=wait)

    def _wait_s(self, excess: int) -> float:
        """Until so many tokens (at least one request's) will have left, at the pace of the last seconds."""
        now = self._clock()
        while self._ended and self._ended[0][0] < now - _WINDOW_S:
            self._ended.popleft()
        ended = sum(tokens for _, tokens in self._ended)
        if not ended or not self.requests:
            return 1.0
        return min(_MOST_WAIT_S, max(1.0, max(excess, self.tokens / self.requests) * _WINDOW_S / ended))
