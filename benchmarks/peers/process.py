"""The runner's end of a worker."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 300.0
"""A worker that does not answer for so long is ended."""
LOAD_S = 900.0
"""The same for loading and preparing: some engines compile first, and keep the result for the next time."""


class PeerError(Exception):
    """A worker failed; the message names the contender and gives its words. ``reason`` is short enough for a cell."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message


class Worker:
    """A contender's process. Errors of the contender raise PeerError; the process's own output goes to ``log``."""

    def __init__(self, name: str, python: Path, *, log: Path, variables: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.started = perf_counter()
        self._log_path = log
        self._log = log.open("w", encoding="utf-8")
        # The module search path of this process goes along: the own engine may run from a source tree.
        paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        try:
            self._process = subprocess.Popen(
                [str(python), "-m", "benchmarks.peers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                cwd=ROOT,
                env={**os.environ, **(variables or {}), "PYTHONPATH": os.pathsep.join(paths)},
            )
        except OSError as error:
            self._log.close()
            raise PeerError(f"{name}: {python} cannot be started: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, do: str, *, answer_s: float = ANSWER_S, **arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise PeerError(f"{self.name}: not connected")
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
            if not select.select([stdout], [], [], answer_s)[0]:
                self._process.kill()
                raise self._failed(do, f"no answer within {answer_s:g} s")
            line = stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise self._failed(do, f"the process ended with status {self._process.wait()}")
        reply = json.loads(line)
        if "error" in reply:
            raise self._failed(do, reply["error"])
        return reply["result"]

    def _failed(self, do: str, reason: str) -> PeerError:
        return PeerError(f"{self.name}: {do}: {reason}; see {self._log_path}", reason)

    def close(self) -> None:
        """Ends the process: by the end of its input, and after ten seconds by force."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:  # what it never read cannot be flushed any more
                self._process.kill()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
