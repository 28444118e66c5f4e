"""``swiftsure bench``: what a user feels."""

from __future__ import annotations

from typing import Any

import typer

from swiftsure.cli import bench_load, bench_results, bench_round, bench_scenario, bench_tiers
from swiftsure.cli.framework import CommandGroup, PlainCommand, grouped

_ROUND = "round"


class BenchGroup(CommandGroup):
    """What is no command's name is the target of a round: ``swiftsure bench URL`` is ``swiftsure bench round URL``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] != "--help" and args[0] not in self.commands:
            args = [_ROUND, *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    cls=BenchGroup,
    rich_markup_mode=None,
    subcommand_metavar="TARGET | COMMAND [ARGS]...",
    no_args_is_help=True,
    help="Measure what a user feels.\n\nswiftsure bench TARGET measures a round, as swiftsure bench round TARGET does.",
)
bench_app.command(_ROUND, cls=PlainCommand)(grouped(bench_round.bench_round))
bench_app.command("load", cls=PlainCommand)(grouped(bench_load.bench_load))
bench_app.command("report", cls=PlainCommand)(grouped(bench_results.bench_report))
bench_app.command("compare", cls=PlainCommand)(bench_results.bench_compare)
bench_app.command("claim", cls=PlainCommand)(bench_results.bench_claim)
bench_app.command("scenario", cls=PlainCommand)(grouped(bench_scenario.bench_scenario))
bench_app.command("tiers", cls=PlainCommand)(bench_tiers.tiers)
