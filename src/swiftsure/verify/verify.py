"""``swiftsure verify``: runs baseline and candidate over the same cases, alternating, and judges them by a contract.

The contract's digest is written to the run's folder before anything is started. Per case the sides take turns, and the first of a pair
alternates; outputs are reduced to what is judged before the next case, so that many large cases fit.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swiftsure.errors import SwiftsureError, UsageError
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import utc_now, write_json, write_text
from swiftsure.signals import Terminated, terminate_as_interrupt
from swiftsure.verify.contracts.contract import WITHIN_LIMITS, Contract
from swiftsure.verify.judging import costs
from swiftsure.verify.judging.big import size_results
from swiftsure.verify.judging.fast import spreads
from swiftsure.verify.judging.judge import judge
from swiftsure.verify.judging.observation import Observation, observe, typical
from swiftsure.verify.judging.tasks import Item, TaskResult, compare_task, items_of
from swiftsure.verify.judging.untested import untested
from swiftsure.verify.judging.verdict import Finding, decide
from swiftsure.verify.subjects.base import Activation, Case, Subject, Trial
from swiftsure.verify.suites import check_suites, measure_suites
from swiftsure.verify.verification import CONTRACT_COPY, RECORD, SCHEMA, Verification

SIDES = ("baseline", "candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """``task_items``: items of tasks that were scored elsewhere or by a suite, by the task's name. ``folder``: where the record goes."""

    repeats: int = 1
    folder: Path | None = None
    task_items: Mapping[str, Sequence[Item]] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    today: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise UsageError(f"--repeats must be at least 1, got {self.repeats}")


