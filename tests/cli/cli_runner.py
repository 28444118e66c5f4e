"""Runs the command line in this process or as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def line(self, start: str) -> str:
        """The one line of standard error that begins with ``start``."""
        lines = [line for line in self.err.splitlines() if line.startswith(start)]
        assert len(lines) == 1, f"expected one {start!r} line in:\n{self.err}"
        return lines[0]


Run = Callable[..., Result]
COMMAND = (sys.executable, "-c", "import sys; from swiftsure.cli import main; sys.exit(main())")


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without the variables that choose a mode or an instruction set."""
    return {key: value for key, value in os.environ.items() if key not in ("SWIFTSURE_MODE", "SWIFTSURE_ISA")} | more


def start(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
    """``swiftsure ARGUMENTS`` as a process of its own, with pipes."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": clean_environment()}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **(streams | options))
