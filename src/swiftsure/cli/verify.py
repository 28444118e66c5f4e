"""``swiftsure verify``: may the fast one replace the default?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftsure.cli import options
from swiftsure.cli import tasks as tasks_commands
from swiftsure.cli.console import note, print_pairs, print_wrapped
from swiftsure.cli.framework import PlainCommand, PlainGroup, option
from swiftsure.cli.licence import settle_licences
from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.verify.contracts.contract import Contract
    from swiftsure.verify.proving.screen import Screen
    from swiftsure.verify.subjects.base import Case, Subject
    from swiftsure.verify.verification import Verification

_JOB = "The comparison"
_FOLDER = Path("swiftsure-verify")

app = typer.Typer(name="verify", cls=PlainGroup, rich_markup_mode=None, invoke_without_command=True)

_KINDS = "mode:NAME, file:X.gguf, url:http://HOST/v1, upstream:transformers, or cmd:PROGRAM {input} {output}"
Baseline = Annotated[str | None, option("--baseline", metavar="SPEC", section=_JOB, help=f"What the candidate is compared with: {_KINDS}.")]
Candidate = Annotated[str | None, option("--candidate", metavar="SPEC", section=_JOB, help="What may replace it, of the same kinds.")]
ContractFile = Annotated[
    Path | None, option("--contract", metavar="FILE", section=_JOB, help="What the candidate owes; verify init writes one to fill in.")
]
Inputs = Annotated[
    Path | None,
    option("--inputs", metavar="DIR", section=_JOB, help="A case for each file; cases.csv there may name file, size and cluster."),
]
Prompts = Annotated[
    Path | None,
    option(
        "--prompts",
        metavar="FILE",
        section=_JOB,
        help="A case for each prompt: .txt or .jsonl, as prove takes them. Default, between modes or model files: prove's own.",
    ),
]
Results = Annotated[
    list[str] | None,
    option(
        "--results", metavar="NAME=A,B", section=_JOB, help="Scores of a task from elsewhere: baseline's and candidate's .csv or .jsonl."
    ),
]
Repeats = Annotated[int, option("--repeats", metavar="N", section=_JOB, help="Runs of each case on each side, alternating. Default: 1.")]
TimeLimit = Annotated[
    float | None, option("--time-limit", metavar="SECONDS", section=_JOB, help="Of one run of a case. Default: the contract's, else 600.")
]
JsonFile = Annotated[Path | None, option("--json", metavar="FILE", section=options.OUTPUT, help="Write the record there too.")]
ReportFolder = Annotated[
    Path,
    option("--report", metavar="DIR", section=options.OUTPUT, help=f"Where report.html and record.json go. Default: {_FOLDER}."),
]


@app.callback()
def verify(
    ctx: typer.Context,
    baseline: Baseline = None,
    candidate: Candidate = None,
    contract: ContractFile = None,
    inputs: Inputs = None,
    prompts: Prompts = None,
    results: Results = None,
    repeats: Repeats = 1,
    time_limit: TimeLimit = None,
    model: options.ModelOption = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    json_file: JsonFile = None,
    report: ReportFolder = _FOLDER,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    isa: options.IsaOption = None,
) -> int:
    """May the fast one replace the default?

    Runs baseline and candidate on the same cases and judges them by a contract of one kind: exact (the same bits), fast (within
    tolerances, and the task result holds), big (larger inputs run) or upstream (agrees with the release itself). Verdicts: PASS, FAIL,
    INCONCLUSIVE, HOLD, COMPARED_ONLY, NOT_FINISHED, NOT_ACTIVE.

    Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 every other verdict.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    for name, value in (("--baseline", baseline), ("--candidate", candidate), ("--contract", contract)):
        if value is None:
            raise UsageError(f"{name} is missing: verify needs --baseline, --candidate and --contract")
    assert baseline is not None
    assert candidate is not None
    assert contract is not None
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.records.run_record import check_writable, write_json
    from swiftsure.verify.contracts.contract import read_contract
    from swiftsure.verify.logs import log_folders
    from swiftsure.verify.proving.screen import Screen as Bar
    from swiftsure.verify.results_file import read_results
    from swiftsure.verify.subjects.parse import SubjectOptions
    from swiftsure.verify.verify import VerifyOptions
    from swiftsure.verify.verify import verify as run_verify

    owed = read_contract(contract)
    named = model if model is not None or not _engine(baseline, candidate) else options.DEFAULT_MODEL
    if _engine(baseline, candidate):
        settle_licences(named, accept=accept_licence, offline=offline)
    cases = _cases(owed, inputs, prompts, (baseline, candidate), named, offline)
    common = SubjectOptions(
        model=named,
        load=LoadOptions(threads=threads, isa=isa, context=context, offline=offline),
        logits=owed.kind == "exact",
        time_limit_s=time_limit if time_limit is not None else owed.big.time_limit_s or 600.0,
        memory_limit_bytes=owed.big.memory_limit_bytes,
        environment={**owed.environment, **owed.exact.recipe},
    )
    for path in (json_file, report / "report.html", report / "record.json"):
        if path is not None:
            check_writable(path)
    chosen = VerifyOptions(repeats=repeats, folder=report, arguments=tuple(sys.argv[1:]), task_items=read_results(results, owed))
    subjects = _subjects(owed, baseline, candidate, common, log_folders(report))
    note(f"contract {owed.digest} kind={owed.kind}")
    with Bar() if sys.stderr.isatty() else nullcontext() as screen:
        found = run_verify(owed, *subjects, cases, chosen, _advance(screen))
    page = found.write(report)
    if json_file is not None:
        write_json(json_file, found.record)
    print_verification(found)
    note(f"report: {page}")
    return found.exit_code


