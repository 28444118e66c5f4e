"""Lines to disk beside the measurement: whoever measures hands an exchange over and goes on at once."""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from swiftsure.bench.exchange import Exchange
from swiftsure.bench.protocol.rows import to_line

_MOST_UNSYNCED = 100  # lines that come faster than the disk syncs are synced together


class LineWriter:
    """Appends exchanges to one file on a thread of its own. Each line is one write, and synced before the next wait.

    Whatever is killed after the write finds the line in the file; the sync is for a machine that loses power.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._queue: queue.SimpleQueue[Exchange | threading.Event | None] = queue.SimpleQueue()
        self._failure: OSError | None = None
        self._unsynced = 0
        self._thread = threading.Thread(target=self._work, name="bench-writer", daemon=True)
        self._thread.start()

    def put(self, exchange: Exchange) -> None:
        """Raises the OSError that an earlier line ended with: a full disk must not lose a second one."""
        self._raise()
        self._queue.put(exchange)

    def flush(self) -> None:
        """Returns when all that was handed over is on disk. Raises OSError."""
        done = threading.Event()
        self._queue.put(done)
        done.wait()
        self._raise()

    def close(self) -> None:
        """Writes what is left and ends the thread. Raises OSError."""
        self._queue.put(None)
        self._thread.join()
        os.close(self._file)
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, threading.Event):
                self._sync()
                item.set()
            elif self._failure is None:
                try:
                    self._append(to_line(item).encode("utf-8", "replace"))
                    self._unsynced += 1
                except OSError as error:
                    self._failure = error
                if self._queue.empty() or self._unsynced >= _MOST_UNSYNCED:
                    self._sync()
        self._sync()

    def _sync(self) -> None:
        if self._unsynced and self._failure is None:
            self._unsynced = 0
            try:
                os.fsync(self._file)
            except OSError as error:
                self._failure = error

    def _append(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            view = view[os.write(self._file, view) :]
