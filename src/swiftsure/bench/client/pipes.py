"""The pipes between a process of a load and its parent, from the process's side."""

from __future__ import annotations

import os
import queue
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from swiftsure.bench.client.messages import FromParent, FromProcess


class Outbox:
    """Sends messages in order, from a thread of its own."""

    def __init__(self, pipe: Connection[FromProcess, FromParent]) -> None:
        self._pipe = pipe
        self._queue: queue.SimpleQueue[FromProcess | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, message: FromProcess) -> None:
        self._queue.put(message)

    def close(self) -> None:
        """Waits until all is sent."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # the parent is gone, and the loop notices that by itself
            while (message := self._queue.get()) is not None:
                self._pipe.send(message)


def open_pipes() -> tuple[Connection[FromProcess, FromParent], Outbox]:
    """The pipe from the parent, and the way to it. What else prints goes to standard error from now on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    receive: Connection[FromProcess, FromParent] = Connection(os.dup(0), writable=False)
    outbox = Outbox(Connection(os.dup(1), readable=False))
    os.dup2(2, 1)
    return receive, outbox