def _advance(screen: Screen | None) -> Callable[[int, int], None]:
    """Moves the bar where there is one."""
    return lambda done, total: None if screen is None else screen.show("verifying", done, total)


def _engine(*specs: str) -> bool:
    return any(spec.startswith(("mode:", "upstream:")) for spec in specs)


def _cases(
    contract: Contract, inputs: Path | None, prompts: Path | None, specs: tuple[str, str], model: str | None, offline: bool
) -> list[Case]:
    from swiftsure.verify.cases import cases_in_folder, cases_of_prompts, cases_of_texts, cases_of_the_workload, token_counter

    counted = contract.unit == "tokens" and model is not None and _engine(*specs)
    count = token_counter(model, offline=offline) if counted and model is not None else None
    built_in = all(spec.startswith(("mode:", "file:", "upstream:")) for spec in specs)
    found = cases_in_folder(inputs, contract.unit) if inputs is not None else []
    if prompts is not None:
        found += cases_of_prompts(prompts, contract.unit, count)
    if built_in:
        found += cases_of_texts(contract)
    if not found and built_in and contract.kind in ("exact", "fast"):
        found = cases_of_the_workload(contract.unit, count)
        note(f"neither --inputs nor --prompts: the {len(found)} prompts of swiftsure prove are compared on")
    if not found:
        raise UsageError("there is nothing to compare on: give --inputs DIR or --prompts FILE")
    return found


def _subjects(contract: Contract, baseline: str, candidate: str, common: object, logs: Sequence[Path]) -> tuple[Subject, Subject]:
    """The activation probe belongs to the candidate alone. ``logs``: a folder for each side's commands."""
    from dataclasses import replace

    from swiftsure.verify.subjects.activation import LogProbe
    from swiftsure.verify.subjects.endpoint import EndpointProbe
    from swiftsure.verify.subjects.parse import SubjectOptions, subject_from_spec

    assert isinstance(common, SubjectOptions)
    probe = contract.activation
    looked = replace(
        common,
        folder=logs[1],
        log_probe=LogProbe(active=probe.log, not_active=probe.not_active_log),
        endpoint_probe=EndpointProbe(url=probe.url, metric=probe.metric, at_least=probe.at_least) if probe.url else EndpointProbe(),
    )
    return subject_from_spec(baseline, replace(common, folder=logs[0])), subject_from_spec(candidate, looked)


def print_verification(found: Verification) -> None:
    """The verdict, its reasons and five lines, on standard output."""
    from swiftsure.verify.judgement_report import summary_lines

    verdict = found.record["verdict"]
    print(f"{verdict['kind']}: {verdict['meaning']}")
    for reason in verdict["reasons"]:
        print_wrapped("  ", reason)
    if verdict["items_needed"] is not None:
        print(f"  about {verdict['items_needed']:,} items would decide")
    print_pairs(dict(summary_lines(found.record)))
    for line in found.record.get("untested", []):
        print_wrapped("not tested  ", line)


ContractKind = Annotated[str, typer.Argument(metavar="KIND", show_default=False, help="exact, fast, big or upstream.")]
OutFile = Annotated[Path | None, option("--output", "-o", metavar="FILE", help="Where it goes. Default: standard output.")]


