"""What all users of a load had together: tokens/s, answers/s, good answers/s, requests in flight.

A load is one uninterrupted run of the client on one clock. Its window goes from the first request that counts (the opening wave does not,
failed ones do: the time in which an endpoint failed is time) to the moment when the last one left (from then on users fall idle); with one
user, or too few requests for that, to the last token. Tokens of the opening wave that fall into the window were made in it and are counted;
answers are counted by when their request left. The request whose leaving ends the window lies outside: n of them span n - 1 waits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np

from swiftsure.bench.exchange import Exchange
from swiftsure.bench.figures.estimate import Estimate, Floats
from swiftsure.bench.figures.reading import Reading, content, read
from swiftsure.bench.figures.settings import Slo
from swiftsure.records.statistics import student_t

SLICES = 10
"""Equal parts of a window, whose spread gives the interval (batch means)."""
FULL_AFTER = 3
"""Requests a user from which a load is long enough to be cut where its users begin to fall idle."""
_CLOCK_APART_S = 3.0  # starts of two loads lie further apart; times of day may be whole seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``readings``: those that count. ``tokens``, ``answers``, ``good``: by slice, ``(SLICES,)``. ``in_flight``: mean over the window."""

    window_s: float
    tokens: Floats
    answers: Floats
    good: Floats | None
    in_flight: float
    exchanges: int  # those that count, failed ones included


def split_loads(exchanges: Sequence[Exchange]) -> list[list[Exchange]]:
    """Exchanges of one cell by load: those whose clocks started at the same time of day. In the order of time."""
    if not exchanges:
        return []
    offsets = [_time_of_day(exchange.started) - exchange.sent_s for exchange in exchanges]
    order = sorted(range(len(exchanges)), key=lambda i: offsets[i])  # stable: the order given decides among equals
    loads = [[exchanges[order[0]]]]
    for before, i in pairwise(order):
        if offsets[i] - offsets[before] > _CLOCK_APART_S:
            loads.append([])
        loads[-1].append(exchanges[i])
    return loads


def measure_load(exchanges: Sequence[Exchange], slo: Slo | None) -> Load | None:
    """None where nothing that counts was sent, or all of it took no time. A load whose every request failed has a window and rates of 0."""
    readings = [(exchange, read(exchange)) for exchange in exchanges]
    counted = [(e, r) for e, r in readings if not e.trial.warm_up and math.isfinite(e.sent_s)]
    if not counted:
        return None
    start = min(e.sent_s for e, _ in counted)
    window = _end(counted) - start
    if window <= 0:
        return None
    edges = np.linspace(start, start + window, SLICES + 1)
    tokens = np.zeros(SLICES)
    for exchange, reading in readings:
        if reading.error is None:
            tokens += _tokens(exchange, edges)
    flights = [(e.sent_s, e.sent_s + flight) for e in exchanges if (flight := in_flight_s(e)) is not None]
    return Load(
        window_s=window,
        tokens=tokens,
        answers=_sent([e for e, r in counted if r.error is None], edges),
        good=None if slo is None else _sent([e for e, r in counted if keeps(r, slo)], edges),
        in_flight=math.fsum(max(0.0, min(end, edges[-1]) - max(begin, start)) for begin, end in flights) / window,
        exchanges=len(counted),
    )


def _end(counted: Sequence[tuple[Exchange, Reading]]) -> float:
    """Of the window: the last sending, where the load stood for at least three requests a user, else the last token or failure."""
    trial = counted[0][0].trial
    crowded = trial.users > 1 or trial.rate_per_s is not None
    if crowded and len(counted) > SLICES and len(counted) >= FULL_AFTER * trial.users:
        return max(exchange.sent_s for exchange, _ in counted)
    return max(e.sent_s + (r.values["e2e"] if r.error is None else in_flight_s(e) or 0.0) for e, r in counted)


def rate(loads: Sequence[Load], parts: Sequence[Floats], rounds: int) -> Estimate:
    """Sum / time over the loads, with Student's t over their slices: longer than an answer's gaps, short enough to be many."""
    if not loads:
        return Estimate(value=None, words="no load with an answer")
    total_s = math.fsum(load.window_s for load in loads)
    value = float(sum(part.sum() for part in parts)) / total_s
    rates = np.concatenate([part / (load.window_s / SLICES) for load, part in zip(loads, parts, strict=True)])
    exchanges = sum(load.exchanges for load in loads)
    answers = int(sum(load.answers.sum() for load in loads))
    if answers < SLICES:
        words = f"INCONCLUSIVE: {answers} answers, an interval needs {SLICES}"
        return Estimate(value=value, count=answers, exchanges=exchanges, rounds=rounds, words=words)
    reach = student_t(0.975, len(rates) - 1) * float(rates.std(ddof=1)) / math.sqrt(len(rates))
    return Estimate(value=value, low=max(0.0, value - reach), high=value + reach, count=answers, exchanges=exchanges, rounds=rounds)


def keeps(reading: Reading, slo: Slo) -> bool:
    """Whether an exchange kept every limit. What failed or cannot be measured keeps none."""
    if reading.error is not None:
        return False
    for name, limit in slo.limits.items():
        value = reading.values.get("itl_own_p95" if name == "itl" else name)
        if value is None or (value < limit if name == "decode" else value > limit):
            return False
    return True


def share(hits: int, count: int) -> Estimate:
    """A share with Wilson's 95 % interval; exchanges are taken as independent."""
    if not count:
        return Estimate(value=None, words="no exchange")
    z, p = 1.959964, hits / count
    middle, reach = p + z * z / (2 * count), z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    low, high = ((middle + side * reach) / (1 + z * z / count) for side in (-1, 1))
    return Estimate(value=p, low=max(0.0, min(low, p)), high=min(1.0, max(high, p)), count=count, exchanges=count)


def in_flight_s(exchange: Exchange) -> float | None:
    """From the request's first byte to the end of its stream; of broken ones as far as the record goes."""
    moments = [exchange.ended_s, exchange.last_token_s, *(a.at_s for a in exchange.arrivals[-1:])]
    known = [m for m in moments if m is not None and math.isfinite(m) and m >= 0]
    return max(known) if known and math.isfinite(exchange.sent_s) else None


def _tokens(exchange: Exchange, edges: Floats) -> Floats:
    """Tokens by slice, spread over the arrivals by their characters."""
    arrivals = content(exchange)
    if not exchange.output_tokens:
        return np.zeros(SLICES)
    sizes = np.array([max(a.characters, 1) for a in arrivals], dtype=np.float64)
    times = np.array([exchange.sent_s + a.at_s for a in arrivals])
    return np.histogram(times, bins=edges, weights=sizes * (exchange.output_tokens / sizes.sum()))[0]


def _sent(exchanges: Sequence[Exchange], edges: Floats) -> Floats:
    """Requests by the slice in which they left."""
    return np.histogram([e.sent_s for e in exchanges if e.sent_s < edges[-1]], bins=edges)[0].astype(np.float64)


def _time_of_day(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
