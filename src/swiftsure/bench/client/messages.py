"""What a load's parent and its processes say to each other: pickled, over pipes between processes of one program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swiftsure.bench.client.recording import Recording
from swiftsure.bench.exchange import Exchange, Request
from swiftsure.bench.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A process's part of a load: ``requests`` with their indices in the whole. ``users`` as in ``measure``."""

    target: Target
    requests: Sequence[tuple[int, Request]]
    users: int | None
    process: int
    keep_text: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Moment of ``time.perf_counter`` that is the load's 0. The clock is the machine's, so all processes share it."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The process cannot run its part. ``kind``: the error's class in ``swiftsure.errors``."""

    kind: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """How many requests are out, told a few times a second."""

    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFacts:
    """How one process fared. ``in_flight_area_s``: requests times seconds that they were out. ``full_s``: how long requests were left to
    be taken up; ``users_area_s``: users times seconds till then that they waited for the endpoint, or paused because it failed them.

    ``late_p99_s``: how much later than its ``at_s`` the client took up a request of an open loop.
    """

    wall_s: float
    in_flight_area_s: float
    full_s: float
    users_area_s: float
    lag_p50_s: float
    lag_p99_s: float
    lag_max_s: float
    cpu_share: float
    late_p99_s: float | None = None
    ran_out: str | None = None


FromParent = Plan | Start | Stop
FromProcess = Ready | Failed | InFlight | Recording | Exchange | ProcessFacts
