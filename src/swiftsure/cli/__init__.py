"""The command line: arguments and printing only. What a command does lives in the package it calls.

Importing this package is cheap; every command imports what it needs when it runs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 done, 1 failed, 2 usage, 3 not active or unproved."""
    try:
        from swiftsure.cli.app import run_command

        _ready_streams()
        return run_command(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:  # while modules were being imported, or while another ending was being told
        print("error: interrupted", file=sys.stderr)
        return 1


def _ready_streams() -> None:
    """Gives the process the standard streams it was started without, and lets none of them fail over a character.

    A closed stream is None in Python, and its number would go to the next file that is opened. What an encoding has no word for (text in
    Latin-1, a path that is not UTF-8) is written as an escape: an answer does not end half-way.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = os.O_RDONLY if name == "stdin" else os.O_WRONLY
            opened = os.open(os.devnull, mode)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - for as long as the process lives
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # whoever reads it says what is wrong with it
