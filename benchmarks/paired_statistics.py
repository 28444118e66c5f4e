"""How often the intervals and decisions of ``swiftsure verify`` are right, by simulation where the truth is known.

    python -m benchmarks.paired_statistics [--trials N] [--processes N] [--json FILE]

Each row is a setting that users have: items, how often they flip, how far the candidate is truly worse, clusters. Counted over ``--trials``
samples (1,000; tables of counts, where a trial is cheap, get five times as many): how often the 95 % interval covers the true difference;
where the candidate is worse by exactly the margin, how often it is wrongly accepted (the level of TOST) and how often it is wrongly called
inferior. A row holds with coverage in 93 to 97 % and errors of at most 5 %, give or take what so many trials leave to chance. Where samples
change so seldom that more than half of the intervals call themselves conservative, 93 % is asked for and no upper bound: no interval of so
few outcomes can do better. The seeds are fixed. Exit code 1 where a row does not hold.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.records.correct_cost import correct_cost
from swiftsure.records.paired import CONSERVATIVE, PairedComparison, compare_counts, compare_paired
from swiftsure.records.statistics import paired_ratio
from swiftsure.verify.judging.big import accuracy_bounds

SCHEMA = "swiftsure.paired_statistics/1"
MARGIN = 0.03
LEAST, MOST, LEVEL = 0.93, 0.97, 0.05
RESAMPLES = 1000
COUNTS_FACTOR = 5
"""Samples that are a table of counts are compared once for each table, so more of them are drawn."""
Rng: TypeAlias = np.random.Generator
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``changed``: median over samples of the items, or clusters, that changed. Shares are of ``trials``; None: nothing to err in.

    ``covered``: the interval held the truth; else it lay ``above`` or ``below`` it. ``accepted``: called not inferior though worse by the
    margin; ``rejected``: called inferior though not worse by more. ``conservative``: the interval said so of itself.
    """

    table: str
    setting: str
    difference: float
    trials: int
    changed: float | None
    covered: float | None
    above: float | None
    below: float | None
    conservative: float
    accepted: float | None
    rejected: float | None

    @property
    def holds(self) -> bool:
        """Within the bounds, give or take 2.6 standard errors of a share at its bound."""
        noise = 2.6 * math.sqrt(LEVEL * (1 - LEVEL) / self.trials)
        most = 1.0 if self.conservative > 0.5 else MOST + noise
        covers = self.covered is None or LEAST - noise <= self.covered <= most
        return covers and all(error is None or error <= LEVEL + noise for error in (self.accepted, self.rejected))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    row: Callable[[Rng, int], Row]
    trials: int
    seed: int

    def run(self) -> Row:
        return self.row(np.random.default_rng(self.seed), self.trials)


class Tally:
    """Counts what comparisons say beside what is true."""

    def __init__(self, truth: float) -> None:
        self.truth = truth
        self.said: Counter[str] = Counter()
        self.changed: list[float] = []

    def add(self, found: PairedComparison, changed: float, times: int = 1) -> None:
        assert found.low is not None
        assert found.high is not None
        assert found.interval is not None
        self.bounds(found.low, found.high, times)
        self.said["conservative"] += times * found.interval.endswith(CONSERVATIVE)
        self.said[found.decision or "none"] += times
        self.changed += [changed] * times

    def bounds(self, low: float, high: float, times: int = 1) -> None:
        where = "above" if low > self.truth + 1e-9 else "below" if high < self.truth - 1e-9 else "covered"
        self.said[where] += times
        self.said["trials"] += times

    def row(self, table: str, setting: str) -> Row:
        share = {name: count / self.said["trials"] for name, count in self.said.items()}
        at_margin = self.truth == -MARGIN and bool(self.changed)
        return Row(
            table=table,
            setting=setting,
            difference=self.truth,
            trials=self.said["trials"],
            changed=float(np.median(self.changed)) if self.changed else None,
            covered=share.get("covered", 0.0),
            above=share.get("above", 0.0),
            below=share.get("below", 0.0),
            conservative=share.get("conservative", 0.0),
            accepted=share.get("non_inferior", 0.0) if at_margin else None,
            rejected=share.get("inferior", 0.0) if at_margin else None,
        )


