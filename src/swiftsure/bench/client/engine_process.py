"""``python -m swiftsure.bench.client.engine_process``: loads on the built-in engine, which is loaded once for all that follow.

It speaks with its parent as a process of a load does, and then waits for the next plan; it ends when its parent does.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from time import perf_counter

import swiftsure
from swiftsure.bench.client.engine_load import EngineLoad
from swiftsure.bench.client.messages import Failed, FromParent, FromProcess, Plan, Ready, Start
from swiftsure.bench.client.pipes import Outbox, open_pipes
from swiftsure.errors import SwiftsureError

_LOOK_S = 0.05  # how often the parent's word to stop is looked for


def main() -> None:
    receive, outbox = open_pipes()
    llm: swiftsure.LLM | None = None
    with suppress(EOFError):
        while True:
            plan = receive.recv()
            assert isinstance(plan, Plan)
            try:
                if llm is None:
                    llm = swiftsure.load(plan.target.url, mode=plan.target.mode)
                    print(llm.activation.active_line(), file=sys.stderr, flush=True)
                load = EngineLoad(llm, plan, outbox.put)
            except SwiftsureError as error:
                outbox.put(Failed(kind=type(error).__name__, words=str(error)))
                break
            outbox.put(Ready())
            _run(load, receive, outbox)
    if llm is not None:
        for line in llm.activation.lever_lines():
            print(line, file=sys.stderr, flush=True)
        llm.close()
    outbox.close()


def _run(load: EngineLoad, receive: Connection[FromProcess, FromParent], outbox: Outbox) -> None:
    looked = perf_counter()

    def stopped() -> bool:
        """Raises EOFError when the parent is gone."""
        nonlocal looked
        now = perf_counter()
        if now - looked < _LOOK_S:
            return False
        looked = now
        if not receive.poll():
            return False
        receive.recv()  # Stop is all that can come
        return True

    start = receive.recv()
    if isinstance(start, Start):
        outbox.put(load.run(start.at, stopped))


if __name__ == "__main__":
    main()
