"""``swiftsure check``: what a mode would do here, without running it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from swiftsure.cli import options
from swiftsure.cli.console import ProgressBar, count_text, note, print_pairs, print_table, print_wrapped, size_text
from swiftsure.cli.framework import option
from swiftsure.cli.licence import settle_licences

if TYPE_CHECKING:
    from swiftsure import CheckResult

ShowSchedule = Annotated[
    bool,
    option("--show-schedule", section=options.OUTPUT, help="Print the static program of a decode pass: bytes and operations of each step."),
]


def check(
    model: options.ModelArgument = None,
    model_option: options.ModelOption = None,
    mode: options.ModeOption = None,
    without: options.WithoutOption = None,
    draft: options.DraftOption = None,
    offline: options.OfflineOption = False,
    accept_licence: options.AcceptLicenceOption = False,
    json_output: options.JsonFlag = False,
    show_schedule: ShowSchedule = False,
    threads: options.ThreadsOption = None,
    context: options.ContextOption = None,
    kv_memory: options.KvMemoryOption = None,
    isa: options.IsaOption = None,
    no_cache: options.NoCacheOption = False,
) -> int:
    """Say what a mode would do here, without running it.

    Resolves pins, machine, levers, schedule and memory. Ends with 0 when the mode can engage and with 3 when it cannot.
    """
    name = options.chosen_model(model, model_option)
    from swiftsure.engine.checking import check as check_mode

    settle_licences(name, draft, accept=accept_licence, offline=offline)
    with ProgressBar("loading") as progress:
        result = check_mode(
            name,
            mode,
            threads=threads,
            context=context,
            kv_memory=kv_memory,
            isa=isa,
            without=options.split_names(without),
            draft=draft,
            offline=offline,
            cache=not no_cache,
            progress=progress,
        )
    if json_output:
        facts = result.to_dict()
        print(json.dumps(facts if show_schedule else {key: facts[key] for key in facts if key != "schedule"}, indent=2))
    else:
        _print_result(result)
        if show_schedule:
            _print_schedule(result)
    if result.reason is not None:
        from swiftsure.engine.activation import not_active_line

        note(not_active_line(result.mode, result.reason))
    return 0 if result.active else 3


def _print_result(result: CheckResult) -> None:
    pairs = {"mode": result.mode, "active": "yes" if result.active else f"no: {result.reason}", "model": result.pins["name"]}
    pairs |= {"source": result.pins["source"], "weights": f"sha256:{result.pins['sha256']}"}
    if result.activation is not None:
        planned = result.activation
        pairs |= {"numerics": planned.numerics, "isa": planned.isa, "threads": result.thread_choice.reason if result.thread_choice else ""}
        pairs |= {"levers": ", ".join(planned.levers) or "none"}
        if planned.levers_off:
            pairs["levers off"] = ", ".join(planned.levers_off)
        if planned.draft is not None:
            draft = planned.draft
            pairs["draft"] = f"{draft.kind} {draft.name}, {size_text(draft.weight_bytes)}, sha256:{draft.sha256}"
    pairs["a token reads"] = f"{size_text(result.bytes_per_token)} of weights"
    if result.memory is not None:
        memory = result.memory
        pairs["a token reads"] += f", {size_text(memory.kv_bytes_per_token)} of keys and values per position before it"
        pairs["memory"] = f"{size_text(memory.total_bytes)}: weights {size_text(memory.weight_bytes)}; {memory.reason}"
    pairs["start"] = result.start
    print_pairs(pairs)
    print("modes")
    for line in result.advice:
        print_wrapped("  ", line)


def _print_schedule(result: CheckResult) -> None:
    """One line a step; cache bytes are those of one position."""
    rows = [
        [str(step), cost.name, cost.shape, cost.writes, size_text(cost.weight_bytes), size_text(cost.kv_bytes), count_text(cost.operations)]
        for step, cost in enumerate(result.schedule)
    ]
    totals = [sum(getattr(cost, name) for cost in result.schedule) for name in ("weight_bytes", "kv_bytes", "operations")]
    rows.append(["", "all", "", "", size_text(totals[0]), size_text(totals[1]), count_text(totals[2])])
    print()
    # One blank apart: with the widths of real models that is what 80 columns hold.
    print_table(["step", "operation", "shape", "writes", "weights", "cache", "ops"], rows, right=(0, 4, 5, 6), gap=1)