@dataclass(slots=True)
class _Progress:
    """What is known so far."""

    observations: list[Observation] = field(default_factory=list)
    activations: dict[str, list[Activation]] = field(default_factory=lambda: {side: [] for side in SIDES})
    pins: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    task_items: dict[str, Sequence[Item]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    cut_short: str | None = None


def verify(
    contract: Contract,
    baseline: Subject,
    candidate: Subject,
    cases: Sequence[Case],
    options: VerifyOptions,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Runs all cases. Closes both subjects. Raises UsageError for subjects that cannot be used; a case that breaks is a trial's status.

    Ctrl-C and SIGTERM end the run with NOT_FINISHED and what was found until then; SIGTERM goes on as an interrupt after that.
    """
    ids = [case.id for case in cases]
    if len(set(ids)) != len(ids):
        raise UsageError("cases must have ids of their own")
    check_suites(contract)
    started = utc_now()
    _announce(contract, baseline, candidate, options, started)
    progress = _Progress()
    try:
        with terminate_as_interrupt():
            _run(contract, {"baseline": baseline, "candidate": candidate}, cases, options, progress, advance)
    except KeyboardInterrupt as error:
        how = "ended by SIGTERM" if isinstance(error, Terminated) else "interrupted"
        progress.cut_short = f"{how} after {len(progress.observations)} of {len(cases)} cases"
    finally:
        for subject in (baseline, candidate):
            subject.close()
    return Verification(record=record_of(contract, (baseline.spec, candidate.spec), cases, options, progress, started))


def _announce(contract: Contract, baseline: Subject, candidate: Subject, options: VerifyOptions, started: str) -> None:
    """What must be preserved stands in the folder before anything is measured."""
    if options.folder is None:
        return
    verdict = decide([Finding(verdict="NOT_FINISHED", about="cases", words="the run has begun and not ended")])
    write_text(options.folder / CONTRACT_COPY, contract.source)
    write_json(
        options.folder / RECORD,
        {
            "schema": SCHEMA,
            "started": started,
            "contract": _contract_facts(contract),
            "baseline": {"spec": baseline.spec},
            "candidate": {"spec": candidate.spec},
            "verdict": verdict.to_dict(),
        },
    )


def _run(
    contract: Contract,
    subjects: Mapping[str, Subject],
    cases: Sequence[Case],
    options: VerifyOptions,
    progress: _Progress,
    advance: Callable[[int, int], None],
) -> None:
    for side, subject in subjects.items():
        said = subject.start()
        progress.activations[side].append(said)
        progress.pins[side] = subject.pins()
        if said.state == "not_active":
            progress.cut_short = f"nothing was compared: the {side} is not active"
            return
    for done, case in enumerate(cases):
        advance(done, len(cases))
        try:
            trials = _answer(contract, subjects, case, options.repeats)
        except SwiftsureError as error:
            progress.cut_short = f"ended at case {case.id}, {done} of {len(cases)} done: {error}"
            return
        for side in SIDES:
            progress.activations[side] += [trial.activation for trial in trials[side] if trial.activation is not None]
        progress.observations.append(observe(case, trials["baseline"], trials["candidate"], contract))
        off = [side for side in SIDES if any(said.state == "not_active" for said in progress.activations[side])]
        if off:
            progress.cut_short = f"ended at case {case.id}, {done + 1} of {len(cases)} done: the {off[0]} is not active"
            return
    advance(len(cases), len(cases))
    try:
        items, progress.remarks = measure_suites(contract, subjects, advance)
        progress.task_items.update(items)
    except SwiftsureError as error:
        progress.cut_short = f"all cases are done, a task of the suite did not end: {error}"


def _answer(contract: Contract, subjects: Mapping[str, Subject], case: Case, repeats: int) -> dict[str, list[Trial]]:
    """The sides take turns; who begins alternates. Exact asks the baseline at least twice, to compare it with itself."""
    trials: dict[str, list[Trial]] = {side: [] for side in SIDES}
    for number in range(repeats):
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            trials[side].append(subjects[side].run(case))
    if contract.kind == "exact" and repeats == 1:
        trials["baseline"].append(subjects["baseline"].run(case))
    return trials


def record_of(
    contract: Contract,
    specs: tuple[str, str],
    cases: Sequence[Case],
    options: VerifyOptions,
    progress: _Progress,
    started: str,
) -> dict[str, Any]:
    """Everything that the page and the gate need."""
    machine = read_machine()
    seen = progress.observations
    tasks = _tasks(contract, seen, {**options.task_items, **progress.task_items})
    findings = judge(
        contract,
        seen,
        activations=progress.activations,
        tasks=tasks,
        pins=progress.pins,
        hardware=machine.cpu_model,
        today=options.today,
        cut_short=progress.cut_short,
    )
    found = costs.speeds(seen, contract)
    memory, amdahl = costs.memory(seen), costs.amdahl(seen, contract, found)
    return {
        "schema": SCHEMA,
        "started": started,
        "finished": utc_now(),
        "arguments": list(options.arguments),
        "contract": _contract_facts(contract),
        **{
            side: {"spec": spec, "pins": progress.pins.get(side, {}), "activation": _said(progress.activations[side])}
            for side, spec in zip(SIDES, specs, strict=True)
        },
        "machine": machine.to_dict(),
        "cases": len(cases),
        "repeats": options.repeats,
        "verdict": decide(findings).to_dict(),
        "findings": [finding.to_dict() for finding in findings],
        "tolerances": [spread.to_dict() for spread in spreads(seen, contract)] if contract.kind in WITHIN_LIMITS else [],
        "sizes": [size.to_dict() for size in size_results(seen, contract)] if contract.kind == "big" else [],
        "tasks": {name: None if result is None else result.to_dict() for name, result in tasks.items()},
        "speeds": [speed.to_dict() for speed in found],
        "end_to_end_by_amdahl": amdahl.to_dict() if amdahl is not None else None,
        "memory": memory.to_dict() if memory is not None else None,
        "phases_s": _phases(seen),
        "untested": [*progress.remarks, *untested(contract, seen, activations=progress.activations, pins=progress.pins)],
        "observations": [observation.to_dict() for observation in seen],
    }


def _contract_facts(contract: Contract) -> dict[str, Any]:
    return {
        "digest": contract.digest,
        "kind": contract.kind,
        "name": contract.name,
        "owner": contract.owner,
        "recheck": contract.recheck.isoformat() if contract.recheck is not None else None,
        "unit": contract.unit,
        "recovery": {"to": contract.recovery.to, "when": list(contract.recovery.when)},
        "recipe": dict(contract.exact.recipe),
        "environment": dict(contract.environment),
    }


def _tasks(contract: Contract, observations: Sequence[Observation], items: Mapping[str, Sequence[Item]]) -> dict[str, TaskResult | None]:
    found: dict[str, TaskResult | None] = {}
    for task in contract.tasks:
        if task.name in items:
            found[task.name] = compare_task(task, items[task.name], f"suite {task.suite}" if task.suite else "results given")
        else:
            found[task.name] = compare_task(task, items_of(observations, task, contract), f"output {task.output}")
    return found


def _said(activations: Sequence[Activation]) -> dict[str, Any]:
    """The weightiest of what was said: not active, else active, else unknown."""
    for state in ("not_active", "active", "unknown"):
        one = next((said for said in activations if said.state == state), None)
        if one is not None:
            return {"state": one.state, "evidence": one.evidence, "reason": one.reason, "said": len(activations)}
    return {"state": "unknown", "evidence": None, "reason": "it was not started", "said": 0}


def _phases(observations: Sequence[Observation]) -> dict[str, float]:
    """Seconds of the baseline by phase over all cases, medians added up; empty where it states none."""
    names = list(dict.fromkeys(name for seen in observations for run in seen.baseline for name in run.phases_s))
    return {name: sum(typical(seen.baseline, name) or 0.0 for seen in observations) for name in names}
