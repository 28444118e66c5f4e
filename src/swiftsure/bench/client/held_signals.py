"""Ctrl-C and SIGTERM, held back until a good moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Held:
    """``number``: the signal that arrived first."""

    number: int | None = None


@contextmanager
def held_signals() -> Iterator[Held]:
    """Within, the first of the two signals is only noted; it takes its usual way at the end. A second one takes it at once.

    Only the main thread may arrange that; elsewhere nothing changes.
    """
    held = Held()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: object) -> None:
        held.number = number
        restore()

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield held
    finally:
        restore()
    if held.number is not None:
        signal.raise_signal(held.number)
