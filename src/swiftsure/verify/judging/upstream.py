"""Agreement with the upstream release on what it wrote itself: each figure against its limit."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping

from swiftsure.verify.contracts.contract import LOGITS, Contract
from swiftsure.verify.judging.conditions import judge_contract
from swiftsure.verify.judging.verdict import Finding


def judge_agreement(figures: Mapping[str, float], contract: Contract, rows: int, today: datetime.date) -> Iterator[Finding]:
    """``figures``: over ``rows`` rows of logits, by the names that the contract limits for its output ``logits``."""
    limits = contract.limits
    yield from judge_contract(contract, today)
    if not limits.to_dict():
        words = f"no tolerance is set: {contract.kind}.outputs.{LOGITS} of the contract is empty"
        yield Finding(verdict="HOLD", about="tolerance", words=words)
        return
    breaches, missing = limits.broken_by(figures), limits.unmeasured(figures)
    for breach in breaches:
        yield Finding(verdict="FAIL", about="tolerance", words=breach)
    if missing:
        words = f"nothing was measured for the limits {', '.join(missing)}; swiftsure verify measures them on the contract's texts"
        yield Finding(verdict="INCONCLUSIVE", about="tolerance", words=words)
    if not breaches:
        yield Finding(verdict="PASS", about="tolerance", words=f"within {', '.join(limits.to_dict())} over {rows:,} rows")
