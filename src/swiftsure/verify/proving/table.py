"""The table on a terminal, readable in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swiftsure.verify.proving import words
from swiftsure.verify.proving.mode_run import BASE
from swiftsure.verify.proving.result import ModeResult, ProveResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {"PROVED": "green", "FAILED": "bold red", "UNPROVED": "yellow", "INCONCLUSIVE": "yellow", "NOT_ACTIVE": "dim"}


def print_table(result: ProveResult, console: Console) -> None:
    """Verdicts and figures per mode, then the breakdown of each mode, then what a reader must know about them."""
    model, settings, workload = result.pins["model"], result.settings, result.workload
    console.print(f"{model['name']}, sha256 {model['sha256'][:12]}, numerics {settings['numerics']}", markup=False, highlight=False)
    console.print(f"{result.machine.cpu_model}, {settings['isa']}, threads {settings['threads']}", markup=False, highlight=False)
    greedy = f"{workload['prompts']} prompts, {workload['greedy']} of them greedy"
    tokens = f"{workload['prompt_tokens']:,} tokens in, {workload['new_tokens']:,} out"
    console.print(f"{greedy}: {tokens}; took {words.seconds(result.wall_s)}", highlight=False)
    console.print(_modes(result))
    for mode in result.modes:
        if mode.mode != BASE and mode.by_kind:
            console.print(_breakdown(mode))
    for mode in result.modes:
        if mode.speculation:
            console.print(_drafts(mode))
    for mode in result.modes:
        if mode.contract:
            console.print(_contract(mode))
    for mode in result.modes:
        if mode.phases_s:
            console.print(_phases(mode), markup=False, highlight=False)
    for line in _remarks(result):
        console.print(line, markup=False, highlight=False)


def _new_table(title: str | None, *columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="bold")
    table.add_column(columns[0], no_wrap=True)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _modes(result: ProveResult) -> Table:
    table = _new_table(None, "mode", "verdict", "tokens/s", "TTFT", "end to end", "memory", "ratio", "of wall")
    for mode in result.modes:
        figures = ["" for _ in range(6)]
        if mode.phases_s:
            wall = mode.memory_wall.get("fraction")
            figures = [
                words.rate(mode.decode_tokens_per_s),
                words.seconds(mode.ttft_s),
                words.seconds(mode.end_to_end_s),
                words.megabytes(mode.peak_rss_bytes),
                "" if mode.memory_ratio is None else words.ratio(mode.memory_ratio),
                "" if wall is None else words.percent(wall),
            ]
        table.add_row(mode.mode, f"[{STYLES[mode.verdict]}]{mode.verdict}[/]", *figures)
    if result.upstream["status"] != "NOT MEASURED":
        up = result.upstream
        speeds = words.rate(up["decode_tokens_per_s"]), words.seconds(up["ttft_s"]), "", words.megabytes(up["peak_rss_bytes"])
        table.add_row("upstream", up.get("verdict", {}).get("kind", ""), *speeds, "", "")
    return table


def _breakdown(mode: ModeResult) -> Table:
    from rich.markup import escape

    table = _new_table(f"{mode.mode} against default: speed-up (95 % interval)", "", "decode", "first token", "end to end", "pairs")
    for name, figures in words.breakdown_rows(mode):
        entries = figures["intervals"]
        table.add_row(
            escape(name), *(words.interval(entries[metric]) for metric in words.METRIC_NAMES), str(entries["end_to_end"]["pairs"])
        )
    table.add_row("worst prompt", *(words.ratio(mode.worst[metric]) for metric in words.METRIC_NAMES), "")
    return table


def _drafts(mode: ModeResult) -> Table:
    from rich.markup import escape

    table = _new_table(f"{mode.mode}: drafts, and the best lengths in hindsight", "", "tokens/pass", "best", "accepted", "decode", "best")
    for name, *figures in words.draft_rows(mode):
        table.add_row(escape(name), *figures)
    return table


def _contract(mode: ModeResult) -> Table:
    table = _new_table(f"{mode.mode} against default: distributions by text and tokens", "", *words.CONTRACT_COLUMNS.values())
    for label, cells in words.contract_rows(mode.contract):
        table.add_row(label, *cells)
    return table


def _phases(mode: ModeResult) -> str:
    parts = ", ".join(f"{phase} {words.seconds(value)}" for phase, value in mode.phases_s.items())
    return f"{mode.mode}: {parts}"


def _remarks(result: ProveResult) -> list[str]:
    probe = result.bandwidth
    lines = [f"memory wall: {probe['threads']} threads read {probe['read_gb_per_s']:.1f} GB/s"]
    lines += [words.worst_line(mode) for mode in result.modes if mode.mode != BASE and mode.worst]
    lines.append(words.upstream(result.upstream))
    return lines + [words.sentence(mode) for mode in result.modes]