@app.command("init", cls=PlainCommand)
def init(kind: ContractKind, output: OutFile = None) -> int:
    """Write a commented contract to fill in. A file that is there already is not overwritten."""
    from swiftsure.records.run_record import write_text
    from swiftsure.verify.contracts.contract import template

    text = template(kind)
    if output is None:
        print(text, end="")
        return 0
    if output.exists():
        raise UsageError(f"{output} is there already: a contract is decided once, so it is not overwritten")
    write_text(output, text)
    note(f"wrote {output}: set an owner, limits and the activation probe before measuring")
    return 0


Forward = Annotated[float | None, option("--forward", metavar="SECONDS", help="Time of the part that becomes faster.")]
Total = Annotated[float | None, option("--total", metavar="SECONDS", help="Whole time, that part included.")]
Speedup = Annotated[float | None, option("--speedup", metavar="X", help="How many times faster that part becomes.")]
RecordFile = Annotated[Path | None, option("--record", metavar="FILE", help="A run record with measured phases, instead of the two times.")]
Phase = Annotated[str, option("--phase", metavar="NAME", help="The phase of the record that becomes faster. Default: decode.")]


@app.command("service", cls=PlainCommand)
def service(
    forward: Forward = None, total: Total = None, speedup: Speedup = None, record: RecordFile = None, phase: Phase = "decode"
) -> int:
    """What a faster part makes of the whole, by Amdahl's law."""
    from swiftsure.verify.service import service as amdahl
    from swiftsure.verify.service import service_of_record

    if speedup is None:
        raise UsageError("--speedup is missing: how many times faster does the part become?")
    if record is not None:
        if forward is not None or total is not None:
            raise UsageError("--record holds the times: leave out --forward and --total")
        found = service_of_record(record, phase.removesuffix("_s"), speedup)
    elif forward is None or total is None:
        raise UsageError("give --forward and --total, or --record with measured phases")
    else:
        found = amdahl(forward_s=forward, total_s=total, speedup=speedup)
    part = phase if record is not None else "forward"
    print(f"{part} {found.forward_s:.4g} s of {found.total_s:.4g} s, {found.speedup:.4g}x faster")
    print(f"whole: {found.after_s:.4g} s, {found.end_to_end:.2f}x end to end")
    most = "no limit: nothing else takes time" if found.most is None else f"{found.most:.2f}x, however fast {part} becomes"
    print(f"at most: {most}")
    return 0


RunFolder = Annotated[Path, typer.Argument(metavar="RUN_DIR", show_default=False, help="The folder of a verification, or its record.json.")]


@app.command("report", cls=PlainCommand)
def report_again(run: RunFolder) -> int:
    """Write the page again from the record; nothing is measured."""
    from swiftsure.records.run_record import write_text
    from swiftsure.verify.judgement_report import render_report
    from swiftsure.verify.verification import PAGE, read_verification

    found = read_verification(run)
    page = (run if run.is_dir() else run.parent) / PAGE
    write_text(page, render_report(found))
    print_verification(found)
    note(f"report: {page}")
    return 0


Preserve = Annotated[
    str | None, option("--preserve", metavar="WHAT", help="bits, task (its result, within tolerances) or size (larger inputs must run).")
]
Limit = Annotated[
    str | None,
    option("--limit", metavar="WHAT", help="What limits the run: forward, other (CPU, input, output) or memory. Default: unknown."),
]


@app.command("advise", cls=PlainCommand)
def advise(
    model: options.ModelArgument = None,
    preserve: Preserve = None,
    limit: Limit = None,
    record: RecordFile = None,
    phase: Phase = "decode",
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
) -> int:
    """Say which mode suits what must be preserved and what limits the run.

    With a model, what check says about it too. With a record, its phases say what limits the run.
    """
    from swiftsure.verify.advice import advise as advice_for
    from swiftsure.verify.service import recorded_phases

    if preserve is None:
        raise UsageError("--preserve is missing: bits, task or size")
    phases = recorded_phases(record) if record is not None else None
    found = advice_for(preserve, limit, phases, phase.removesuffix("_s"))
    print(f"mode: {found.mode or 'none'}")
    for reason in found.reasons:
        print_wrapped("  ", reason)
    if found.mode is not None:
        print(f"next: swiftsure verify init {found.mode} -o {found.mode}.toml")
    if model is not None:
        from swiftsure.engine.checking import check

        settle_licences(model, accept=accept_licence, offline=offline)
        for line in check(model, offline=offline).advice:
            print_wrapped("  ", line)
    return 0


app.command("tasks", cls=PlainCommand)(tasks_commands.tasks)
app.command("results", cls=PlainCommand)(tasks_commands.results)
