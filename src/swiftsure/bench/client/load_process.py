"""``python -m swiftsure.bench.client.load_process``: one process of a load. It speaks with its parent over standard input and output.

It imports little, parses nothing and writes nothing itself: recordings go out through a thread, so that a parent that is busy reading
earlier ones never holds the event loop up. It ends when its parent does.
"""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import resource
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from swiftsure.bench.client.load import Load
from swiftsure.bench.client.messages import FromParent, FromProcess, Plan, Ready, Start

_RARELY = (100_000, 50, 100)  # a full collection takes longer than the gap between two tokens


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


async def run(load: Load, receive: Connection[FromProcess, FromParent], outbox: Outbox, start: float) -> None:
    loop = asyncio.get_running_loop()
    running = loop.create_task(load.run(start))

    def hear() -> None:
        try:
            receive.recv()
        except (EOFError, OSError):
            os._exit(1)  # nobody is left to report to
        running.cancel()  # Stop is all that can come

    loop.add_reader(receive.fileno(), hear)
    outbox.put(await running)


def main() -> None:
    receive, outbox = open_pipes()
    with suppress(EOFError):
        plan = receive.recv()
        assert isinstance(plan, Plan)
        load = Load(plan, outbox.put)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        gc.freeze()
        gc.set_threshold(*_RARELY)
        outbox.put(Ready())
        start = receive.recv()
        if isinstance(start, Start):
            asyncio.run(run(load, receive, outbox, start.at))
    outbox.close()


if __name__ == "__main__":
    main()
