"""The runner's end of a worker."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class PeerError(Exception):
    """A worker failed; the message names the contender and gives its words."""


class Worker:
    """A contender's process. Errors of the contender raise PeerError; the process's own output goes to ``log``."""

    def __init__(self, name: str, python: Path, *, log: Path) -> None:
        self.name = name
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
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        except OSError as error:
            self._log.close()
            raise PeerError(f"{name}: {python} cannot be started: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, **arguments: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise PeerError(f"{self.name}: not connected")
        try:
            stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise PeerError(f"{self.name}: the process ended during {do} with status {self._process.wait()}; see {self._log_path}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"{self.name}: {do}: {reply['error']}; see {self._log_path}")
        return reply["result"]

    def close(self) -> None:
        """Ends the process: by the end of its input, and after ten seconds by force."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
