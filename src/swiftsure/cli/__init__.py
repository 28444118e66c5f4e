"""The command line: arguments and printing only. What a command does lives in the package it calls.

Importing this package is cheap; every command imports what it needs when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 failed, 2 usage, 3 not active or unproved."""
    from swiftsure.cli.app import run_command

    return run_command(sys.argv[1:] if argv is None else list(argv))
