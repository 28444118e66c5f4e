"""What a longer prompt costs: the difference of TTFT with the context pasted above, by prompt, for each 1,000 tokens added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from swiftsure.bench.figures.estimate import MIN_VALUES, Estimate, Floats, bounds
from swiftsure.bench.figures.reading import Reading
from swiftsure.bench.figures.settings import Settings
from swiftsure.records.statistics import median


def prefill_cost(readings: Sequence[Reading], settings: Settings) -> Estimate | None:
    """Seconds for 1,000 tokens, from the rows ``cold`` and ``context`` at the fewest users that both have. None where a row is absent.

    The interval draws prompts, and within each prompt the exchanges of both rows.
    """
    well = [reading for reading in readings if reading.error is None and reading.rate_per_s is None]
    users = {row: {reading.users for reading in well if reading.row == row} for row in ("cold", "context")}
    shared = users["cold"] & users["context"]
    if not shared:
        return None
    kept = [reading for reading in well if reading.users == min(shared) and reading.row in users]
    sides = [
        {row: [r for r in kept if r.prompt == prompt and r.row == row] for row in users} for prompt in sorted({r.prompt for r in kept})
    ]
    sides = [side for side in sides if side["cold"] and side["context"]]
    added = [_added(side["cold"], side["context"], settings) for side in sides]
    usable = [(side, tokens) for side, tokens in zip(sides, added, strict=True) if tokens is not None and tokens > 0]
    rounds = len({reading.round for reading in kept})
    if not usable:
        return Estimate(value=None, words="not measurable: nobody said how many tokens the context adds", rounds=rounds)
    points = np.array([(median(_ttft(s["context"])) - median(_ttft(s["cold"]))) * 1000 / tokens for s, tokens in usable])
    exchanges = sum(len(side["cold"]) + len(side["context"]) for side, _ in usable)
    facts: dict[str, Any] = {"count": len(points), "exchanges": exchanges, "prompts": len(points), "rounds": rounds}
    if len(points) < MIN_VALUES:
        return Estimate(
            value=float(np.median(points)), words=f"INCONCLUSIVE: {len(points)} prompts, an interval needs {MIN_VALUES}", **facts
        )
    rng = np.random.Generator(np.random.PCG64(settings.seed))
    drawn = np.stack(
        [
            (_medians(side["context"], settings.resamples, rng) - _medians(side["cold"], settings.resamples, rng)) * 1000 / tokens
            for side, tokens in usable
        ]
    )  # (prompts, draws)
    picks = rng.integers(0, len(points), (len(points), settings.resamples))
    low, high = bounds(np.median(np.take_along_axis(drawn, picks, axis=0), axis=0), len(points))
    return Estimate(value=float(np.median(points)), low=low, high=high, **facts)


def _ttft(readings: Sequence[Reading]) -> list[float]:
    return [reading.values["ttft"] for reading in readings]


def _medians(readings: Sequence[Reading], draws: int, rng: np.random.Generator) -> Floats:
    values = np.array(_ttft(readings))
    return np.asarray(np.median(values[rng.integers(0, len(values), (draws, len(values)))], axis=1), np.float64)


def _added(cold: Sequence[Reading], context: Sequence[Reading], settings: Settings) -> float | None:
    counts = [[r.values["prompt_tokens"] for r in side if "prompt_tokens" in r.values] for side in (cold, context)]
    if counts[0] and counts[1]:
        return median(counts[1]) - median(counts[0])
    return settings.context_tokens