# --- right and wrong --------------------------------------------------------------------------------------------------------


def independent(rng: Rng, trials: int, *, items: int, rate: float, difference: float) -> Row:
    """Flips of independent items are a multinomial draw; each table of counts is compared once."""
    shares = [(rate - difference) / 2, (rate + difference) / 2, 1 - rate]
    tables, times = np.unique(rng.multinomial(items, shares, trials * COUNTS_FACTOR)[:, :2], axis=0, return_counts=True)
    tally = Tally(difference)
    margin = MARGIN if difference == -MARGIN else None
    for (lost, gained), count in zip(tables.tolist(), times.tolist(), strict=True):
        found = compare_counts(both=0, lost=lost, gained=gained, neither=items - lost - gained, margin=margin)
        tally.add(found, lost + gained, count)
    return tally.row("right or wrong, independent items", f"{items:,} items, {rate:.0%} flip")


def sizes_of(clusters: int, mean: int) -> NDArray[np.int64]:
    """Sizes from half the mean to half as much again."""
    return np.linspace(mean / 2, mean * 1.5, clusters).round().astype(np.int64)


def clustered(rng: Rng, trials: int, *, clusters: int, mean: int, rate: float, correlation: float, difference: float) -> Row:
    """Each cluster has rates of losing and gaining of its own, from a Dirichlet distribution with this intra-cluster correlation."""
    sizes = sizes_of(clusters, mean)
    names = np.repeat(np.arange(clusters), sizes).tolist()
    shares = np.array([(rate - difference) / 2 + 1e-9, (rate + difference) / 2 + 1e-9, 1 - rate])
    tally = Tally(difference)
    margin = MARGIN if difference == -MARGIN else None
    for _ in range(trials):
        drawn = rng.multinomial(sizes, rng.dirichlet(shares * (1 - correlation) / correlation, clusters))  # (clusters, 3)
        d = np.concatenate([np.repeat([-1.0, 1.0, 0.0], counts) for counts in drawn])
        found = compare_paired((d <= 0).astype(float), (d <= 0) + d, margin=margin, clusters=names, resamples=RESAMPLES)
        tally.add(found, int((drawn[:, 0] != drawn[:, 1]).sum()))
    setting = f"{clusters} clusters of {mean}, {rate:.0%} flip, correlation {correlation:g}"
    return tally.row("right or wrong, clusters", setting)


# --- other scores -----------------------------------------------------------------------------------------------------------

SCORES: Mapping[str, Callable[[Rng, float, int], Floats]] = {
    "normal": lambda rng, mean, n: rng.normal(mean, 0.1, n),
    "skewed": lambda rng, mean, n: mean + 0.06 - rng.exponential(0.06, n),
    "rare": lambda rng, mean, n: np.where(rng.random(n) < 0.1, 10 * mean, 0.0),
}
"""Differences of scores, ``(n,)``, with this mean."""


