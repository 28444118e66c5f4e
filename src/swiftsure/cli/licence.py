"""Licences at first download: a line that names them, and a question where their terms must be accepted."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from swiftsure.cli.console import note

if TYPE_CHECKING:
    from swiftsure.models.licences import Licence


def settle_licences(*names: str | None, accept: bool, offline: bool, force: bool = False) -> None:
    """Called with the models that a command is about to open, before it draws a bar or starts a process.

    Shows the licence of each that will be fetched. ``accept``: ``--accept-licence``. Raises LicenceError where terms are not accepted:
    declined, or nobody there to ask.
    """
    from swiftsure.models.catalogue import settle_licence

    answer = ask if not accept and sys.stdin.isatty() and sys.stderr.isatty() else accept
    for name in names:
        licence = settle_licence(name, offline=offline, force=force, accept_licence=answer) if name is not None else None
        if licence is not None:
            note(f"licence of {name}: {licence.name}, {licence.url}")


def ask(model: str, licence: Licence) -> bool:
    """Asks on the terminal until the answer is yes or no; the end of input is no."""
    note(f"{model} comes under the {licence.name}: {licence.url}")
    note(licence.gist or "")
    while True:
        print("Do you accept them? [yes/no] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            note("")
            return False
        if answer.strip().lower() in ("y", "yes"):
            return True
        if answer.strip().lower() in ("n", "no"):
            return False
