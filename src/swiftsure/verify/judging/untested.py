"""What a reader might take for granted and must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.conditions import declared_only
from swiftsure.verify.judging.observation import Observation
from swiftsure.verify.subjects.base import Activation


def untested(
    contract: Contract,
    observations: Sequence[Observation],
    *,
    activations: Mapping[str, Sequence[Activation]],
    pins: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    """One sentence each."""
    lines = [_inputs(contract, observations)]
    covered = {contract.range_of(seen.case.size) for seen in observations}
    missing = [size for size in contract.pins.input_sizes if not _covers(observations, size)]
    if missing:
        lines.append(f"Input sizes that the contract pins: {', '.join(f'{size:,g}' for size in missing)} {contract.unit}.")
    empty = [name for name in dict.fromkeys(map(contract.range_of, contract.sizes)) if name not in covered]
    if empty and contract.kind != "big":
        lines.append(f"Ranges of input sizes without a case: {', '.join(empty)}.")
    if not contract.tasks and contract.big.accuracy_output is None:
        lines.append("Whether the answers still do the task: outputs alone were compared.")
    if contract.exact.outputs:
        lines.append(f"Outputs other than {', '.join(contract.exact.outputs)}.")
    if not any(said.state == "active" for said in activations.get("candidate", ())):
        lines.append("Whether the candidate was active: nothing told.")
    declared = declared_only(contract, pins)
    if declared:
        lines.append(f"Pins that are declared and could not be confirmed: {', '.join(declared)}.")
    if contract.pins.batch is not None:
        lines.append(f"Batches other than {contract.pins.batch}, the one that is declared.")
    if not any(run.phases_s for seen in observations for run in seen.baseline):
        lines.append("Where the time goes: the baseline states no phases.")
    if not any(run.peak_bytes for seen in observations for run in seen.candidate):
        lines.append("Memory: no peak was measured.")
    lines.append("Whether the baseline is right: a candidate that keeps its answers keeps its mistakes too.")
    lines.append("Other machines, and several users at once: figures of this run do not carry over.")
    return lines


def _inputs(contract: Contract, observations: Sequence[Observation]) -> str:
    sizes = [seen.case.size for seen in observations if seen.case.size is not None]
    reach = f", of {min(sizes):,g} to {max(sizes):,g} {contract.unit}" if sizes else ""
    return f"Inputs other than these {len(observations)}{reach}."


def _covers(observations: Sequence[Observation], size: float) -> bool:
    return any(seen.case.size is not None and abs(seen.case.size - size) <= 0.05 * size for seen in observations)
