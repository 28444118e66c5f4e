"""Hand-made trials, and what a whole judgement makes of them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from swiftsure.verify.contracts.contract import Contract, parse_contract
from swiftsure.verify.judging.judge import judge
from swiftsure.verify.judging.observation import Observation, observe
from swiftsure.verify.judging.tasks import TaskResult, compare_task, items_of
from swiftsure.verify.judging.verdict import Finding, Verdict, decide
from swiftsure.verify.subjects.base import Activation, Case, Output, Trial

TODAY = datetime.date(2026, 12, 2)
ACTIVE = Activation(state="active", evidence="ACTIVE mode=fast")
OWNED = 'owner = "someone"\n'


def array(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


def trial(case: Case, outputs: Mapping[str, Output] | None = None, **more: Any) -> Trial:
    values: dict[str, Any] = {"status": "ran", "wall_s": 1.0} | more
    return Trial(case=case, outputs=outputs or {}, **values)


def pair(
    contract: Contract, name: str, base: Mapping[str, Output], other: Mapping[str, Output], size: float | None = None, **more: Any
) -> Observation:
    """One case that both sides answered, the baseline twice alike. ``more`` goes into the candidate's trial."""
    case = Case(id=name, size=size, cluster=more.pop("cluster", None))
    return observe(case, [trial(case, base), trial(case, base)], [trial(case, other, **more)], contract)


def contract_of(text: str) -> Contract:
    return parse_contract(text)


def verdict_of(contract: Contract, observations: Sequence[Observation], **more: Any) -> Verdict:
    return decide(findings_of(contract, observations, **more))


def findings_of(contract: Contract, observations: Sequence[Observation], **more: Any) -> list[Finding]:
    tasks: dict[str, TaskResult | None] = {t.name: compare_task(t, items_of(observations, t, contract), "output") for t in contract.tasks}
    values: dict[str, Any] = {
        "activations": {"baseline": (), "candidate": (ACTIVE,)},
        "tasks": tasks,
        "pins": {},
        "hardware": "AMD EPYC 9004",
        "today": TODAY,
    }
    return judge(contract, observations, **(values | more))
