"""What has to be settled before a result can count: owner, date, pins, the machine, and whether the candidate is active at all."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.contracts.sections import Release
from swiftsure.verify.judging.observation import Observation
from swiftsure.verify.judging.verdict import Finding
from swiftsure.verify.subjects.base import Activation


def judge_contract(contract: Contract, today: datetime.date) -> Iterator[Finding]:
    if contract.owner is None:
        yield Finding(verdict="HOLD", about="contract", words="nobody owns it: the contract names no owner")
    if contract.recheck is not None and contract.recheck <= today:
        words = f"its recheck date, {contract.recheck.isoformat()}, has come: verify again and set another"
        yield Finding(verdict="HOLD", about="contract", words=words)


def judge_activation(activations: Mapping[str, Sequence[Activation]], contract: Contract) -> Iterator[Finding]:
    """``activations``: by side, what start and every run said. One run that is not active is enough: no silent fallback."""
    for side, said in activations.items():
        off = next((one for one in said if one.state == "not_active"), None)
        if off is not None:
            words = f"the {side} is not active: {off.reason or off.evidence or 'no reason given'}"
            yield Finding(verdict="NOT_ACTIVE", about="activation", words=words)
    candidate = activations.get("candidate", ())
    active = any(one.state == "active" for one in candidate)
    if not active and not any(one.state == "not_active" for one in candidate) and contract.activation.required:
        words = "nothing tells whether the candidate is active: name a log pattern or a metric in [activation], or set required = false"
        yield Finding(verdict="HOLD", about="activation", words=words)


def judge_pins(contract: Contract, pins: Mapping[str, Mapping[str, Any]], hardware: str) -> Iterator[Finding]:
    """``pins``: what each side states of itself. What it states must be what the contract pins; what it does not is declared only."""
    wanted = contract.pins.hardware
    if wanted is not None and wanted.lower() not in hardware.lower():
        words = f"the target cannot be measured here: the contract pins {wanted!r}, this is {hardware!r}"
        yield Finding(verdict="HOLD", about="contract", words=words)
    for side, release in (("baseline", contract.pins.baseline), ("candidate", contract.pins.candidate)):
        for name, value in release.to_dict().items():
            stated = stated_pin(pins.get(side, {}), name)
            if stated is not None and stated != value:
                words = f"the {side} is not the one that is pinned: {name} {stated}, the contract says {value}"
                yield Finding(verdict="HOLD", about="contract", words=words)


def stated_pin(pins: Mapping[str, Any], name: str) -> str | None:
    """What a subject states, at the top or one level below; digests without their prefix."""
    aliases = {"weights_sha256": ("weights_sha256", "sha256"), "version": ("version",), "commit": ("commit",)}[name]
    for table in (pins, *(value for value in pins.values() if isinstance(value, Mapping))):
        for alias in aliases:
            if isinstance(table.get(alias), str):
                return str(table[alias]).removeprefix("sha256:")
    return None


def declared_only(contract: Contract, pins: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Pins that the contract declares and no side could confirm."""
    sides: tuple[tuple[str, Release], ...] = (("baseline", contract.pins.baseline), ("candidate", contract.pins.candidate))
    return [f"{side} {name}" for side, release in sides for name in release.to_dict() if stated_pin(pins.get(side, {}), name) is None]


def judge_runs(observations: Sequence[Observation], contract: Contract) -> Iterator[Finding]:
    """A case that only the baseline answers is a failure of the candidate (for Big its sizes decide); one that the baseline cannot answer
    was not compared."""
    if not observations:
        yield Finding(verdict="NOT_FINISHED", about="cases", words="no case was run")
    for seen in observations:
        base = next((run for run in seen.baseline if not run.ran), None)
        other = next((run for run in seen.candidate if not run.ran), None)
        if contract.kind == "big":
            continue
        if base is not None or not seen.baseline:
            why = f"{base.status.replace('_', ' ')}: {base.reason}" if base is not None else "was not run"
            yield Finding(verdict="NOT_FINISHED", about="cases", words=f"case {seen.case.id}: the baseline {why}")
        elif other is not None:
            words = f"case {seen.case.id}: the baseline ran, the candidate {other.status.replace('_', ' ')}: {other.reason}"
            yield Finding(verdict="FAIL", about="cases", words=words)
        elif not seen.candidate:
            yield Finding(verdict="NOT_FINISHED", about="cases", words=f"case {seen.case.id}: the candidate was not run")
