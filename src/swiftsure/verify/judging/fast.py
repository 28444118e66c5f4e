"""Fast and upstream: every output of every case within its tolerance, by range of input sizes, the worst case beside the mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.contracts.limits import AT_LEAST, within
from swiftsure.verify.judging.figures import IDENTIFIERS
from swiftsure.verify.judging.observation import Observation
from swiftsure.verify.judging.verdict import Finding

_ONE_SIDED = ("missing", "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """One figure of one output over the cases of one range of sizes. ``worst`` is the largest, or the least of a share that may not fall;
    ``worst_case`` is where. ``p99`` counts from the good end to the bad one."""

    range: str
    output: str
    figure: str
    cases: int
    mean: float
    p99: float
    worst: float
    worst_case: str
    limit: float | None
    beyond: int  # cases beyond the limit

    @property
    def used(self) -> float | None:
        """The share of what the limit allows that the worst case uses up; above 1 it is broken. A ratio is allowed what lies above 1."""
        if self.limit is None:
            return None
        best = 1.0 if self.figure in AT_LEAST or self.figure == "perplexity_ratio" else 0.0
        allowed, taken = abs(self.limit - best), self.worst - best if self.figure not in AT_LEAST else best - self.worst
        if not taken <= 0:  # so that NaN counts as everything
            return taken / allowed if allowed > 0 and taken == taken else float("inf")
        return 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"used": self.used}


def spreads(observations: Sequence[Observation], contract: Contract) -> list[Spread]:
    """Ranges in the order of sizes; all figures that were measured, limited or not."""
    found: dict[tuple[str, str, str], list[tuple[str, float]]] = {}
    for seen in sorted(observations, key=lambda seen: seen.case.size or 0.0):
        for output, figures in seen.figures.items():
            for figure, value in figures.items():
                found.setdefault((contract.range_of(seen.case.size), output, figure), []).append((seen.case.id, value))
    return [_spread(range_, output, figure, values, contract) for (range_, output, figure), values in found.items()]


def _spread(range_: str, output: str, figure: str, values: Sequence[tuple[str, float]], contract: Contract) -> Spread:
    limit = contract.limits_of(output).to_dict().get(figure)
    numbers = np.array([value for _, value in values])
    badness = np.where(np.isnan(numbers), np.inf, -numbers if figure in AT_LEAST else numbers)
    where = int(badness.argmax())
    return Spread(
        range=range_,
        output=output,
        figure=figure,
        cases=len(values),
        mean=float(numbers.mean()),
        p99=float(np.quantile(numbers, 0.01 if figure in AT_LEAST else 0.99)),
        worst=float(numbers[where]),
        worst_case=values[where][0],
        limit=limit,
        beyond=0 if limit is None else sum(not within(figure, value, limit) for _, value in values),
    )


def judge_fast(observations: Sequence[Observation], contract: Contract) -> Iterator[Finding]:
    if not contract.has_tolerances:
        yield Finding(verdict="HOLD", about="tolerance", words=f"no tolerance is set: {contract.kind}.outputs of the contract is empty")
        return
    yield from _structure(observations, contract)
    found = spreads(observations, contract)
    limited = [spread for spread in found if spread.limit is not None]
    for spread in limited:
        if spread.beyond:
            yield Finding(verdict="FAIL", about="tolerance", words=_breach(spread))
    yield from _unmeasured(observations, contract)
    if limited and not any(spread.beyond for spread in limited):
        worst = max(limited, key=lambda spread: spread.used or 0.0)
        cases = len({seen.case.id for seen in observations if seen.figures})
        words = (
            f"all {cases} cases within tolerance; nearest to its limit: {worst.output} "
            f"{worst.figure} {worst.worst:.3g} of {worst.limit:g} at {worst.worst_case} ({worst.range})"
        )
        yield Finding(verdict="PASS", about="tolerance", words=words)


def _breach(spread: Spread) -> str:
    assert spread.limit is not None
    though = " though the mean is within" if within(spread.figure, spread.mean, spread.limit) else ""
    return (
        f"{spread.output} {spread.figure} {spread.worst:.4g} against a limit of {spread.limit:g} at {spread.worst_case} ({spread.range}); "
        f"{spread.beyond} of {spread.cases} cases beyond it{though}, mean {spread.mean:.3g}, p99 {spread.p99:.3g}"
    )


def _structure(observations: Sequence[Observation], contract: Contract) -> Iterator[Finding]:
    """An output that one side lacks, or that cannot be laid beside the other's, is within no tolerance. The first is named."""
    for seen in observations:
        for name, output in (seen.exact.outputs if seen.exact is not None else {}).items():
            if output.first is None or name in IDENTIFIERS or not contract.limits_of(name).to_dict():
                continue
            if output.first.kind in _ONE_SIDED and output.first.where is None:
                yield Finding(verdict="FAIL", about="tolerance", words=f"case {seen.case.id}: {output.first.describe()}")
                return
            if name in seen.incomparable:
                words = f"case {seen.case.id}: {name} cannot be held to a tolerance: {seen.incomparable[name]}"
                yield Finding(verdict="FAIL", about="tolerance", words=words)
                return


def _unmeasured(observations: Sequence[Observation], contract: Contract) -> Iterator[Finding]:
    """Limits for which no case gave a figure: nobody can say that they hold."""
    measured: dict[str, set[str]] = {}
    for seen in observations:
        for output, figures in seen.figures.items():
            measured.setdefault(output, set()).update(figures)
    for output, limits in contract.outputs.items():
        names = [name for name in measured if name == output or (output == "*" and name not in contract.outputs)]
        known = {figure for name in names for figure in measured[name]}
        missing = [name for name in limits.to_dict() if name not in known]
        if missing:
            words = f"nothing was measured for the limits {', '.join(missing)} of output {output}"
            if output == "logits" and not contract.texts:
                words += ": a model's logits are measured on texts; name some in [texts] of the contract, and sizes in tokens"
            yield Finding(verdict="INCONCLUSIVE", about="tolerance", words=words)
