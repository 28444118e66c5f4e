"""Writes docs/cli.md from the help that the commands really print; ``--check`` only says whether the file is up to date."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path

from generated import write_or_check

from swiftsure.cli import main

PAGE = Path(__file__).with_name("cli.md")
COMMANDS = (
    [],
    ["run"],
    ["serve"],
    ["prove"],
    ["verify"],
    ["verify", "init"],
    ["verify", "service"],
    ["verify", "report"],
    ["verify", "advise"],
    ["verify", "tasks"],
    ["verify", "results"],
    ["gate"],
    ["bench"],
    ["bench", "round"],
    ["bench", "load"],
    ["bench", "report"],
    ["bench", "compare"],
    ["bench", "claim"],
    ["bench", "scenario"],
    ["bench", "tiers"],
    ["profile"],
    ["check"],
    ["quantize"],
    ["models"],
    ["models", "list"],
    ["models", "pull"],
    ["models", "info"],
    ["models", "verify"],
)
INTRODUCTION = """# The command line

Generated from the commands' own help by `python docs/generate_cli.py`; a test keeps it up to date.
"""


def page() -> str:
    """The whole page. The help is laid out for 80 columns whatever the terminal."""
    os.environ["COLUMNS"] = "80"
    parts = [INTRODUCTION]
    for command in COMMANDS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            main([*command, "--help"])
        parts.append(f"## `{' '.join(['swiftsure', *command])}`\n\n```\n{printed.getvalue().strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(
        write_or_check(PAGE, page(), sys.argv[1:], stale="docs/cli.md is not what the commands print: run python docs/generate_cli.py")
    )
