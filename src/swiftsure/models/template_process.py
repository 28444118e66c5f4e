"""The child process that renders templates nobody has reviewed, seen from the parent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import weakref
from typing import Any

from swiftsure.models import template_worker
from swiftsure.models.template_worker import MAX_OUTPUT_CHARACTERS, RenderError

_PATIENCE = 5  # times the limit of processor time: what a busy machine may take for it
_END_LIMIT_S = 1.0  # for a process to be gone once its output has ended
_START_LIMIT_S = 30.0  # of the child itself, on a machine that is busy
_ANSWER_LIMIT_BYTES = 8 * MAX_OUTPUT_CHARACTERS


class ChildLostError(Exception):
    """The child was too slow, said too much or died; it is of no further use."""


class Child:
    """A process that renders."""

    def __init__(self) -> None:
        # -S and -I keep the child from site files and the environment; it gets our import path instead.
        command = [sys.executable, "-I", "-S", template_worker.__file__]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise RenderError(f"its process cannot be started: {error}") from None
        self.stop = weakref.finalize(self, _stop, self._process)
        self._ready = False

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """The worker's answer. Raises RenderError for what the template says, ChildLostError when the child must be given up."""
        if not self._ready:
            self._send([folder for folder in sys.path if folder])  # "" would let files of the current folder in
            if self._receive(_START_LIMIT_S, f"its process did not start within {_START_LIMIT_S:g} s") != b"ready":
                raise ChildLostError("its process did not start")
            self._ready = True
        too_late = f"it ran longer than {limit_s:g} s and was stopped"
        self._send(request | {"cpu_s": limit_s})
        answer: dict[str, Any] = json.loads(self._receive(_PATIENCE * limit_s, too_late))
        if "error" in answer:
            raise RenderError(answer["error"])
        return answer

    def _ran_out_of_time(self) -> bool:
        """Whether the process, whose output has ended, was ended for the processor time that it took."""
        try:
            return self._process.wait(_END_LIMIT_S) == -signal.SIGPROF
        except subprocess.TimeoutExpired:
            return False

    def _send(self, message: object) -> None:
        pipe = self._process.stdin
        if pipe is None:
            raise ChildLostError("its process has no input")
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise ChildLostError("its process died") from None

    def _receive(self, limit_s: float, too_late: str) -> bytes:
        """One line, without its end."""
        pipe = self._process.stdout
        if pipe is None:
            raise ChildLostError("its process has no output")
        deadline = time.monotonic() + limit_s
        line = bytearray()
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ChildLostError(too_late)
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                raise ChildLostError(too_late if self._ran_out_of_time() else "its process died, most likely of its memory limit")
            line += piece
            if len(line) > _ANSWER_LIMIT_BYTES:
                raise ChildLostError("its output is too long")
        return bytes(line[:-1])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unsent bytes for a process that is gone
                pipe.close()
    process.wait()
