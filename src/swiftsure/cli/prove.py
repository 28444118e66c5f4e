"""``swiftsure prove``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from swiftsure.cli import options
from swiftsure.cli.console import note
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences

_JOB = "The job"
_TABLE_COLUMNS = 80  # on a narrower terminal its lines wrap, rather than lose verdicts and figures
_REPORT = Path("swiftsure-prove")

Modes = Annotated[
    list[str] | None,
    option("--modes", metavar="MODE", section=_JOB, help="The modes that decide the exit code; a,b or repeated. Default: all that ran."),
]
Prompts = Annotated[
    Path | None,
    option("--prompts", metavar="FILE", section=_JOB, help="Your prompts: .txt (one a line) or .jsonl (prompt or messages, and sampling)."),
]
Full = Annotated[bool, option("--full", section=_JOB, help="Longer answers and ten rounds, however long that takes.")]
Rounds = Annotated[
    int | None, option("--rounds", metavar="N", section=_JOB, help="Timed rounds over the workload. Default: what the time budget allows.")
]
TimeBudget = Annotated[float, option("--time-budget", metavar="SECONDS", section=_JOB, help="Stop timing after this long. Default: 100.")]
Upstream = Annotated[
    bool,
    option("--upstream", section=_JOB, help="Compare with transformers in float32 too; needs the upstream extra."),
]
UpstreamContract = Annotated[
    Path | None,
    option("--upstream-contract", metavar="FILE", section=_JOB, help="The same, judged by your contract (verify init upstream)."),
]
WithoutTasks = Annotated[
    bool,
    option("--without-tasks", section=_JOB, help="Skip the task items that a mode with tolerances owes; it stays INCONCLUSIVE."),
]
JsonFile = Annotated[Path | None, option("--json", metavar="FILE", section=options.OUTPUT, help="Write all results as JSON.")]
ReportFolder = Annotated[
    Path,
    option("--report", metavar="FOLDER", section=options.OUTPUT, help=f"Where report.html and record.json go. Default: {_REPORT}."),
]


def prove(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    draft: options.DraftOption = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    modes: Modes = None,
    prompts: Prompts = None,
    full: Full = False,
    rounds: Rounds = None,
    time_budget: TimeBudget = 100.0,
    upstream: Upstream = False,
    upstream_contract: UpstreamContract = None,
    without_tasks: WithoutTasks = False,
    json_file: JsonFile = None,
    report: ReportFolder = _REPORT,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
) -> int:
    """Is it the same model, and how much faster?

    Runs every mode that can engage here on one workload, compares the bits of all logits with those of default, times the modes
    alternating, prints a table with a verdict for each and writes a report.
    """
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.records.run_record import check_writable
    from swiftsure.verify.proving.prove import ProveOptions
    from swiftsure.verify.proving.prove import prove as run_prove

    chosen = ProveOptions(
        model=options.chosen_model(model, model_option),
        modes=options.split_names(modes) if modes is not None else None,
        prompts=prompts,
        full=full,
        rounds=rounds,
        time_budget_s=time_budget,
        load=LoadOptions(threads=threads, isa=isa, context=context, offline=offline, cache=not no_cache, draft=draft),
        upstream=upstream,
        upstream_contract=upstream_contract,
        tasks=not without_tasks,
        arguments=tuple(sys.argv[1:]),
    )
    for path in (json_file, report / "report.html", report / "record.json"):
        if path is not None:
            check_writable(path)
    settle_licences(chosen.model, draft, accept=accept_licence, offline=offline)
    result = run_prove(chosen)
    from rich.console import Console

    console = Console()
    console.width = max(console.width, _TABLE_COLUMNS)
    result.print_table(console)
    if json_file is not None:
        result.write_json(json_file)
    note(f"report: {result.write_report(report)}")
    return result.exit_code
