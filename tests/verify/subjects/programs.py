"""Small programs to run as subjects. Each is a script's text that gets ``source`` and ``target`` as paths."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from swiftsure.verify.subjects.base import Case, Trial
from swiftsure.verify.subjects.command import CommandOptions, CommandSubject

HEAD = "import os, sys, time, json\nfrom pathlib import Path\nsource, target = Path(sys.argv[1]), Path(sys.argv[2])\n"
WRITE = "target.write_text('done')\n"


def command(folder: Path, body: str, places: str = "{input} {output}") -> str:
    """Writes a program and gives the command that runs it."""
    script = folder / "program.py"
    script.write_text(HEAD + body)
    return f"{shlex.quote(sys.executable)} {shlex.quote(str(script))} {places}"


def run_program(place: Path, body: str, *, places: str = "{input} {output}", **options: object) -> Trial:
    """One trial of a program on a case whose file holds ``abc``."""
    source = place / "case.txt"
    source.write_text("abc")
    subject = CommandSubject(command(place, body, places), CommandOptions(**options))  # type: ignore[arg-type]
    try:
        subject.start()
        return subject.run(Case(id="case 1/x", path=source))
    finally:
        subject.close()
