"""``swiftsure bench``: what a user feels."""

from __future__ import annotations

import typer

from swiftsure.cli import bench_tiers
from swiftsure.cli.framework import CommandGroup, PlainCommand

bench_app = typer.Typer(cls=CommandGroup, rich_markup_mode=None, help="Measure what a user feels.")
bench_app.command("tiers", cls=PlainCommand)(bench_tiers.tiers)
