"""Is the candidate as good as the baseline, item by item? Differences with an interval, flips, and non-inferiority at a margin.

Both sides answer the same items, so what is compared is each item with itself: a difference of two accuracies says nothing about how many
items flipped. Items may belong to clusters (several questions on one text): clusters, not items, are then drawn and counted as independent.

- **Interval** (95 %), chosen by simulation (docs/paired-statistics.md). Right and wrong: Tango's score interval; with clusters, on counts
  divided by the design effect (Rao and Scott 1992, Biometrics 48, 577-585), with Student's t at twice the changed clusters less two degrees
  of freedom: a variance that K of many clusters make up has about 2 K (Satterthwaite 1946, Biometrics Bulletin 2, 110-114). Other scores:
  the paired bootstrap-t over clusters (Efron and Tibshirani 1993, chapter 12). ``interval="bootstrap"``: percentiles of the paired
  bootstrap, drawn a little wider for few clusters (Hesterberg 2015, The American Statistician 69, 371-386). Where few flipped, outcomes are
  too few for 95 % to be met, and the interval says that it is conservative.
- **Non-inferiority**: at ``alpha`` 0.05 against "worse by the margin or more". Right and wrong: an exact test (see ``flips.py``). Clusters
  and real scores: Student's t over clusters, with the worst cluster counted once more, so that rare losses that are absent are not
  taken for equality; where few clusters changed, also the exact test on clusters. Of several tests the largest p value counts.
- **Decision**: ``non_inferior``; ``inferior`` where worse by more than the margin is shown in the same way; else ``undecided``, with the
  number of items that would probably decide. "Not significant" is never "equal".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swiftsure.records.flips import mcnemar_exact, non_inferiority_exact, score_interval
from swiftsure.records.statistics import student_cdf, student_t

Decision: TypeAlias = Literal["non_inferior", "inferior", "undecided"]
Interval: TypeAlias = Literal["auto", "bootstrap", "score"]

ALPHA = 0.05
POWER = 0.8
RESAMPLES = 10_000
MIN_FLIPS = 6
"""With fewer flips of independent items an interval covers more than 95 %, and the bootstrap too little."""
MIN_FLIPPED_FOR_BOOTSTRAP = 20
"""With fewer changed clusters of scores beyond right and wrong, the score interval is taken too, and the wider bounds count."""
MIN_FLIPPED_CLUSTERS = 10
"""With fewer clusters that changed, Student's t knows their spread too badly to stand alone."""
MIN_CHANGED_CLUSTERS = 3
"""With fewer, nothing is known about how far a cluster that changes falls."""
MIN_CLUSTERS = 5
"""Fewer independent units than this make no interval and no decision."""
BOOTSTRAP, SCORE = "paired bootstrap, percentile", "score (Tango)"
BOOTSTRAP_T = "paired bootstrap-t"
CLUSTERED = "score (Tango), design effect (Rao and Scott)"
CONSERVATIVE = ", conservative: few changed"
_FAR = 1e9  # standard errors, where a drawn sample has no spread at all

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Baseline and candidate on the same items. Means, differences and bounds are in the score's units: shares for right and wrong.

    ``lost`` counts items on which the candidate does worse, ``gained`` those on which it does better. ``p_non_inferior`` belongs to "not
    worse by the margin", ``p_not_better`` to "not better by the margin"; both small is equivalence (TOST: the larger counts).
    """

    items: int
    clusters: int
    baseline: float
    candidate: float
    difference: float
    low: float | None
    high: float | None
    interval: str | None  # how it was taken; None with too few items for one
    lost: int
    gained: int
    both: int | None  # right on both sides; None where scores are not just right and wrong
    neither: int | None
    mcnemar_p: float  # of clusters, each lost or gained by its sum
    margin: float | None
    p_non_inferior: float | None
    p_inferior: float | None
    p_not_better: float | None
    decision: Decision | None  # None without a margin: nobody said what may be lost
    items_to_decide: int | None  # about so many items of this kind in all; None where decided, or where no number would
    groups: Mapping[str, PairedComparison] = field(default_factory=dict)

    @property
    def p_equivalent(self) -> float | None:
        """Two one-sided tests at the margin."""
        if self.p_non_inferior is None or self.p_not_better is None:
            return None
        return max(self.p_non_inferior, self.p_not_better)

    @property
    def worst_group(self) -> str | None:
        """The group with the lowest difference; of several, the one with the most items."""
        if not self.groups:
            return None
        return min(self.groups, key=lambda name: (self.groups[name].difference, -self.groups[name].items))

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "groups"}
        groups = {name: group.to_dict() for name, group in self.groups.items()}
        return plain | {"p_equivalent": self.p_equivalent, "worst_group": self.worst_group, "groups": groups}


def compare_paired(
    baseline: ArrayLike,
    candidate: ArrayLike,
    *,
    margin: float | None,
    clusters: Sequence[object] | None = None,
    groups: Sequence[str] | None = None,
    interval: Interval = "auto",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedComparison:
    """Compares two sides on the same items, pooled and by group.

    ``baseline``, ``candidate``: ``(items,)`` scores, higher is better, 0 and 1 for wrong and right. ``margin``: how much worse is still
    acceptable, in the score's units and above 0; None compares without a decision. ``clusters``: what each item belongs to. ``groups``: the
    setting (model, task) of each item. Raises ValueError for lengths that differ, scores that are not finite, and a margin that is not
    above 0.
    """
    a, b = _scores("baseline", baseline), _scores("candidate", candidate)
    count = len(a)
    for name, given in (("candidate", b), ("clusters", clusters), ("groups", groups)):
        if given is not None and len(given) != count:
            raise ValueError(f"{name} must have one entry for each of {count} items, got {len(given)}")
    if count == 0:
        raise ValueError("a comparison needs at least 1 item, got 0")
    if margin is not None and not 0 < margin < math.inf:
        raise ValueError(f"margin must be a number above 0, got {margin}")
    codes = np.arange(count) if clusters is None else _codes(clusters)
    whole = _Sample(a, b, codes, independent=clusters is None)
    names = {} if groups is None else {name: np.array([g == name for g in groups]) for name in dict.fromkeys(groups)}
    parts = {
        name: _compare(whole.part(chosen), margin, interval, resamples, seed + 1 + number, {})
        for number, (name, chosen) in enumerate(names.items())
    }
    return _compare(whole, margin, interval, resamples, seed, parts)


def compare_counts(
    *,
    both: int,
    lost: int,
    gained: int,
    neither: int,
    margin: float | None,
    interval: Interval = "auto",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedComparison:
    """The same from a table of counts: right on both sides, only the baseline, only the candidate, wrong on both. Items are independent."""
    for name, count in (("both", both), ("lost", lost), ("gained", gained), ("neither", neither)):
        if count < 0:
            raise ValueError(f"{name} must be at least 0, got {count}")
    a = np.repeat([1.0, 1.0, 0.0, 0.0], (both, lost, gained, neither))
    b = np.repeat([1.0, 0.0, 1.0, 0.0], (both, lost, gained, neither))
    return compare_paired(a, b, margin=margin, interval=interval, resamples=resamples, seed=seed)


def items_needed(*, margin: float, flip_rate: float, difference: float = 0.0, design_effect: float = 1.0) -> int | None:
    """About how many items show non-inferiority (or, below the margin, inferiority) in four of five attempts.

    ``flip_rate``: the share of items that flip either way. None where the difference lies at the margin: no number of items decides then.
    """
    distance = abs(margin + difference)
    if distance < margin / 50:
        return None
    z = NormalDist().inv_cdf(1 - ALPHA) + NormalDist().inv_cdf(POWER)
    by_spread = z * z * max(flip_rate - difference * difference, 0.0) / (distance * distance)
    at_least = math.log(ALPHA) / math.log1p(-min(margin, 0.5))  # a candidate that is worse by the margin flips nothing so rarely
    return math.ceil(max(by_spread * max(design_effect, 1.0), at_least))


# --- inside -----------------------------------------------------------------------------------------------------------------


class _Sample:
    """Scores ``(items,)`` of both sides and the cluster of each item."""

    def __init__(self, a: Floats, b: Floats, codes: NDArray[np.int64], *, independent: bool) -> None:
        self.a, self.b, self.codes = a, b, codes
        self.d = b - a
        self.items = len(a)
        self.binary = bool(np.isin(a, (0, 1)).all() and np.isin(b, (0, 1)).all())
        order = np.unique(codes, return_inverse=True)[1]
        self.sizes = np.bincount(order).astype(np.float64)  # (clusters,)
        self.sums = np.bincount(order, weights=self.d)  # (clusters,)
        self.independent = independent or len(self.sizes) == self.items
        self.lost, self.gained = int((self.d < 0).sum()), int((self.d > 0).sum())
        self.reach = 1.0 if self.binary else float(max(a.max(), b.max()) - min(a.min(), b.min()))
        self.lost_clusters, self.gained_clusters = int((self.sums < 0).sum()), int((self.sums > 0).sum())

    @property
    def fall(self) -> float:
        """The share of itself that a cluster which changes is taken to lose: one item more than the worst seen; where hardly any changed,
        all of it."""
        size = self.items / len(self.sizes)
        if self.lost_clusters + self.gained_clusters < MIN_CHANGED_CLUSTERS or self.reach == 0:
            return 1.0
        return min(1.0, (float(np.abs(self.sums).max()) / self.reach + 1) / size)

    def part(self, chosen: NDArray[np.bool_]) -> _Sample:
        return _Sample(self.a[chosen], self.b[chosen], self.codes[chosen], independent=self.independent)

    @property
    def design_effect(self) -> float:
        """The variance of the mean difference over clusters by that over independent items; at least 1, so that luck adds no items."""
        alone = float(self.d.var()) / self.items
        return max(1.0, self.error() ** 2 / alone) if alone > 0 else 1.0

    def error(self) -> float:
        """The standard error of the mean difference over clusters."""
        count = len(self.sizes)
        residuals = self.sums - self.d.mean() * self.sizes
        return math.sqrt(count / max(count - 1, 1) * float((residuals**2).sum())) / self.items


def _compare(
    sample: _Sample, margin: float | None, interval: Interval, resamples: int, seed: int, groups: Mapping[str, PairedComparison]
) -> PairedComparison:
    low, high, method = _interval(sample, interval, resamples, seed)
    worse = better = inferior = decision = needed = None
    if margin is not None:
        worse, better = _p_above(sample, margin), _p_above(_mirrored(sample), margin)
        inferior = _p_below(sample, margin)
        decision = _decision(sample, worse, inferior)
        needed = _needed(sample, margin) if decision == "undecided" else None
    return PairedComparison(
        items=sample.items,
        clusters=len(sample.sizes),
        baseline=float(sample.a.mean()),
        candidate=float(sample.b.mean()),
        difference=float(sample.d.mean()),
        low=low,
        high=high,
        interval=method,
        lost=sample.lost,
        gained=sample.gained,
        both=int(((sample.a == 1) & (sample.b == 1)).sum()) if sample.binary else None,
        neither=int(((sample.a == 0) & (sample.b == 0)).sum()) if sample.binary else None,
        mcnemar_p=mcnemar_exact(sample.lost_clusters, sample.gained_clusters),
        margin=margin,
        p_non_inferior=worse,
        p_inferior=inferior,
        p_not_better=better,
        decision=decision,
        items_to_decide=needed,
        groups=groups,
    )


def _decision(sample: _Sample, worse: float, inferior: float) -> Decision:
    if len(sample.sizes) < MIN_CLUSTERS:
        return "undecided"
    if worse <= ALPHA:
        return "non_inferior"
    return "inferior" if inferior <= ALPHA else "undecided"


def _interval(sample: _Sample, wanted: Interval, resamples: int, seed: int) -> tuple[float | None, float | None, str | None]:
    if wanted not in ("auto", "bootstrap", "score"):
        raise ValueError(f"interval must be auto, bootstrap or score, got {wanted!r}")
    if wanted == "score" and not sample.binary:
        raise ValueError("a score interval needs scores of 0 and 1")
    if len(sample.sizes) < MIN_CLUSTERS:
        return None, None, None
    changed = sample.lost_clusters + sample.gained_clusters
    if wanted == "bootstrap":
        return *_bootstrap(sample, resamples, seed), BOOTSTRAP
    if sample.binary:
        few = CONSERVATIVE if changed < (MIN_FLIPS if sample.independent else MIN_FLIPPED_CLUSTERS) else ""
        return *_score_bounds(sample, changed), (SCORE if sample.independent else CLUSTERED) + few
    low, high = _bootstrap_t(sample, resamples, seed)
    if changed >= (MIN_FLIPS if sample.independent else MIN_FLIPPED_FOR_BOOTSTRAP):
        return low, high, BOOTSTRAP_T
    scored = [bound * sample.fall * sample.reach for bound in _cluster_bounds(sample)]
    return min(low, scored[0]), max(high, scored[1]), SCORE + CONSERVATIVE


def _score_bounds(sample: _Sample, changed: int) -> tuple[float, float]:
    if sample.independent:
        return score_interval(sample.lost, sample.gained, sample.items)
    if changed < MIN_CHANGED_CLUSTERS:
        return _cluster_bounds(sample)
    effect, freedom = sample.design_effect, min(2 * (changed - 1), len(sample.sizes) - 1)
    return score_interval(sample.lost / effect, sample.gained / effect, sample.items / effect, z=student_t(0.975, freedom))


def _cluster_bounds(sample: _Sample) -> tuple[float, float]:
    """Clusters as if each were one item that changes as a whole."""
    return score_interval(sample.lost_clusters, sample.gained_clusters, len(sample.sizes))


def _bootstrap(sample: _Sample, resamples: int, seed: int) -> tuple[float, float]:
    """Percentiles of the mean difference over clusters drawn with replacement."""
    count = len(sample.sizes)
    sums, sizes = _drawn(np.stack([sample.sums, sample.sizes]), resamples, seed)
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * student_t(0.975, count - 1))
    low, high = np.quantile(sums / sizes, (tail, 1 - tail))
    return float(low), float(high)


def _bootstrap_t(sample: _Sample, resamples: int, seed: int) -> tuple[float, float]:
    """The same with each drawn mean in its own standard errors, so that a skewed spread moves the bounds apart."""
    count, mean, error = len(sample.sizes), float(sample.d.mean()), sample.error()
    columns = [sample.sums, sample.sizes, sample.sums**2, sample.sums * sample.sizes, sample.sizes**2]
    sums, sizes, squares, products, squared_sizes = _drawn(np.stack(columns), resamples, seed)
    means = sums / sizes
    residuals = np.maximum(squares - 2 * means * products + means**2 * squared_sizes, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (means - mean) / (np.sqrt(count / (count - 1) * residuals) / sizes)
    low, high = np.quantile(np.nan_to_num(t, nan=0.0, posinf=_FAR, neginf=-_FAR), (0.025, 0.975))
    return mean - float(high) * error, mean - float(low) * error


def _drawn(columns: Floats, resamples: int, seed: int) -> Floats:
    """Totals of ``columns`` ``(rows, clusters)`` over clusters drawn with replacement: ``(rows, resamples)``."""
    rng = np.random.Generator(np.random.PCG64(seed))
    count = columns.shape[1]
    kinds, weights = np.unique(columns, axis=1, return_counts=True)  # (rows, kinds)
    totals = np.empty((len(columns), resamples))
    step = max(1, 4_000_000 // (kinds.shape[1] if kinds.shape[1] <= 64 else count))
    for at in range(0, resamples, step):
        size = min(step, resamples - at)
        if kinds.shape[1] <= 64:  # few different clusters: how often each kind was drawn says it all
            totals[:, at : at + size] = kinds @ rng.multinomial(count, weights / count, size=size).T
        else:
            drawn = rng.integers(0, count, (size, count))
            totals[:, at : at + size] = [column[drawn].sum(1) for column in columns]
    return totals


def _p_above(sample: _Sample, margin: float) -> float:
    """P value against "the mean difference is at most ``-margin``"."""
    if sample.reach == 0 or margin >= sample.reach:
        return 1.0 if sample.reach == 0 else 0.0
    found = 0.0
    if sample.binary:
        found = non_inferiority_exact(sample.lost, sample.gained, sample.items, margin)
    if sample.independent and sample.binary:
        return found
    found = max(found, _p_by_clusters(sample, margin))
    return max(found, _p_by_changed_clusters(sample, margin))


def _p_by_changed_clusters(sample: _Sample, margin: float) -> float:
    """The exact test on clusters, where few changed: each changed one counts as falling by ``fall``, so many would have to be lost."""
    changed = sample.lost_clusters + sample.gained_clusters
    if changed >= MIN_FLIPPED_CLUSTERS:
        return 0.0
    share = margin / sample.reach / sample.fall
    return 0.0 if share >= 1 else non_inferiority_exact(sample.lost_clusters, sample.gained_clusters, len(sample.sizes), share)


def _p_by_clusters(sample: _Sample, margin: float) -> float:
    """Student's t over clusters, after the worst of them was added once more, or one item that loses all there is to lose."""
    count = len(sample.sizes)
    if count < 2:
        return 1.0
    worst = int(sample.sums.argmin())
    extra = (sample.sums[worst], sample.sizes[worst]) if sample.sums[worst] < -sample.reach else (-sample.reach, 1.0)
    sums, sizes = np.append(sample.sums, extra[0]), np.append(sample.sizes, extra[1])
    mean = sums.sum() / sizes.sum()
    residuals = sums - mean * sizes
    error = math.sqrt((count + 1) / count * float((residuals**2).sum())) / float(sizes.sum())
    return 1 - student_cdf((mean + margin) / error, count - 1)


