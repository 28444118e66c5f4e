"""All findings of one verification, and its verdict."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from swiftsure.verify.contracts.contract import WITHIN_LIMITS, Contract
from swiftsure.verify.judging.big import judge_big
from swiftsure.verify.judging.conditions import judge_activation, judge_contract, judge_pins, judge_runs
from swiftsure.verify.judging.costs import judge_costs
from swiftsure.verify.judging.exact import judge_exact
from swiftsure.verify.judging.fast import judge_fast
from swiftsure.verify.judging.observation import Observation
from swiftsure.verify.judging.tasks import TaskResult, judge_tasks
from swiftsure.verify.judging.verdict import Finding
from swiftsure.verify.subjects.base import Activation


def judge(
    contract: Contract,
    observations: Sequence[Observation],
    *,
    activations: Mapping[str, Sequence[Activation]],
    tasks: Mapping[str, TaskResult | None],
    pins: Mapping[str, Mapping[str, Any]],
    hardware: str,
    today: datetime.date,
    cut_short: str | None = None,
) -> list[Finding]:
    """Every finding, in the order in which a reader asks. ``cut_short``: why the run ended before all cases were through."""
    findings = [*judge_activation(activations, contract)]
    if cut_short is not None:
        findings.append(Finding(verdict="NOT_FINISHED", about="cases", words=cut_short))
    findings += judge_runs(observations, contract)
    if contract.kind == "exact":
        findings += judge_exact(observations)
    elif contract.kind in WITHIN_LIMITS:
        findings += judge_fast(observations, contract)
    else:
        findings += judge_big(observations, contract)
    if contract.kind == "fast" or contract.tasks:
        findings += judge_tasks(contract, tasks)
    findings += judge_costs(observations, contract)
    findings += judge_contract(contract, today)
    findings += judge_pins(contract, pins, hardware)
    return findings
