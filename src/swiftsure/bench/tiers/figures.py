"""Figures from rides, and what they say of the claim that a fast tier is sold by. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swiftsure.bench.percentiles import percentile
from swiftsure.bench.tiers.boarding import Boarding, Ride
from swiftsure.records.statistics import median

CLAIMED_SPEED, CLAIMED_PRICE = 2.5, 6.0
"""A provider's fast tier: up to 2.5x the tokens per second of its standard tier at 6x the price (claimed, not reproduced by others)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of all requests of one setting. Times in seconds, rates in tokens/s.

    user_tokens_per_s: the median request's, from its first token on. total_tokens_per_s: all tokens over the time from the first arrival to
    the last token, prompts included. cost_per_million: of new tokens, at the stated price of an hour of the machine. gap_p99_s: between two
    deliveries of one request.
    """

    seats: int
    boarding: Boarding
    requests: int
    user_tokens_per_s: float
    total_tokens_per_s: float
    wait_p50_s: float
    wait_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    gap_p99_s: float
    cost_per_million: float
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def figures(groups: Sequence[Sequence[Ride]], *, seats: int, boarding: Boarding, price_hour: float) -> Figures:
    """``groups``: rides with clocks of their own, one group after the other."""
    rides = [ride for group in groups for ride in group]
    wall = sum(max(ride.ended_s for ride in group) - min(ride.arrived_s for ride in group) for group in groups)
    total = sum(ride.tokens for ride in rides) / wall
    rates = [rate for ride in rides if (rate := ride.tokens_per_s) is not None]
    gaps = [gap for ride in rides for gap in ride.gaps_s]
    return Figures(
        seats=seats,
        boarding=boarding,
        requests=len(rides),
        user_tokens_per_s=median(rates) if rates else total,
        total_tokens_per_s=total,
        wait_p50_s=median(ride.wait_s for ride in rides),
        wait_p99_s=percentile((ride.wait_s for ride in rides), 99),
        ttft_p50_s=median(ride.ttft_s for ride in rides),
        ttft_p99_s=percentile((ride.ttft_s for ride in rides), 99),
        gap_p99_s=percentile(gaps, 99) if gaps else 0.0,
        cost_per_million=price_hour / 3600.0 / total * 1e6,
        wall_s=wall,
    )


def middle(repeats: Sequence[Figures]) -> Figures:
    """The medians of one setting's repeats, figure by figure."""
    first = repeats[0]
    medians = {
        name: median(getattr(one, name) for one in repeats) for name in first.__slots__ if name not in ("seats", "boarding", "requests")
    }
    return Figures(seats=first.seats, boarding=first.boarding, requests=first.requests, **medians)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A batch of the standard tier against leaving alone. speed: how much faster a lone request's tokens come. price: what its tokens cost
    more, as the machine's time goes."""

    seats: int
    speed: float
    price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """``speed`` times the tokens per second for ``price`` times the price: at which batches of the standard tier it comes true here.

    A larger batch makes the lone request look faster, but also its tokens dearer: both must hold. largest: the largest batch at which they
    do, None where there is none. beyond: that it is the largest that was measured, so that the claim may hold further.
    """

    speed: float
    price: float
    steps: tuple[Step, ...]
    largest: int | None
    beyond: bool

    def sentence(self) -> str:
        claim = f"{self.speed:g}x at {self.price:g}x the price"
        if self.largest is None:
            return f'"{claim}" does not come true at any batch measured: {self._why_not()}'
        step = next(step for step in self.steps if step.seats == self.largest)
        further = ", the largest measured" if self.beyond else ""
        true = [step.seats for step in self.steps if self._holds(step)]
        since = f" (from {min(true)} on)" if min(true) < self.largest else ""
        return (
            f'"{claim}" comes true up to a standard batch of {self.largest}{further}{since}: '
            f"alone {step.speed:.2f}x the tokens/s at {step.price:.2f}x the cost"
        )

    def _why_not(self) -> str:
        fastest = max(self.steps, key=lambda step: step.speed, default=None)
        if fastest is None:
            return "it needs one request alone and a larger batch beside it"
        if fastest.speed < self.speed:
            return f"alone is at most {fastest.speed:.2f}x as fast, beside a batch of {fastest.seats}"
        dear = next(step for step in self.steps if step.speed >= self.speed)
        return f"where alone is {dear.speed:.2f}x as fast, beside a batch of {dear.seats}, it costs {dear.price:.2f}x"

    def _holds(self, step: Step) -> bool:
        return step.speed >= self.speed and step.price <= self.price

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence()}


def claim(curve: Sequence[Figures], *, speed: float = CLAIMED_SPEED, price: float = CLAIMED_PRICE) -> Claim:
    """What the curve says of it. Without a point of one seat there is nothing to compare with, and no batch holds."""
    alone = next((point for point in curve if point.seats == 1), None)
    steps = tuple(
        Step(
            seats=point.seats,
            speed=alone.user_tokens_per_s / point.user_tokens_per_s,
            price=point.total_tokens_per_s / alone.total_tokens_per_s,
        )
        for point in sorted(curve, key=lambda point: point.seats)
        if alone is not None and point.seats > 1
    )
    true = [step.seats for step in steps if step.speed >= speed and step.price <= price]
    largest = max(true, default=None)
    return Claim(speed=speed, price=price, steps=steps, largest=largest, beyond=largest is not None and largest == steps[-1].seats)
