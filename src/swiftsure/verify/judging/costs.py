"""What the candidate costs: time by phase and end to end, and memory, case by case beside the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from swiftsure.records.statistics import Ratio, geometric_mean, median, paired_ratio
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.observation import Observation, Run, peak, typical
from swiftsure.verify.judging.verdict import Finding
from swiftsure.verify.service import Service, service

WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Baseline's seconds over the candidate's, of one phase or of the whole, over the cases of one range of sizes.

    ``speedup``: geometric mean over cases of the ratio of medians, with its paired 95 % interval where pairs allow one.
    """

    range: str
    phase: str
    cases: int
    baseline_s: float  # median over cases
    candidate_s: float
    speedup: float
    low: float | None
    high: float | None
    worst: float
    worst_case: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Largest peaks over cases; ``ratio`` is the largest of the cases' own ratios."""

    baseline_bytes: int
    candidate_bytes: int
    ratio: float
    worst_case: str

    def words(self) -> str:
        if abs(self.ratio - 1) < 0.05:
            return "uses about as much memory as the baseline"
        at_most = "" if self.ratio > 1 else "at most "
        return f"uses {at_most}{self.ratio:.2g}x the memory of the baseline, the most at {self.worst_case}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"words": self.words()}


def speeds(observations: Sequence[Observation], contract: Contract) -> list[Speed]:
    """All cases first, whole and by phase; then by range of sizes, whole. Only cases that ran on both sides every time."""
    ran = [seen for seen in observations if seen.both_ran]
    phases = list(dict.fromkeys(phase for seen in ran for run in (*seen.baseline, *seen.candidate) for phase in run.phases_s))
    found = [speed for phase in (WHOLE, *phases) if (speed := _speed("all sizes", phase, ran)) is not None]
    groups: dict[str, list[Observation]] = {}
    for seen in sorted(ran, key=lambda seen: seen.case.size or 0.0):
        groups.setdefault(contract.range_of(seen.case.size), []).append(seen)
    if len(groups) > 1:
        found += [speed for name, group in groups.items() if (speed := _speed(name, WHOLE, group)) is not None]
    return found


def _speed(range_: str, phase: str, observations: Sequence[Observation]) -> Speed | None:
    key = None if phase == WHOLE else phase
    pairs = [(seen, typical(seen.baseline, key), typical(seen.candidate, key)) for seen in observations]
    known = [(seen, a, b) for seen, a, b in pairs if a is not None and b is not None and a > 0 and b > 0]
    if not known:
        return None
    ratios = [a / b for _, a, b in known]
    interval = paired_ratio([_pairs(seen, key) for seen, _, _ in known])
    slowest = min(range(len(ratios)), key=ratios.__getitem__)
    return Speed(
        range=range_,
        phase=phase,
        cases=len(known),
        baseline_s=median([a for _, a, _ in known]),
        candidate_s=median([b for _, _, b in known]),
        speedup=geometric_mean(ratios),
        low=_bound(interval, "low"),
        high=_bound(interval, "high"),
        worst=ratios[slowest],
        worst_case=known[slowest][0].case.id,
    )


def _bound(ratio: Ratio | None, name: str) -> float | None:
    value: float | None = getattr(ratio, name) if ratio is not None else None
    return value


def _pairs(seen: Observation, phase: str | None) -> list[tuple[float, float]]:
    """The n-th run of each side belong together: they ran one after the other."""
    return [
        (a, b) for one, other in zip(seen.baseline, seen.candidate, strict=False) if (a := _time(one, phase)) and (b := _time(other, phase))
    ]


def _time(run: Run, phase: str | None) -> float | None:
    return run.wall_s if phase is None else run.phases_s.get(phase)


def amdahl(observations: Sequence[Observation], contract: Contract, found: Sequence[Speed]) -> Service | None:
    """End to end as Amdahl's law has it from the sped-up phase alone; None where that phase is not stated."""
    forward = next((speed for speed in found if speed.phase == contract.time.forward), None)
    whole = next((speed for speed in found if speed.phase == WHOLE), None)
    share = forward_share(observations, contract)
    if forward is None or whole is None or share is None:
        return None
    return service(forward_s=share * whole.baseline_s, total_s=whole.baseline_s, speedup=forward.speedup)


def forward_share(observations: Sequence[Observation], contract: Contract) -> float | None:
    """Share of the baseline's whole time that the phase takes which was made faster, median over cases."""
    shares = []
    for seen in observations:
        forward, whole = typical(seen.baseline, contract.time.forward), typical(seen.baseline)
        if forward is not None and whole:
            shares.append(forward / whole)
    return median(shares) if shares else None


