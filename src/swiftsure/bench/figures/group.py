"""All figures of the exchanges that share a row, a number of users and a rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from swiftsure.bench.exchange import Exchange
from swiftsure.bench.figures.definitions import DEFINITIONS, PERCENTILES
from swiftsure.bench.figures.estimate import Estimate, Floats, Sample
from swiftsure.bench.figures.load import Load, keeps, measure_load, rate, share, split_loads
from swiftsure.bench.figures.reading import Reading
from swiftsure.bench.figures.settings import Settings
from swiftsure.bench.percentiles import percentile_of_sorted

POOLED = {"itl": "gaps_s", "itl_token": "token_gaps_s"}
"""Figures taken over gaps, not over exchanges, and where a reading keeps them."""
PER_EXCHANGE = tuple(name for name, d in DEFINITIONS.items() if d.spread and name not in POOLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """``round`` None: over all rounds. ``figures`` by name (``ttft_p50``, ``aggregate``); one that could not be had has a value of None and
    words. ``refused``: why there are no figures at all. ``itl_curve``: the 0th to 100th percentile of all gaps, in seconds."""

    row: str
    users: int
    rate_per_s: float | None = None
    round: int | None = None
    started: str | None = None
    exchanges: int = 0
    succeeded: int = 0
    warm_up: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    bursts: int = 0
    censored: int = 0
    hidden_reasoning: int = 0
    tokens_by: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Estimate] = field(default_factory=dict)
    itl_curve: Sequence[float] = ()
    refused: str | None = None

    @property
    def name(self) -> str:
        """As a person reads it: ``cold``, ``sweep, 8 users``, ``sweep, 2.5 a second``."""
        if self.rate_per_s is not None:
            return f"{self.row}, {self.rate_per_s:g} a second"
        return self.row if self.users == 1 else f"{self.row}, {self.users} users"

    def value(self, name: str) -> float | None:
        estimate = self.figures.get(name)
        return None if estimate is None else estimate.value

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        figures = {name: estimate.to_dict() for name, estimate in self.figures.items()}
        return plain | {
            "errors": dict(self.errors),
            "tokens_by": dict(self.tokens_by),
            "figures": figures,
            "itl_curve": list(self.itl_curve),
            "name": self.name,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Group:
        values = {name: plain[name] for name in cls.__slots__}
        return cls(**values | {"figures": {name: Estimate.from_dict(estimate) for name, estimate in plain["figures"].items()}})


def build_group(
    exchanges: Sequence[Exchange],
    readings: Sequence[Reading],
    settings: Settings,
    *,
    round_number: int | None = None,
    refused: str | None = None,
) -> Group:
    """``exchanges``: all of one row, number of users and rate, the opening wave included; ``readings``: of those that count."""
    trial = exchanges[0].trial
    well = [reading for reading in readings if reading.error is None]
    facts: dict[str, Any] = {
        "row": trial.row,
        "users": trial.users,
        "rate_per_s": trial.rate_per_s,
        "round": round_number,
        "started": min(exchange.started for exchange in exchanges),
        "exchanges": len(readings),
        "succeeded": len(well),
        "warm_up": sum(exchange.trial.warm_up for exchange in exchanges),
        "errors": dict(sorted(Counter(reading.error for reading in readings if reading.error).items())),
        "bursts": sum(reading.burst for reading in well),
        "censored": sum(reading.censored for reading in readings),
        "hidden_reasoning": sum(reading.hidden_reasoning for reading in well),
        "tokens_by": dict(sorted(Counter(reading.tokens_by or "nobody" for reading in well).items())),
    }
    if refused is not None:
        return Group(**facts | {"exchanges": len(exchanges) - facts["warm_up"]}, refused=refused)
    rounds = len({reading.round for reading in well})
    loads = [measure_load(load, settings.slo) for cell in _cells(exchanges) for load in split_loads(cell)]
    figures = own_figures(well, settings) | _shared(readings, [load for load in loads if load is not None], settings, rounds)
    return Group(**facts, figures=figures, itl_curve=_curve(well))


def own_figures(well: Sequence[Reading], settings: Settings, names: Sequence[str] | None = None) -> dict[str, Estimate]:
    """Percentiles over exchanges and over gaps. ``names``: only these definitions."""
    sample = Sample([r.prompt for r in well], [r.round for r in well], resamples=settings.resamples, seed=settings.seed)
    found: dict[str, Estimate] = {}
    for name in PER_EXCHANGE:
        if names is not None and name not in names:
            continue
        values = np.array([reading.values.get(name, np.nan) for reading in well])
        if name in ("connect", "cost", "cached_tokens", "prompt_tokens") and np.isnan(values).all():
            continue  # nobody said: no figure, rather than four lines that say so
        estimates = sample.percentiles(values, PERCENTILES)
        found |= {f"{name}_p{q}": _explained(e, name, well) for q, e in zip(PERCENTILES, estimates, strict=True)}
    for name, kept in POOLED.items():
        if names is None or name in names:
            estimates = sample.pooled([getattr(reading, kept) for reading in well], PERCENTILES)
            found |= {f"{name}_p{q}": _explained(e, name, well) for q, e in zip(PERCENTILES, estimates, strict=True)}
    return found


def _explained(estimate: Estimate, name: str, well: Sequence[Reading]) -> Estimate:
    """Why there is no value, by the reason most exchanges give."""
    reasons = Counter(reading.missing[name] for reading in well if name in reading.missing)
    if estimate.value is not None or estimate.count or not reasons:
        return estimate
    reason, times = reasons.most_common(1)[0]
    return Estimate(value=None, words=f"not measurable: {reason} ({times} of {len(well)} exchanges)")


def _shared(readings: Sequence[Reading], loads: Sequence[Load], settings: Settings, rounds: int) -> dict[str, Estimate]:
    failed = sum(reading.error is not None for reading in readings)
    window = sum(load.window_s for load in loads)
    found = {
        "aggregate": rate(loads, [load.tokens for load in loads], rounds),
        "requests_per_s": rate(loads, [load.answers for load in loads], rounds),
        "error_share": share(failed, len(readings)),
    }
    if failed < len(readings) and not any(reading.tokens for reading in readings):
        found["aggregate"] = Estimate(value=None, words="nobody counted the tokens")
    if window > 0:
        flying = sum(load.in_flight * load.window_s for load in loads) / window
        found["in_flight"] = Estimate(value=flying, count=len(readings), exchanges=len(readings), rounds=rounds)
    if settings.slo is not None:
        found["goodput"] = rate(loads, [load.good for load in loads if load.good is not None], rounds)
        found["good_share"] = share(sum(keeps(reading, settings.slo) for reading in readings), len(readings))
    return found


def _cells(exchanges: Sequence[Exchange]) -> list[list[Exchange]]:
    by_round: dict[int, list[Exchange]] = {}
    for exchange in exchanges:
        by_round.setdefault(exchange.trial.round, []).append(exchange)
    return [by_round[number] for number in sorted(by_round)]


def _curve(well: Sequence[Reading]) -> list[float]:
    gaps: list[Floats] = [reading.gaps_s for reading in well if len(reading.gaps_s)]
    if not gaps:
        return []
    pooled = np.sort(np.concatenate(gaps))
    return [percentile_of_sorted(pooled, percent) for percent in range(101)]
