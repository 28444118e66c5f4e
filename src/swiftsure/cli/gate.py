"""``swiftsure gate``: the exit code that a pipeline waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from swiftsure.cli import options
from swiftsure.cli.console import note, print_wrapped
from swiftsure.cli.framework import option
from swiftsure.errors import UsageError

_JOB = "The decision"

Record = Annotated[
    Path, typer.Argument(metavar="RECORD", show_default=False, help="The record.json of a verification, or the folder that holds it.")
]
ContractFile = Annotated[
    Path | None, option("--contract", metavar="FILE", section=_JOB, help="The contract; its digest must be the record's. Required.")
]
MetricsUrl = Annotated[
    str | None,
    option(
        "--metrics", metavar="URL", section=_JOB, help="The metrics page of the running server, held to recovery.metric of the contract."
    ),
]
OnFail = Annotated[
    str | None,
    option("--on-fail", metavar="default", section=_JOB, help="On a cause that the contract names, print FALLBACK: what is gone back to."),
]
LogFile = Annotated[Path | None, option("--log", metavar="FILE", section=options.OUTPUT, help="Append who, when and why as a JSON line.")]
Who = Annotated[str | None, option("--who", metavar="NAME", section=options.OUTPUT, help="Who decides, for the log. Default: this user.")]


def gate(
    record: Record,
    contract: ContractFile = None,
    metrics: MetricsUrl = None,
    on_fail: OnFail = None,
    log: LogFile = None,
    who: Who = None,
) -> int:
    """May what was verified go on running?

    Ends with 0 on PASS, 1 on FAIL and 3 on every other verdict. A contract that is not the record's, a recheck date that has come and a
    metric that is missing say HOLD.
    """
    import datetime

    from swiftsure.verify.contracts.contract import read_contract
    from swiftsure.verify.gate import append_log, decide_gate, read_metrics
    from swiftsure.verify.verification import read_verification

    if contract is None:
        raise UsageError("--contract is missing: a gate decides by a contract")
    if on_fail not in (None, "default"):
        raise UsageError(f"--on-fail must be default, got {on_fail!r}")
    owed = read_contract(contract)
    found = read_verification(record)
    page = read_metrics(metrics) if metrics is not None else None
    decision = decide_gate(found, owed, datetime.datetime.now(datetime.UTC).date(), page)
    print(f"{decision.verdict.kind}: {decision.candidate}")
    for reason in decision.verdict.reasons:
        print_wrapped("  ", reason)
    for words in dict.fromkeys(other.words for other in decision.findings if other.verdict not in ("PASS", decision.verdict.kind)):
        print_wrapped("  besides: ", words)
    falls_back = on_fail is not None and decision.fallback is not None
    if falls_back:
        note(decision.fallback_line())
    if log is not None:
        action = "fallback" if falls_back else "go on" if decision.verdict.exit_code == 0 else "stop"
        append_log(log, decision, contract=owed, record=record, who=who, action=action)
    return decision.verdict.exit_code
