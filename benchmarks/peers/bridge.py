"""Engines that call back for every token, turned into iterators. Standard library only: workers import this."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

Push = Callable[[Sequence[int]], bool]
"""Hands a group of tokens over; returns once the next is wanted. False: nobody wants more, the engine should stop."""


def groups(generate: Callable[[Push], None]) -> Iterator[Sequence[int]]:
    """The groups that ``generate`` pushes.

    It runs on a thread of its own and stands still inside ``push`` until the next group is asked for, so that the engine computes in its
    own turns only. What it raises is raised here.
    """
    wanted, ready = threading.Semaphore(0), threading.Semaphore(0)
    slot: list[Sequence[int]] = []
    failure: list[BaseException] = []
    left = threading.Event()

    def push(tokens: Sequence[int]) -> bool:
        if left.is_set():
            return False
        slot.append(tokens)
        ready.release()
        wanted.acquire()
        return not left.is_set()

    def work() -> None:
        wanted.acquire()
        try:
            if not left.is_set():
                generate(push)
        except BaseException as error:
            failure.append(error)
        ready.release()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            wanted.release()
            ready.acquire()
            if not slot:
                break
            yield slot.pop()
    finally:
        left.set()
        wanted.release()
        thread.join()
    if failure:
        raise failure[0]
