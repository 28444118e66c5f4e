"""``python -m swiftsure.bench.client.load_process``: one process of a load. It speaks with its parent over standard input and output.

It imports little, parses nothing and writes nothing itself: recordings go out through a thread, so that a parent that is busy reading
earlier ones never holds the event loop up. It ends when its parent does.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from contextlib import suppress
from multiprocessing.connection import Connection

from swiftsure.bench.client.load import Load
from swiftsure.bench.client.messages import FromParent, FromProcess, Plan, Ready, Start
from swiftsure.bench.client.pipes import Outbox, open_pipes

_RARELY = (100_000, 50, 100)  # a full collection takes longer than the gap between two tokens


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