def _p_below(sample: _Sample, margin: float) -> float:
    """P value against "the mean difference is at least ``-margin``": small where it is worse by more than the margin."""
    count, mean, error = len(sample.sizes), float(sample.d.mean()), sample.error()
    if count < 2 or mean >= -margin:
        return 1.0
    return student_cdf((mean + margin) / error, count - 1) if error > 0 else 0.0


def _mirrored(sample: _Sample) -> _Sample:
    return _Sample(sample.b, sample.a, sample.codes, independent=sample.independent)


def _needed(sample: _Sample, margin: float) -> int | None:
    """Items in all, from the spread seen here. Where the estimate is better than the baseline, no better than equal is counted on."""
    scale = sample.reach or 1.0
    rate = max(float((sample.d**2).mean()), scale**2 / (sample.items + 2))
    needed = items_needed(
        margin=margin / scale,
        flip_rate=rate / scale**2,
        difference=min(float(sample.d.mean()), 0.0) / scale,
        design_effect=sample.design_effect,
    )
    # the estimate was not enough here, so a figure below what there is would mislead
    return None if needed is None else max(needed, sample.items + 1)


def _scores(name: str, values: ArrayLike) -> Floats:
    scores = np.asarray(values, np.float64)
    if scores.ndim != 1:
        raise ValueError(f"{name} must be one score an item, got shape {scores.shape}")
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        raise ValueError(f"{name} must hold finite scores, got {scores[bad[0]]} at item {bad[0]}")
    return scores


def _codes(clusters: Sequence[object]) -> NDArray[np.int64]:
    known: dict[object, int] = {}
    return np.array([known.setdefault(cluster, len(known)) for cluster in clusters], np.int64)
