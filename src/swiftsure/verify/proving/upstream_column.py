"""The upstream column of ``prove``: which prompts it runs, what judges it, and what stands there when it was not measured."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import Contract, load_contract, read_contract
from swiftsure.verify.judging.upstream import judge_agreement
from swiftsure.verify.judging.verdict import decide
from swiftsure.verify.proving.workload import SHORT_BELOW

if TYPE_CHECKING:
    from swiftsure.verify.proving.prove import ProveOptions
    from swiftsure.verify.proving.screen import Screen

PROMPTS, NEW_TOKENS = 6, 48
FULL_PROMPTS, FULL_NEW_TOKENS = 20, 128


def upstream_contract(file: Path | None) -> Contract:
    """The user's, or Swiftsure's own. Raises UsageError."""
    if file is None:
        return load_contract("upstream")
    contract = read_contract(file)
    if contract.kind != "upstream":
        raise UsageError(f"--upstream-contract takes a contract of kind upstream, got one of kind {contract.kind}")
    return contract


def compare_upstream(
    contract: Contract | None,
    options: ProveOptions,
    info: Mapping[str, Any],
    truths: Sequence[Mapping[str, Any]],
    threads: int,
    screen: Screen,
) -> dict[str, Any]:
    """Runs transformers on the first short prompts of the workload (the first prompts if none is short), and judges what it found.

    ``contract``: None where nobody asked for the comparison.
    """
    if contract is None:
        return {"status": "NOT MEASURED", "reason": "not asked for (--upstream)"}
    from swiftsure.verify.upstream.agreement import measure_upstream

    most, new_tokens = (FULL_PROMPTS, FULL_NEW_TOKENS) if options.full else (PROMPTS, NEW_TOKENS)
    prompts = [truth["prompt_ids"] for truth in truths]
    short = [ids for ids in prompts if len(ids) < SHORT_BELOW] or prompts
    screen.show("upstream: transformers on the same weights", 0, None)
    result = measure_upstream(Path(info["path"]), short[:most], new_tokens, threads, isa=options.load.isa)
    screen.line(result.line())
    today = datetime.datetime.now(datetime.UTC).date()
    verdict = decide(judge_agreement(result.agreement.figures(), contract, result.agreement.rows, today))
    owed = {"name": contract.name, "digest": contract.digest, "limits": contract.limits.to_dict()}
    return {"status": "MEASURED", **result.to_dict(), "contract": owed, "verdict": verdict.to_dict()}
