"""What a case showed: its trials laid beside each other, reduced to what is judged, so that outputs need not be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from swiftsure.records.statistics import median
from swiftsure.verify.compare.exact import ExactComparison, compare_trials
from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.figures import figures_between
from swiftsure.verify.subjects.base import Case, Output, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One trial without its outputs."""

    status: str
    wall_s: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ran(self) -> bool:
        return self.status == "ran"

    def to_dict(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "wall_s": self.wall_s,
            "phases_s": dict(self.phases_s),
            "peak_bytes": self.peak_bytes,
            "reason": self.reason,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One case on both sides.

    ``against_itself``: the baseline's second answer beside its first. ``exact``: the first of the candidate's answers that differs from
    the baseline's, else the last. ``figures``: by output, how far the farthest of the candidate's answers is;
    ``incomparable``: by output, why there is no such figure. ``scores``: by output, (baseline, candidate).
    """

    case: Case
    baseline: tuple[Run, ...]
    candidate: tuple[Run, ...]
    against_itself: ExactComparison | None = None
    exact: ExactComparison | None = None
    figures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    incomparable: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def both_ran(self) -> bool:
        runs = (*self.baseline, *self.candidate)
        return bool(self.baseline) and bool(self.candidate) and all(run.ran for run in runs)

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.case.id,
            "size": self.case.size,
            "cluster": self.case.cluster,
            "baseline": [run.to_dict() for run in self.baseline],
            "candidate": [run.to_dict() for run in self.candidate],
            "against_itself": self.against_itself.to_dict() if self.against_itself else None,
            "exact": self.exact.to_dict() if self.exact else None,
            "figures": {output: dict(found) for output, found in self.figures.items()},
            "incomparable": dict(self.incomparable),
            "scores": {output: list(pair) for output, pair in self.scores.items()},
        }


def observe(case: Case, baseline: Sequence[Trial], candidate: Sequence[Trial], contract: Contract) -> Observation:
    """Reduces the trials of one case. ``baseline`` may hold more trials than ``candidate``; both may be empty."""
    first = baseline[0] if baseline else None
    comparisons = [compare_trials(_chosen(first, contract), _chosen(trial, contract)) for trial in candidate] if first else []
    itself = [compare_trials(_chosen(first, contract), _chosen(trial, contract)) for trial in baseline[1:]] if first else []
    ran = [trial for trial in candidate if trial.status == "ran"] if first is not None and first.status == "ran" else []
    measured = [figures_between(first, trial, contract) for trial in ran] if first is not None else []
    return Observation(
        case=case,
        baseline=tuple(map(_run, baseline)),
        candidate=tuple(map(_run, candidate)),
        against_itself=_first_differing(itself),
        exact=_first_differing(comparisons),
        figures=_farthest([figures for figures, _ in measured]),
        incomparable={name: reason for _, reasons in measured for name, reason in reasons.items()},
        scores=_scores(baseline, candidate, contract),
    )


def _first_differing(comparisons: Sequence[ExactComparison]) -> ExactComparison | None:
    return next((found for found in comparisons if not found.equal), comparisons[-1] if comparisons else None)


def _chosen(trial: Trial, contract: Contract) -> Trial:
    """The trial with the outputs alone that the contract compares."""
    names = contract.exact.outputs
    return replace(trial, outputs={name: value for name, value in trial.outputs.items() if name in names}) if names else trial


def _farthest(figures: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """The worst of each figure over repeats; NaN is worse than any."""
    from swiftsure.verify.contracts.limits import AT_LEAST

    found: dict[str, dict[str, float]] = {}
    for one in figures:
        for output, values in one.items():
            worst = found.setdefault(output, {})
            for name, value in values.items():
                pair = [worst.get(name, value), value]
                worst[name] = float(np.min(pair) if name in AT_LEAST else np.max(pair))
    return found


def _scores(baseline: Sequence[Trial], candidate: Sequence[Trial], contract: Contract) -> dict[str, tuple[float | None, float | None]]:
    names = [task.output for task in contract.tasks if task.output is not None]
    if contract.big.accuracy_output is not None:
        names.append(contract.big.accuracy_output)
    return {name: (_score(baseline, name), _score(candidate, name)) for name in dict.fromkeys(names)}


def _score(trials: Sequence[Trial], name: str) -> float | None:
    """Mean over repeats of an output that is one finite number; None where a trial has none."""
    values = [number_in(trial.outputs.get(name)) if trial.status == "ran" else None for trial in trials]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def number_in(output: Output | None) -> float | None:
    """The number that an output is: an array of one element, ``{"output": 0.5}``-like documents of one value, or the text of a number."""
    if isinstance(output, np.ndarray):
        value = output.reshape(-1)[0] if output.size == 1 and output.dtype.kind in "biuf" else None
    elif isinstance(output, Mapping):
        value = next(iter(output.values())) if len(output) == 1 else None
    elif isinstance(output, str):
        value = output
    else:
        value = output[0] if output is not None and len(output) == 1 else None
    try:
        number = float(value) if isinstance(value, (int, float, str, np.generic)) else None
    except ValueError:
        return None
    return number if number is not None and np.isfinite(number) else None


def _run(trial: Trial) -> Run:
    return Run(
        status=trial.status,
        wall_s=trial.wall_s,
        phases_s=dict(trial.phases_s),
        peak_bytes=trial.peak_bytes,
        reason=trial.reason,
        notes=tuple(trial.notes),
    )


def typical(runs: Sequence[Run], phase: str | None = None) -> float | None:
    """Median seconds of the runs, whole or of one phase; None where one of them did not run or does not state it."""
    values = [run.wall_s if phase is None else run.phases_s.get(phase) for run in runs if run.ran]
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(runs) else None


def peak(runs: Sequence[Run]) -> int | None:
    return max((run.peak_bytes for run in runs if run.peak_bytes is not None), default=None)
