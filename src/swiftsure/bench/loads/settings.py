"""What a load, or a sweep over loads, is asked to be, and the requests of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from swiftsure.bench.client import schedules
from swiftsure.bench.exchange import Prompt, Request, Trial
from swiftsure.bench.figures.load import SLICES
from swiftsure.bench.prompts.change import cold, nonce
from swiftsure.errors import UsageError

ROW = "sweep"
MOST_USERS = 4096
MOST_REQUESTS = 100_000  # of one load
_FEWEST_REQUESTS = SLICES + 1  # of one load: fewer have no interval; the last one's leaving ends the window
_OPENING = 0.25  # of an open loop: so much of its time, at its start, is in no figure

Kind = Literal["users", "rate"]
Arrivals = Literal["poisson", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """``kind``: ``users`` of a closed loop, or the ``rate`` of an open one, requests a second. ``last`` above ``first``: a sweep.

    A closed loop sends ``per_user`` requests for each user after its opening wave; an open one lasts ``seconds``, its opening quarter not
    counted. ``warm``: prompts go as they are, not cold. Raises UsageError for values outside their rules.
    """

    kind: Kind
    first: float
    last: float
    factor: float = 2.0
    per_user: int = 4
    seconds: float = 30.0
    arrivals: Arrivals = "poisson"
    seed: int = 0
    warm: bool = False
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lowest = 1 if self.kind == "users" else 0.001
        highest = MOST_USERS if self.kind == "users" else MOST_REQUESTS
        if not lowest <= self.first <= self.last <= highest:
            raise UsageError(f"{self.kind} must lie in {lowest}..{highest} and rise, got {self.first:g} to {self.last:g}")
        if not 1.1 <= self.factor <= 100:
            raise UsageError(f"the factor of a sweep must lie in 1.1..100, got {self.factor:g}")
        if not 1 <= self.per_user <= 1000:
            raise UsageError(f"requests a user must lie in 1..1000, got {self.per_user}")
        if not 1 <= self.seconds <= 86_400:
            raise UsageError(f"the time of a load must lie in 1..86400 seconds, got {self.seconds:g}")
        if self.arrivals not in ("poisson", "constant"):
            raise UsageError(f"arrivals must be poisson or constant, got {self.arrivals!r}")
        if self.max_tokens is not None and not 1 <= self.max_tokens <= 1_000_000:
            raise UsageError(f"max_tokens must lie in 1..1000000, got {self.max_tokens}")
        if self.kind == "rate" and self.last * self.seconds > MOST_REQUESTS:
            raise UsageError(f"a load may have {MOST_REQUESTS} requests, got {self.last:g} a second for {self.seconds:g} s")

    @property
    def is_sweep(self) -> bool:
        return self.last > self.first

    def name(self, load: float) -> str:
        """``8 users``, ``2.5 requests/s``."""
        if self.kind == "rate":
            return f"{load:.4g} requests/s"
        return f"{load:g} user{'' if load == 1 else 's'}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def requests_of(settings: LoadSettings, prompts: Sequence[Prompt], load: float, *, after: int = 0) -> list[Request]:
    """Those of one load, with an opening part that is marked as warm-up; the prompts come in turn, cold ones each with its own nonce.

    ``after``: where the repeats of their trials begin, so that a load that was cut off and is measured anew has other trials.
    """
    requests = _closed(settings, prompts, int(load)) if settings.kind == "users" else _open(settings, prompts, load)
    return [replace(request, trial=replace(request.trial, repeat=request.trial.repeat + after)) for request in requests]


def _closed(settings: LoadSettings, prompts: Sequence[Prompt], users: int) -> Iterator[Request]:
    """The opening wave asks the n-th user for n parts of an answer, so that users do not go in step afterwards."""
    for user in range(users):
        prompt = _prompt(settings, prompts, user)
        shorter = replace(prompt, max_tokens=max(1, prompt.max_tokens * (user + 1) // users))
        yield Request(prompt=shorter, trial=_trial(prompt, users=users, repeat=user, warm_up=True))
    for number in range(max(_FEWEST_REQUESTS, settings.per_user * users)):
        prompt = _prompt(settings, prompts, number)
        yield Request(prompt=prompt, trial=_trial(prompt, users=users, repeat=number))


def _open(settings: LoadSettings, prompts: Sequence[Prompt], rate: float) -> Iterator[Request]:
    count = max(_FEWEST_REQUESTS, round(rate * settings.seconds))
    opening = math.ceil(count * _OPENING)
    if settings.arrivals == "constant":
        times = schedules.constant(opening + count, rate_per_s=rate)
    else:
        times = schedules.poisson(opening + count, rate_per_s=rate, seed=settings.seed)
    for number, at_s in enumerate(times):
        prompt = _prompt(settings, prompts, number)
        warm_up = number < opening
        repeat = number if warm_up else number - opening
        yield Request(prompt=prompt, trial=_trial(prompt, users=1, rate_per_s=rate, repeat=repeat, warm_up=warm_up), at_s=at_s)


def _prompt(settings: LoadSettings, prompts: Sequence[Prompt], number: int) -> Prompt:
    prompt = prompts[number % len(prompts)]
    return prompt if settings.warm else cold(prompt, nonce())


def _trial(prompt: Prompt, *, users: int, repeat: int, rate_per_s: float | None = None, warm_up: bool = False) -> Trial:
    return Trial(round=1, row=ROW, users=users, prompt=prompt.name, repeat=repeat, rate_per_s=rate_per_s, warm_up=warm_up)
