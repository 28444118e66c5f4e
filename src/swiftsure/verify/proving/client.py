"""The parent's end of a worker process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Self

from swiftsure.engine.activation import MODE_VARIABLE
from swiftsure.errors import ContractError

WORKER = (sys.executable, "-m", "swiftsure.verify.proving.worker")
_LAST_WORDS = 20
_PATIENCE_S = 5.0


class WorkerError(ContractError):
    """A worker refused a command or died. ``kind`` is the error's class in the worker, whose exit code this error takes over."""

    def __init__(self, reason: str, *, kind: str, code: int) -> None:
        super().__init__(reason)
        self.kind = kind
        self.exit_code = code


class WorkerClient:
    """Starts a worker in a session of its own and talks to it, one command at a time.

    ``on_line`` gets each line that the worker writes to standard error (ACTIVE, LEVER, EXIT, warnings), from a thread. ``environment`` is
    added to this process's own.
    """

    def __init__(
        self,
        name: str,
        *,
        on_line: Callable[[str], None],
        command: Sequence[str] = WORKER,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._on_line = on_line
        self._last_lines: deque[str] = deque(maxlen=_LAST_WORDS)
        variables = {**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"}
        variables.pop(MODE_VARIABLE, None)  # the mode is named in the load command; a second name could only contradict it
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=variables,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._forward, name=f"stderr of {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        """Sends a command and waits for its answer. Raises ``WorkerError`` when the worker refuses or is gone."""
        stdin, stdout = self._pipe(self._process.stdin), self._pipe(self._process.stdout)
        try:
            stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line.endswith("\n"):
            raise self._death(op)
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise WorkerError(str(answer["reason"]), kind=str(answer["error"]), code=int(answer["exit_code"]))
        return answer

    def close(self) -> None:
        """Ends the worker: it is asked to by the end of its input, then made to. Safe to call twice."""
        with contextlib.suppress(BrokenPipeError, OSError):
            self._pipe(self._process.stdin).close()
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(_PATIENCE_S)
        self._pipe(self._process.stdout).close()

    def kill(self) -> None:
        """Ends the worker now, whatever it is doing."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is not None:
            self.kill()
        self.close()

    def _forward(self) -> None:
        stderr = self._pipe(self._process.stderr)
        for line in stderr:
            text = line.rstrip("\n")
            self._last_lines.append(text)
            self._on_line(text)
        stderr.close()

    def _death(self, op: str) -> WorkerError:
        code = self._process.wait()
        self._reader.join(_PATIENCE_S)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = next((line for line in reversed(self._last_lines) if line.strip()), "nothing")
        return WorkerError(f"the worker of mode {self.name} {how} during {op}; its last words: {words}", kind="WorkerDied", code=1)

    @staticmethod
    def _pipe(stream: IO[str] | None) -> IO[str]:
        assert stream is not None  # all three are pipes
        return stream
