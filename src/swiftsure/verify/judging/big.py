"""Big: by input size, does it run, and is it accurate. Two separate answers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swiftsure.records.flips import clopper_pearson
from swiftsure.records.statistics import median
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.contracts.sections import SizeBar
from swiftsure.verify.judging.observation import Observation, Run, peak, typical
from swiftsure.verify.judging.verdict import Finding

_LEVEL = 0.05  # the chance that a bound errs
_Z_ONE_SIDED = 1.6448536269514722
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeResult:
    """The cases of one size bar. ``ran`` and the counts after it are of the candidate, by its worst run of each case.

    ``accuracy``: mean score of the cases that ran, with 95 % one-sided bounds; None where no score was given.
    ``time_ratio``: candidate over baseline, median of the cases that both ran.
    """

    size: float | None
    beyond_trained: bool
    cases: int
    ran: int
    refused: int
    out_of_memory: int
    timed_out: int
    failed: int
    baseline_ran: int
    peak_bytes: int | None
    time_s: float | None
    time_ratio: float | None
    scored: int
    accuracy: float | None
    accuracy_low: float | None
    accuracy_high: float | None
    reason: str | None  # of the first case that did not run
    bar: SizeBar | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def size_results(observations: Sequence[Observation], contract: Contract) -> list[SizeResult]:
    """One entry for each bar that has cases, ascending, then the sizes above all bars one by one."""
    groups: dict[float | None, list[Observation]] = {}
    for seen in sorted(observations, key=lambda seen: seen.case.size or 0.0):
        bar = contract.big.bar(seen.case.size)
        groups.setdefault(bar.size if bar is not None else seen.case.size, []).append(seen)
    return [_size_result(size, group, contract) for size, group in groups.items()]


def _size_result(size: float | None, group: Sequence[Observation], contract: Contract) -> SizeResult:
    worst = [_worst(seen.candidate) for seen in group if seen.candidate]
    counts = Counter(run.status for run in worst)
    ran = [seen for seen in group if seen.candidate and all(run.ran for run in seen.candidate)]
    times = [(seen, t) for seen in ran if (t := typical(seen.candidate)) is not None]
    ratios = [t / base for seen, t in times if seen.baseline and (base := typical(seen.baseline))]
    scores = _accuracies(ran, contract)
    low, high = accuracy_bounds(scores)
    trained = contract.big.trained_context
    return SizeResult(
        size=size,
        beyond_trained=trained is not None and size is not None and size > trained,
        cases=len(group),
        ran=counts["ran"],
        refused=counts["refused"],
        out_of_memory=counts["out_of_memory"],
        timed_out=counts["timed_out"],
        failed=counts["failed"],
        baseline_ran=sum(bool(seen.baseline) and all(run.ran for run in seen.baseline) for seen in group),
        peak_bytes=max((p for seen in group if (p := peak(seen.candidate)) is not None), default=None),
        time_s=median([t for _, t in times]) if times else None,
        time_ratio=median(ratios) if ratios else None,
        scored=len(scores),
        accuracy=math.fsum(scores) / len(scores) if scores else None,
        accuracy_low=low,
        accuracy_high=high,
        reason=next((run.reason for run in worst if not run.ran), None),
        bar=contract.big.bar(group[0].case.size),
    )


def _worst(runs: Sequence[Run]) -> Run:
    return next((run for run in runs if not run.ran), runs[0])


def _accuracies(group: Sequence[Observation], contract: Contract) -> list[float]:
    name = contract.big.accuracy_output
    scores = [seen.scores.get(name, (None, None))[1] for seen in group] if name is not None else []
    return [score for score in scores if score is not None]


def accuracy_bounds(scores: Sequence[float]) -> tuple[float | None, float | None]:
    """One-sided 95 % bounds of the mean of scores in [0, 1]: Clopper and Pearson's for right and wrong, whose spread is the largest that
    such scores have. A sum that is not whole is rounded away from the bound."""
    if not scores:
        return None, None
    total = math.fsum(scores)
    low, _ = clopper_pearson(math.floor(total + _ROUNDING), len(scores), 2 * _LEVEL)
    _, high = clopper_pearson(math.ceil(total - _ROUNDING), len(scores), 2 * _LEVEL)
    return low, high


def judge_big(observations: Sequence[Observation], contract: Contract) -> Iterator[Finding]:
    results = size_results(observations, contract)
    if not contract.big.bars:
        yield Finding(verdict="HOLD", about="size", words="no size is promised: the contract has no [[big.size]]")
    for bar in contract.big.bars:
        if not any(found.bar == bar for found in results):
            yield Finding(verdict="NOT_FINISHED", about="size", words=f"no case of {bar.size:,g} {contract.unit} was run")
    for found in results:
        if found.bar is not None:
            yield from _judge_size(found, found.bar, contract)


def _judge_size(found: SizeResult, bar: SizeBar, contract: Contract) -> Iterator[Finding]:
    at = f"{bar.size:,g} {contract.unit}" + (" (beyond the trained context)" if found.beyond_trained else "")
    if found.ran < found.cases:
        how = ", ".join(
            f"{n} {name.replace('_', ' ')}" for name in ("refused", "out_of_memory", "timed_out", "failed") if (n := getattr(found, name))
        )
        words = f"{at}: {found.ran} of {found.cases} cases ran, {how}: {found.reason}"
        if bar.must_run:
            yield Finding(verdict="FAIL", about="size", words=words)
        if found.ran == 0:
            return  # an attempt owes nothing; the table of sizes shows it
    else:
        yield Finding(verdict="PASS", about="size", words=f"{at}: {found.ran} of {found.cases} cases ran")
    if bar.memory_bytes is not None:
        yield _limit("memory", at, found.peak_bytes, bar.memory_bytes, "bytes")
    if bar.time_s is not None:
        yield _limit("time", at, found.time_s, bar.time_s, "s")
    yield _accuracy(found, bar, at)


def _limit(about: str, at: str, value: float | None, limit: float, unit: str) -> Finding:
    if value is None:
        return Finding(verdict="INCONCLUSIVE", about=about, words=f"{at}: {about} was not measured")
    words = f"{at}: {about} {value:,.4g} {unit} against a limit of {limit:,.4g} {unit}"
    return Finding(verdict="PASS" if value <= limit else "FAIL", about=about, words=words)


def _accuracy(found: SizeResult, bar: SizeBar, at: str) -> Finding:
    if found.accuracy is None or found.accuracy_low is None or found.accuracy_high is None:
        words = f"{at}: runs; whether it is accurate was not measured"
        return Finding(verdict="COMPARED_ONLY", about="task", words=words)
    if bar.accuracy is None:
        return Finding(verdict="HOLD", about="task", words=f"{at}: accuracy {found.accuracy:.3g}, and no bar is set for it")
    words = (
        f"{at}: accuracy {found.accuracy:.3g} over {found.scored} items (one-sided 95 % bounds {found.accuracy_low:.3g} and "
        f"{found.accuracy_high:.3g}) against a bar of {bar.accuracy:g}"
    )
    if found.accuracy_low >= bar.accuracy:
        return Finding(verdict="PASS", about="task", words=words)
    if found.accuracy_high < bar.accuracy:
        return Finding(verdict="FAIL", about="task", words=words)
    return Finding(
        verdict="INCONCLUSIVE", about="task", words=words, items_needed=_items_needed(found.accuracy, bar.accuracy, found.scored)
    )


def _items_needed(mean: float, bar: float, items: int) -> int | None:
    """About so many items put the bound on one side of the bar, were the mean as it is here; None where it is at the bar."""
    distance = abs(mean - bar)
    if distance < 0.005:
        return None
    spread = max(mean * (1 - mean), bar * (1 - bar))
    return max(items + 1, math.ceil(_Z_ONE_SIDED**2 * spread / distance**2))
