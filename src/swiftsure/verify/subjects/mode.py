"""A mode of the built-in engine as a subject, in a process of its own: ``mode:fast``; ``file:x.gguf`` is another file in mode default."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import SwiftsureError, UsageError
from swiftsure.records.machine import library_versions, peak_rss_bytes
from swiftsure.verify.proving.client import WORKER, WorkerClient, WorkerError
from swiftsure.verify.proving.workload import Prompt
from swiftsure.verify.subjects import limited
from swiftsure.verify.subjects.base import Activation, Case, Output, Status, Trial
from swiftsure.verify.subjects.memory_limit import BY_CGROUP, MemoryLimit, memory_words, open_limit
from swiftsure.verify.subjects.requests import Score, request_of

KIND = "mode"
_LINE_PATIENCE_S = 10.0
_LAST_LINES = 50
_REFUSALS = ("ContextLengthError", "CapacityError", "TemplateError", "UsageError")
_USERS_FAULT = ("UsageError", "ModelError", "ModelNotFoundError", "ModelFileError", "UnsupportedModelError", "DigestError")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeOptions:
    """Which model, and how it is loaded. ``logits``: each trial also gets ``(rows, vocab)`` float32 logits, memory-mapped.

    ``time_limit_s`` is of one trial; a process that exceeds it is ended and started anew for the next.
    """

    model: str
    load: LoadOptions = field(default_factory=LoadOptions)
    logits: bool = False
    time_limit_s: float | None = 600.0
    memory_limit_bytes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.time_limit_s is not None and not 0 < self.time_limit_s < math.inf:
            raise UsageError(f"time_limit_s must be above 0, got {self.time_limit_s}")


class ModeSubject:
    """One mode on one model. Outputs of a prompt: ``text``, ``finish_reason``, ``token_ids``, and ``logits`` if asked for; of a scored
    text: ``token_ids`` and ``logits``. Phases: tokenize, prefill, decode, detokenize, other. A trial's peak memory is its own, weights
    included; that of the load is among the pins.

    ``start`` raises WorkerError for a model or a mode that cannot be used at all. A model that does not fit the memory limit is no such
    fault: every trial then says so.
    """

    def __init__(self, mode: str, options: ModeOptions, *, spec: str | None = None, worker: Sequence[str] = WORKER) -> None:
        from swiftsure.engine.modes import mode_spec

        mode_spec(mode)  # an unknown name is a usage error now, not when the process is up
        self.spec = spec if spec is not None else f"{KIND}:{mode}"
        self._mode = mode
        self._options = options
        self._worker = tuple(worker)
        self._client: WorkerClient | None = None
        self._loaded: dict[str, Any] = {}
        self._broken: tuple[Status, str] | None = None  # the load did not fit
        self._active_line: str | None = None
        self._line_came = threading.Event()
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._timed_out = False
        self._kills = 0
        self._limit = open_limit(options.memory_limit_bytes) if options.memory_limit_bytes is not None else None
        self._folder: Path | None = None

    def start(self) -> Activation:
        self._folder = Path(tempfile.mkdtemp(prefix="swiftsure-mode-"))
        return self._load()

    def run(self, case: Case) -> Trial:
        if self._folder is None:
            raise RuntimeError("run before start")
        try:
            request = request_of(case)
            if self._client is None and self._broken is None:
                self._load()
        except SwiftsureError as error:
            return Trial(case=case, status="failed", reason=str(error))
        if self._broken is not None:
            return Trial(case=case, status=self._broken[0], reason=self._broken[1])
        assert self._client is not None  # loaded, or broken
        _forget_peak(self._client.pid)
        try:
            with self._timer(self._client):
                return self._score(case, request) if isinstance(request, Score) else self._generate(case, request)
        except WorkerError as error:
            return self._ended(case, error)

    @property
    def client(self) -> WorkerClient | None:
        """The worker, for questions that are no cases; None before the start, and after a death until the next trial."""
        return self._client

    def pins(self) -> Mapping[str, Any]:
        weights = re.search(r"\bweights=(sha256:[0-9a-f]{64})\b", self._active_line or "")
        told = ("numerics", "isa", "threads", "levers", "draft", "weight_bytes", "load_peak_bytes")
        return {
            "kind": KIND,
            "mode": self._mode,
            "model": self._options.model,
            "version": library_versions(("swiftsure",)).get("swiftsure"),
            "weights_sha256": weights[1] if weights else None,
            "active_line": self._active_line,
            **{name: self._loaded[name] for name in told if name in self._loaded},
            "environment": dict(self._options.environment),
            "time_limit_s": self._options.time_limit_s,
            "memory_limit": self._limit and {"bytes": self._limit.limit_bytes, "by": _by(self._limit)},
        }

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._limit is not None:
            self._limit.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _load(self) -> Activation:
        self._line_came.clear()
        self._last_lines.clear()
        self._active_line = None
        options = self._options
        client = WorkerClient(self._mode, on_line=self._line, command=self._command(), environment=options.environment)
        try:
            self._loaded = client.ask("load", model=options.model, mode=self._mode, options=options.load.keywords())
        except WorkerError as error:
            client.kill()
            client.close()
            if error.kind == "NotActiveError":
                reason = str(error).removeprefix(f"mode {self._mode} is not active: ")
                self._broken = ("refused", f"mode {self._mode} is not active: {reason}")
                return Activation(state="not_active", reason=reason)
            if error.kind in _USERS_FAULT:
                raise
            self._broken = self._status(error)
            return Activation(state="unknown", reason=f"the model could not be loaded: {error}")
        except BaseException:
            client.kill()
            client.close()
            raise
        self._client = client
        self._loaded["load_peak_bytes"] = peak_rss_bytes(str(client.pid))
        return self._activation()

    def _command(self) -> tuple[str, ...]:
        if self._limit is None:
            return self._worker
        group = str(self._limit.group) if self._limit.group is not None else "-"
        return (sys.executable, "-I", "-S", str(Path(limited.__file__)), str(self._limit.limit_bytes), group, *self._worker)

    def _line(self, line: str) -> None:
        self._last_lines.append(line)
        if line.startswith("ACTIVE "):
            self._active_line = line
            self._line_came.set()

    def _activation(self) -> Activation:
        """From the line that the worker writes before it answers the load; it comes by another pipe, so it may come a moment later."""
        if not self._line_came.wait(_LINE_PATIENCE_S) or self._active_line is None:
            return Activation(state="not_active", reason="the worker wrote no ACTIVE line")
        if f"mode={self._mode}" not in self._active_line.split():
            return Activation(state="not_active", evidence=self._active_line, reason=f"the worker runs another mode than {self._mode}")
        return Activation(state="active", evidence=self._active_line)

    def _generate(self, case: Case, prompt: Prompt) -> Trial:
        client, file = self._tools()
        request = {"messages": prompt.chat(), "sampling": prompt.sampling(), "logits": str(file) if self._options.logits else None}
        result = client.ask("generate", requests=[request], clear=True)["results"][0]
        phases_s = {name: float(seconds) for name, seconds in result["phases_s"].items()}
        rest = result["wall_s"] - sum(phases_s.values())
        outputs: dict[str, Output] = {
            "text": result["text"],
            "finish_reason": result["finish_reason"],
            "token_ids": np.asarray(result["token_ids"], np.int64),
        }
        if self._options.logits:
            outputs["logits"] = self._logits(file)
        return Trial(
            case=case,
            status="ran",
            outputs=outputs,
            wall_s=result["wall_s"],
            phases_s={**phases_s, "other": max(0.0, rest)},
            peak_bytes=peak_rss_bytes(str(client.pid)),
            activation=self._proved(client),
        )

    def _score(self, case: Case, request: Score) -> Trial:
        client, file = self._tools()
        answer = client.ask("score", text=request.text, tokens=request.tokens, logits=str(file))
        outputs: dict[str, Output] = {"token_ids": np.asarray(answer["token_ids"], np.int64), "logits": self._logits(file)}
        return Trial(
            case=case,
            status="ran",
            outputs=outputs,
            peak_bytes=peak_rss_bytes(str(client.pid)),
            activation=self._proved(client),
        )

    def _tools(self) -> tuple[WorkerClient, Path]:
        assert self._client is not None
        assert self._folder is not None
        return self._client, self._folder / "trial.logits"

    def _logits(self, file: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
        """``(rows, vocab)``, mapped; the file's name goes at once, its bytes when nobody holds the array any more."""
        vocab_size = int(self._loaded["vocab_size"])
        rows = file.stat().st_size // (4 * vocab_size)
        logits = np.asarray(np.memmap(file, "<f4", "r", shape=(rows, vocab_size))) if rows else np.zeros((0, vocab_size), np.float32)
        file.unlink()
        return logits

    def _proved(self, client: WorkerClient) -> Activation:
        """The mode is on as long as no lever had occasions without leaving evidence."""
        unproved = client.ask("evidence")["unproved"]
        if unproved:
            return Activation(state="not_active", evidence=self._active_line, reason=unproved[0])
        return Activation(state="active", evidence=self._active_line)

    def _ended(self, case: Case, error: WorkerError) -> Trial:
        """What a refusal or a death means for the trial. A dead worker is replaced at the next one."""
        timed_out, self._timed_out = self._timed_out, False
        peak_bytes = peak_rss_bytes(str(self._client.pid)) if self._client is not None else None
        if error.kind == "WorkerDied" and self._client is not None:
            self._client.kill()
            self._client.close()
            self._client = None
        if timed_out:
            status: Status = "timed_out"
            reason = f"ended after {self._options.time_limit_s:g} s, the time limit"
        else:
            status, reason = self._status(error)
        return Trial(case=case, status=status, reason=reason, peak_bytes=peak_bytes)

    def _status(self, error: WorkerError) -> tuple[Status, str]:
        if error.kind in _REFUSALS:
            return "refused", str(error)
        within = f" under a limit of {self._limit.limit_bytes:,} bytes" if self._limit is not None else ""
        before, self._kills = self._kills, self._limit.kills() if self._limit is not None else 0
        said = memory_words("\n".join((error.kind, str(error), *self._last_lines)), self._limit)
        return "out_of_memory" if said or self._kills > before else "failed", f"{error}{within}"

    @contextlib.contextmanager
    def _timer(self, client: WorkerClient) -> Iterator[None]:
        """Ends the worker when a trial takes too long; the question that waits for it then fails."""

        def expire() -> None:
            self._timed_out = True
            client.kill()

        timer = threading.Timer(self._options.time_limit_s or threading.TIMEOUT_MAX, expire)
        timer.daemon = True
        if self._options.time_limit_s is not None:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _forget_peak(pid: int) -> None:
    """Starts the process's largest resident size anew (proc(5), clear_refs). Where that is not allowed the figure is since the start."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _by(limit: MemoryLimit) -> str:
    return BY_CGROUP if limit.group is not None else "RLIMIT_DATA"
