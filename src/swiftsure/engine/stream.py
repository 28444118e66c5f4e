"""One generation piece by piece, and the passes that callers run while they wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from swiftsure.engine.engine import Engine
from swiftsure.engine.request import Generation
from swiftsure.engine.request import Sequence as Running


class Stream:
    """Pieces of one generation as they come. ``generation`` is what it has come to so far, in the end the whole.

    Leaving early (``close``, or the end of a ``with`` block) cancels the request; ``cancel`` does so from another thread.
    """

    def __init__(self, engine: Engine, lock: threading.RLock, seq: Running) -> None:
        self._engine = engine
        self._lock = lock
        self._seq = seq
        self._pieces: deque[str] = deque()

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        seq = self._seq
        if not self._pieces:
            try:
                drive(self._engine, self._lock, seq, lambda seq: bool(seq.pieces) or seq.finished)
            except BaseException:
                self.close()
                raise
            self._pieces.extend(seq.take_pieces())
        if self._pieces:
            return self._pieces.popleft()
        if seq.error is not None:
            raise seq.error
        raise StopIteration

    @property
    def generation(self) -> Generation:
        with self._lock:
            return self._seq.generation()

    def cancel(self) -> None:
        """Ends the request before the next pass."""
        self._seq.cancel_requested = True

    def close(self) -> None:
        with self._lock:
            self._engine.cancel(self._seq)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self._seq.cancel_requested = True  # nobody can read on: the next pass leaves it out


def drive(engine: Engine, lock: threading.RLock, seq: Running, ready: Callable[[Running], bool]) -> None:
    """Runs passes until the sequence is ready. The lock is let go between passes, so other callers' requests join in."""
    while not ready(seq):
        with lock:
            if not ready(seq):
                engine.step()