def scores(rng: Rng, trials: int, *, kind: str, items: int, clusters: int | None, difference: float) -> Row:
    """Scores that are not right or wrong; in clusters half of the variance is common to a cluster (correlation 0.5)."""
    tally = Tally(difference)
    margin = MARGIN if difference == -MARGIN else None
    names = None if clusters is None else np.repeat(np.arange(clusters), sizes_of(clusters, items // clusters)).tolist()
    for _ in range(trials):
        if names is None:
            d = SCORES[kind](rng, difference, items)
        else:
            common = SCORES[kind](rng, difference, clusters or 0)[names]
            d = difference + math.sqrt(0.5) * (common - difference + SCORES[kind](rng, difference, len(names)) - difference)
        base = rng.uniform(0.3, 0.9, len(d))
        found = compare_paired(base, base + d, margin=margin, clusters=names, resamples=RESAMPLES)
        tally.add(found, int((np.abs(d) > 1e-12).sum()) if clusters is None else clusters)
    where = f"{items:,} items" if clusters is None else f"{clusters} clusters of {items // clusters}"
    return tally.row("other scores", f"{kind} differences, {where}")


# --- speed, and accuracy by size --------------------------------------------------------------------------------------------


def speedups(rng: Rng, trials: int, *, groups: int, pairs: int, noise: float) -> Row:
    """Ratios of times: log-normal noise of a pair, a level of its own for each prompt."""
    tally = Tally(1.25)
    for _ in range(trials * COUNTS_FACTOR // 2):
        logs = math.log(1.25) + rng.normal(0.0, noise, (groups, pairs))
        ratio = paired_ratio([[(math.exp(x), 1.0) for x in row] for row in logs.tolist()])
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        tally.bounds(ratio.low, ratio.high)
    return tally.row("speed-up, a ratio of times", f"{groups} prompts of {pairs} pairs, noise {noise:.0%}")


def bars(rng: Rng, trials: int, *, items: int, accuracy: float) -> Row:
    """Accuracy of one input size against a bar at the truth: both one-sided bounds err in at most 5 %."""
    counts, times = np.unique(rng.binomial(items, accuracy, trials * COUNTS_FACTOR), return_counts=True)
    said: Counter[str] = Counter()
    for right, count in zip(counts.tolist(), times.tolist(), strict=True):
        low, high = accuracy_bounds([1.0] * right + [0.0] * (items - right))
        assert low is not None
        assert high is not None
        said["accepted"] += count * (low >= accuracy)
        said["rejected"] += count * (high < accuracy)
    return Row(
        table="accuracy of an input size against a bar",
        setting=f"{items:,} items, {accuracy:.0%} right",
        difference=0.0,
        trials=trials * COUNTS_FACTOR,
        changed=None,
        covered=None,
        above=None,
        below=None,
        conservative=0.0,
        accepted=said["accepted"] / (trials * COUNTS_FACTOR),
        rejected=said["rejected"] / (trials * COUNTS_FACTOR),
    )


def costs(rng: Rng, trials: int, *, clusters: int, mean: int, right: float) -> Row:
    """Seconds per correct result, baseline's over the candidate's: the candidate is three times as fast and right two thirds as often."""
    sizes = sizes_of(clusters, mean)
    names = np.repeat(np.arange(clusters), sizes)
    tally = Tally(2.0)
    for _ in range(trials):
        level = rng.beta(right * 4, (1 - right) * 4, clusters)[names]  # intra-cluster correlation 0.2
        ease = rng.lognormal(0.0, 0.3, clusters)[names]
        a, b = rng.random(len(names)) < level, rng.random(len(names)) < level * 2 / 3
        times = [ease * rng.lognormal(0.0, 0.5, len(names)) * scale for scale in (3.0, 1.0)]
        found = correct_cost(baseline_s=times[0], candidate_s=times[1], baseline=a, candidate=b, clusters=names.tolist())
        if found is not None and found.ratio.low is not None and found.ratio.high is not None:
            tally.bounds(found.ratio.low, found.ratio.high)
    return tally.row("seconds per correct result, baseline over candidate", f"{clusters} clusters of {mean}, {right:.0%} right")


# --- all of it --------------------------------------------------------------------------------------------------------------


def jobs(trials: int) -> list[Job]:
    """Every row, in the order of the page, each with a seed of its own."""
    rows: list[Callable[[Rng, int], Row]] = []
    for items in (100, 200, 500, 1000, 2000):
        for rate in (0.01, 0.03, 0.1, 0.3):
            rows += [partial(independent, items=items, rate=rate, difference=d) for d in (0.0, -MARGIN) if rate + d >= 0]
    for clusters, mean in ((20, 10), (20, 30), (50, 10), (100, 10)):
        for rate in (0.03, 0.1, 0.3):
            for correlation in (0.05, 0.2) if mean * clusters < 600 else (0.2,):
                setting = {"clusters": clusters, "mean": mean, "rate": rate, "correlation": correlation}
                rows += [partial(clustered, **setting, difference=d) for d in (0.0, -MARGIN)]  # type: ignore[arg-type]
    for kind in SCORES:
        rows += [partial(scores, kind=kind, items=items, clusters=None, difference=-MARGIN) for items in (60, 200, 1000)]
    for kind in ("normal", "skewed"):
        rows += [partial(scores, kind=kind, items=10 * n, clusters=n, difference=-MARGIN) for n in (20, 50, 100)]
    rows += [partial(speedups, groups=groups, pairs=pairs, noise=0.1) for groups, pairs in ((20, 1), (20, 3), (4, 3), (1, 6))]
    rows += [partial(bars, items=items, accuracy=p) for items in (20, 50, 100, 500) for p in (0.6, 0.8, 0.95)]
    rows += [
        partial(costs, clusters=clusters, mean=mean, right=p) for clusters, mean in ((20, 10), (100, 1), (100, 10)) for p in (0.3, 0.7)
    ]
    return [Job(row=row, trials=trials, seed=1000 + number) for number, row in enumerate(rows)]


def measure(trials: int, processes: int) -> dict[str, Any]:
    """The record: settings and rows."""
    wanted = jobs(trials)
    if processes == 1:
        rows = [job.run() for job in wanted]
    else:
        with get_context("spawn").Pool(processes) as pool:
            rows = pool.map(Job.run, wanted, chunksize=1)
    return {
        "schema": SCHEMA,
        "trials": trials,
        "margin": MARGIN,
        "bounds": {"least": LEAST, "most": MOST, "errors": LEVEL},
        "rows": [asdict(row) | {"holds": row.holds} for row in rows],
    }


def tables(record: Mapping[str, Any]) -> str:
    """The rows as Markdown, a table for each kind."""
    parts = []
    for name in dict.fromkeys(row["table"] for row in record["rows"]):
        lines = [
            f"**{name[0].upper()}{name[1:]}**",
            "",
            "| setting | true difference | changed (median) | covered | missed above / below | wrongly accepted | wrongly inferior |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        lines += [line(row) for row in record["rows"] if row["table"] == name]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def line(row: Mapping[str, Any]) -> str:
    covered = percent(row["covered"]) + (", conservative" if row["conservative"] > 0.5 else "")
    missed = "" if row["covered"] is None else f"{percent(row['above'])} / {percent(row['below'])}"
    truth = f"{row['difference']:g}" if row["covered"] is not None else ""
    changed = "" if row["changed"] is None else f"{row['changed']:g}"
    cells = [row["setting"], truth, changed, covered, missed, percent(row["accepted"]), percent(row["rejected"])]
    return "| " + " | ".join(cells) + " |" + ("" if row["holds"] else " **does not hold**")


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired_statistics", description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000, help="samples of a row; default 1,000")
    parser.add_argument("--processes", type=int, default=1, help="rows at a time; default 1")
    parser.add_argument("--json", type=Path, help="write the record there")
    options = parser.parse_args(arguments)
    if options.trials < 1 or options.processes < 1:
        parser.error(f"--trials and --processes must be at least 1, got {options.trials} and {options.processes}")
    record = measure(options.trials, options.processes)
    print(tables(record), end="")
    if options.json is not None:
        from swiftsure.records.run_record import write_json

        write_json(options.json, record)
    broken = sum(not row["holds"] for row in record["rows"])
    print(f"{len(record['rows']) - broken} of {len(record['rows'])} rows hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