def memory(observations: Sequence[Observation]) -> Memory | None:
    pairs = [(seen.case.id, a, b) for seen in observations if seen.both_ran and (a := peak(seen.baseline)) and (b := peak(seen.candidate))]
    if not pairs:
        return None
    worst = max(pairs, key=lambda pair: pair[2] / pair[1])
    return Memory(
        baseline_bytes=max(a for _, a, _ in pairs),
        candidate_bytes=max(b for _, _, b in pairs),
        ratio=worst[2] / worst[1],
        worst_case=worst[0],
    )


def judge_costs(observations: Sequence[Observation], contract: Contract) -> Iterator[Finding]:
    """Limits of time and memory, and the two reasons to hold that only times can tell."""
    found = speeds(observations, contract)
    yield from _holds(observations, contract, found)
    whole = next((speed for speed in found if speed.phase == WHOLE), None)
    least = contract.time.least_speedup
    if least is not None:
        yield _least_speedup(whole, least)
    for phase, limit_s in contract.time.limits_s.items():
        speed = next((speed for speed in found if speed.phase == phase and speed.range == "all sizes"), None)
        if speed is None:
            yield Finding(verdict="INCONCLUSIVE", about="time", words=f"phase {phase} was not measured on both sides")
        else:
            words = f"{phase}: {speed.candidate_s:.4g} s against a limit of {limit_s:g} s"
            yield Finding(verdict="PASS" if speed.candidate_s <= limit_s else "FAIL", about="time", words=words)
    stated = {speed.phase for speed in found}
    missing = [phase for phase in contract.time.phases if phase not in stated]
    if missing:
        yield Finding(verdict="INCONCLUSIVE", about="time", words=f"no time of phase {', '.join(missing)} was stated by both sides")
    yield from _judge_memory(memory(observations), contract)


def _least_speedup(whole: Speed | None, least: float) -> Finding:
    if whole is None:
        return Finding(verdict="INCONCLUSIVE", about="time", words="the whole time was not measured on both sides")
    interval = "no interval: too few pairs" if whole.low is None or whole.high is None else f"{whole.low:.3g} to {whole.high:.3g}"
    words = f"end to end {whole.speedup:.3g}x ({interval}) against at least {least:g}x"
    if whole.low is not None and whole.low >= least:
        return Finding(verdict="PASS", about="time", words=words)
    if whole.high is not None and whole.high < least:
        return Finding(verdict="FAIL", about="time", words=words)
    return Finding(verdict="INCONCLUSIVE", about="time", words=words)


def _holds(observations: Sequence[Observation], contract: Contract, found: Sequence[Speed]) -> Iterator[Finding]:
    rules = contract.time
    if rules.least_forward_share is not None:
        share = forward_share(observations, contract)
        if share is None:
            yield Finding(verdict="INCONCLUSIVE", about="time", words=f"the baseline states no time of phase {rules.forward}")
        elif share < rules.least_forward_share:
            words = f"CPU or I/O dominates: {rules.forward} is {share:.0%} of the whole time, below {rules.least_forward_share:.0%}"
            yield Finding(verdict="HOLD", about="time", words=words)
    times = [t for seen in observations if seen.baseline and (t := typical(seen.baseline)) is not None]
    if rules.goal_s is not None and times and median(times) <= rules.goal_s:
        words = f"the goal is met already: the baseline takes {median(times):.4g} s a case, the goal is {rules.goal_s:g} s"
        yield Finding(verdict="HOLD", about="time", words=words)


def _judge_memory(found: Memory | None, contract: Contract) -> Iterator[Finding]:
    rules = contract.memory
    if rules.most_ratio is None and rules.most_bytes is None:
        return
    if found is None:
        yield Finding(verdict="INCONCLUSIVE", about="memory", words="peak memory was not measured on both sides")
        return
    if rules.most_ratio is not None:
        words = f"{found.words()}, at most {rules.most_ratio:g}x allowed"
        yield Finding(verdict="PASS" if found.ratio <= rules.most_ratio else "FAIL", about="memory", words=words)
    if rules.most_bytes is not None:
        words = f"peak memory {found.candidate_bytes:,} bytes, at most {rules.most_bytes:,} allowed"
        yield Finding(verdict="PASS" if found.candidate_bytes <= rules.most_bytes else "FAIL", about="memory", words=words)
