"""``swiftsure profile``: where a token's time goes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from swiftsure.cli import options
from swiftsure.cli.console import note, print_table, print_wrapped
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences
from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.cli.session import Tally
    from swiftsure.engine.llm import LLM
    from swiftsure.engine.profile import Case
    from swiftsure.verify.profiling.profile import ProfileResult

_WHAT = "What is timed"
_CONTEXT = 128
_GENERATED = 64

Rows = Annotated[
    str | None, option("--rows", metavar="N,N", section=_WHAT, help="Decode passes of so many rows of a sequence: 1,4,8. Default: 1.")
]
Context = Annotated[
    str | None,
    option("--context", metavar="N,N", section=_WHAT, help=f"Positions cached before the rows of a decode pass. Default: {_CONTEXT}."),
]
Prefill = Annotated[
    str | None, option("--prefill", metavar="N,N", section=_WHAT, help="Reading prompts of so many tokens; alone, no decode pass is timed.")
]
Repeats = Annotated[
    int | None,
    option("--repeats", metavar="N", section=_WHAT, help="Passes of each case, untimed and timed in turn. Default: what 2 seconds allow."),
]
Layers = Annotated[bool, option("--layers", section=options.OUTPUT, help="Print every operation of every layer too.")]
Record = Annotated[Path | None, option("--record", metavar="FILE", section=options.OUTPUT, help="Write a run record as JSON.")]
Html = Annotated[Path | None, option("--html", metavar="FILE", section=options.OUTPUT, help="Write a page with bars and all tables.")]


def profile(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    mode: options.ModeOption = None,
    without: options.WithoutOption = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    rows: Rows = None,
    context: Context = None,
    prefill: Prefill = None,
    repeats: Repeats = None,
    json_output: options.JsonFlag = False,
    layers: Layers = False,
    record: Record = None,
    html: Html = None,
    threads: options.ThreadsOption = None,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
) -> int:
    """Say where a token's time goes, operation by operation.

    Times real passes inside the compiled core, thread by thread, and holds each operation against the limit that binds it: reading
    memory or arithmetic, both measured in the same run.
    """
    from swiftsure.cli.session import LoadRequest, run_in_mode
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.records.run_record import check_writable

    if repeats is not None and repeats < 1:
        raise UsageError(f"--repeats must be at least 1, got {repeats}")
    cases = _cases(rows, context, prefill)
    for path in (record, html):
        if path is not None:
            check_writable(path)
    request = LoadRequest(
        model=options.chosen_model(model, model_option),
        mode=mode,
        options=LoadOptions(
            threads=threads,
            context=max(*(case.positions for case in cases), 2 * _GENERATED),
            isa=isa,
            without=options.split_names(without),
            offline=offline,
            cache=not no_cache,
        ),
    )

    def work(llm: LLM, tally: Tally) -> None:
        from swiftsure.verify.profiling.profile import profile as profile_cases
        from swiftsure.verify.profiling.report import render_profile

        tally.total = len(cases)
        result = profile_cases(llm, cases, repeats=repeats, generated=_GENERATED, advance=lambda name: note(f"timing: {name}"))
        tally.done = len(cases)
        if json_output:
            print(json.dumps(result.record(sys.argv[1:]).to_dict(), indent=2))
        else:
            _print(result, layers=layers)
        if record is not None:
            result.record(sys.argv[1:]).write(record)
        if html is not None:
            from swiftsure.records.run_record import write_text

            write_text(html, render_profile(result))

    settle_licences(request.model, accept=accept_licence, offline=offline)
    return run_in_mode(request, work, fall_back=False, allow_fallback=False)


def _cases(rows: str | None, context: str | None, prefill: str | None) -> list[Case]:
    from swiftsure.engine.profile import Case

    prompts = options.numbers("--prefill", prefill, least=1) if prefill is not None else []
    default = [] if prompts and context is None else [1]
    wanted = options.numbers("--rows", rows, least=1) if rows is not None else default
    contexts = options.numbers("--context", context, least=0) if context is not None else [_CONTEXT]
    decode = [Case(kind="decode", rows=n, context=c) for c in contexts for n in wanted]
    return [*decode, *(Case(kind="prefill", rows=n) for n in prompts)]


def _print(result: ProfileResult, *, layers: bool) -> None:
    from swiftsure.verify.profiling import report

    right = range(1, len(report.HEAD))
    for case in result.cases:
        print(report.headline(case))
        print_table(list(report.HEAD), report.cells(case), right=right)
        for line in report.remarks(case):
            print_wrapped("", line)
        if layers:
            print()
            print_table(list(report.LAYER_HEAD), report.layer_cells(case), right=[0, *(i + 1 for i in right)])
        print()
    for line in report.limits(result):
        print_wrapped("", line)
