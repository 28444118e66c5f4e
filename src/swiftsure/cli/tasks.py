"""``swiftsure verify tasks`` and ``swiftsure verify results``: how well a task is done, item by item."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swiftsure.cli import options
from swiftsure.cli.console import note, print_wrapped
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences
from swiftsure.errors import UsageError

if TYPE_CHECKING:
    from swiftsure.verify.tasks.comparing import TaskComparison

_JOB = "The tasks"
_FOLDER = Path("swiftsure-tasks")
_EXITS = {"non_inferior": 0, "inferior": 1, "undecided": 3}

Mode = Annotated[str, option("--mode", metavar="MODE", section=_JOB, help="The mode that answers. Default: default.")]
Baseline = Annotated[
    str | None, option("--baseline", metavar="MODE", section=_JOB, help="Another mode that answers the same items, to compare with.")
]
Names = Annotated[
    list[str] | None,
    option("--task", metavar="NAME", section=_JOB, help="words, sentences, arithmetic, copying, json, needle, code; a,b or repeated."),
]
Limit = Annotated[int | None, option("--limit", metavar="N", section=_JOB, help="The first N items of each task. Default: all.")]
Margin = Annotated[float, option("--margin", metavar="POINTS", section=_JOB, help="How many points worse is still acceptable. Default: 3.")]
OutFolder = Annotated[
    Path, option("--out", metavar="DIR", section=options.OUTPUT, help=f"Where items and tasks.json go. Default: {_FOLDER}.")
]


def tasks(
    model: options.ModelOption = None,
    mode: Mode = "default",
    baseline: Baseline = None,
    task: Names = None,
    limit: Limit = None,
    margin: Margin = 3.0,
    out: OutFolder = _FOLDER,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    isa: options.IsaOption = None,
) -> int:
    """Runs the built-in task suite: what is right, how long a right answer takes, and whether a mode is no worse than another.

    Exit codes with --baseline: 0 no worse by the margin, 1 worse, 3 not decided.
    """
    from swiftsure.engine.load_options import LoadOptions
    from swiftsure.records.run_record import check_writable
    from swiftsure.verify.proving.screen import Screen
    from swiftsure.verify.tasks.catalogue import TASKS, tasks_named
    from swiftsure.verify.tasks.comparing import compare_suites, count_items, run_modes, write_suites

    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be at least 1, got {limit}")
    share = _share(margin)
    if baseline == mode:
        raise UsageError(f"--baseline and --mode must differ, got {mode} twice")
    chosen = tasks_named(options.split_names(task)) if task else TASKS
    check_writable(out / "tasks.json")
    modes = (baseline, mode) if baseline is not None else (mode,)
    chosen_model = model or options.DEFAULT_MODEL
    settle_licences(chosen_model, accept=accept_licence, offline=offline)
    load = LoadOptions(threads=threads, isa=isa, context=context, offline=offline)
    with Screen() if sys.stderr.isatty() else nullcontext() as screen:
        advance = screen.counter("answering items", len(modes) * count_items(chosen, limit)) if screen else lambda _: None
        suites = run_modes(modes, chosen, chosen_model, load, limit=limit, on_line=screen.line if screen else note, advance=advance)
    compared = compare_suites(suites[baseline], suites[mode], margin=share) if baseline is not None else None
    write_suites(out, list(suites.values()), compared)
    for suite in suites.values():
        print(suite.subject)
        for found in suite.summaries():
            cost = "no right answer" if found.seconds_per_correct is None else f"{found.seconds_per_correct:.3g} s per right answer"
            print(f"  {found.task:<12}{100 * found.score:5.1f} %  {found.items:>5} items  {found.wall_s:7.1f} s  {cost}")
    note(f"items: {out}")
    return _print(compared) if compared is not None else 0


BaseFile = Annotated[Path, typer.Argument(metavar="BASELINE", show_default=False, help="Results of the baseline: .jsonl, .json or .csv.")]
OtherFile = Annotated[Path, typer.Argument(metavar="CANDIDATE", show_default=False, help="Results of the candidate on the same items.")]
Id = Annotated[str, option("--id", metavar="COLUMN", section=_JOB, help="The column that names an item. Default: id.")]
Score = Annotated[
    str | None,
    option("--score", metavar="COLUMN", section=_JOB, help="The score's column. Default: score, or lm-eval's first metric."),
]
Cluster = Annotated[str, option("--cluster", metavar="COLUMN", section=_JOB, help="What items belong to. Default: cluster, where it is.")]
Group = Annotated[str, option("--group", metavar="COLUMN", section=_JOB, help="The setting of an item. Default: group, where it is.")]
JsonFile = Annotated[Path | None, option("--json", metavar="FILE", section=options.OUTPUT, help="Write the comparison as JSON.")]


def results(
    baseline: BaseFile,
    candidate: OtherFile,
    margin: Margin = 3.0,
    id_column: Id = "id",
    score: Score = None,
    cluster: Cluster = "cluster",
    group: Group = "group",
    json_file: JsonFile = None,
) -> int:
    """Compares two files of results item by item: lm-eval's samples, any CSV, or what verify tasks wrote.

    Exit codes: 0 no worse by the margin, 1 worse, 3 not decided.
    """
    from swiftsure.records.run_record import check_writable, write_json
    from swiftsure.verify.tasks.comparing import compare_suites
    from swiftsure.verify.tasks.importing import Columns, read_results
    from swiftsure.verify.tasks.run import SuiteResult

    if json_file is not None:
        check_writable(json_file)
    columns = Columns(id=id_column, score=score, cluster=cluster, group=group)
    sides = [SuiteResult(subject=str(path), results=tuple(read_results(path, columns))) for path in (baseline, candidate)]
    compared = compare_suites(*sides, margin=_share(margin))
    if json_file is not None:
        write_json(json_file, compared.to_dict())
    return _print(compared)


def _share(points: float) -> float:
    if not 0 < points < 100:
        raise UsageError(f"--margin must lie between 0 and 100 points, got {points:g}")
    return points / 100


def _print(compared: TaskComparison) -> int:
    for line in compared.lines():
        print_wrapped("", line)
    return _EXITS[compared.found.decision or "undecided"]
