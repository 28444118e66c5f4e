"""Opens inputs in child processes under limits of time and memory, and says how each ended.

The process that calls :func:`run` should have opened a sound file before: children are forked from it, so what is imported and cached is
not counted against an input. It must have no threads.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import re
import resource
import selectors
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from swiftsure.errors import CapacityError, ContractError, ModelError, SwiftsureError, TemplateError

CPU_LIMIT_S = 5
STALL_LIMIT_S = 45.0  # of waiting without using the processor; a machine may stop processes for a while
MEMORY_FREE_BYTES = 64 << 20
MEMORY_PER_FILE_BYTE = 2
MAX_SENTENCE = 2000
BATCH = 500

REFUSED, OPENED = "refused", "opened"
ACCEPTED = "pack"  # from this stage on a file is believed: memory for what it calls for is taken, and threads, which need address space
FAULTS = ("crash", "hang", "memory", "wrong error", "poor sentence")

# What a sentence says when nobody thought of the fault: the interpreter's own words.
_INTERPRETER_WORDS = re.compile(
    r"NoneType|object is not|not subscriptable|has no attribute|index out of range|invalid literal|unpack|buffer is smaller|codec can't"
    r"|division by zero|math domain|cannot be interpreted|Traceback|KeyError|positional argument|int too large|convert float|cannot reshape"
    r"|itemsize|sys\.|std::|bad_alloc|Errno"
)


class Input(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    def write(self, folder: Path) -> Path:
        """Puts the file or folder to open into an empty folder and returns its path."""


Subject = Callable[[Path, Callable[[str], None]], None]
"""Opens a path and announces the stages that it reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one input ended. ``growth_bytes``: how far the resident set grew at most while it was open; ``cpu_s``: of this process, until
    it was refused or done."""

    number: int
    name: str
    outcome: str  # REFUSED, OPENED or one of FAULTS
    stage: str
    error: str  # its type
    sentence: str
    growth_bytes: int = 0
    file_bytes: int = 0
    cpu_s: float = 0.0

    @property
    def excess_bytes(self) -> int:
        """Memory beyond twice the file; at most MEMORY_FREE_BYTES are allowed."""
        return self.growth_bytes - MEMORY_PER_FILE_BYTE * self.file_bytes

    @property
    def faulty(self) -> bool:
        return self.outcome in FAULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``memory``: bound the address space; not under a sanitizer, which reserves terabytes of it."""

    cpu_s: int = CPU_LIMIT_S
    memory: bool = True


def run(
    make: Callable[[int], Input], subject: Subject, numbers: Sequence[int], *, workers: int = 2, limits: Limits | None = None
) -> Iterator[Result]:
    """Results as they come, in no order. An input that ends its process is reported, and the rest go on in another."""
    waiting = [numbers[i : i + BATCH] for i in range(0, len(numbers), BATCH)][::-1]
    busy: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or busy:
                while waiting and len(busy) < workers:
                    child = _Child(make, subject, waiting.pop(), limits or Limits())
                    busy[child.pipe] = child
                    selector.register(child.pipe, selectors.EVENT_READ)
                ready = {key.fd for key, _ in selector.select(1.0)}
                for child in list(busy.values()):
                    if child.pipe in ready:
                        yield from child.read()
                    elif time.monotonic() - child.heard > STALL_LIMIT_S:
                        child.stalled()
                    if child.ended:
                        selector.unregister(child.pipe)
                        del busy[child.pipe]
                        lost, rest = child.finish()
                        yield from lost
                        if rest:
                            waiting.append(rest)
        finally:
            for child in busy.values():
                child.kill()


class _Child:
    """A forked process that works through some inputs and reports each."""

    def __init__(self, make: Callable[[int], Input], subject: Subject, numbers: Sequence[int], limits: Limits) -> None:
        self._make, self._numbers, self._limits = make, numbers, limits
        self._done = 0
        self._stage = "start"
        self._pending = b""
        self._stalled = False
        self.ended = False
        self.heard = time.monotonic()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self.pipe, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self.pipe)
                os.dup2(self._log.fileno(), 2)
                _work(make, subject, numbers, limits, write)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)

    def read(self) -> Iterator[Result]:
        piece = os.read(self.pipe, 1 << 16)
        self.ended = not piece
        self.heard = time.monotonic()
        *lines, self._pending = (self._pending + piece).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if isinstance(message, str):
                self._stage = message
            else:
                self._done += 1
                yield Result(**message)

    def stalled(self) -> None:
        self._stalled = True
        os.kill(self._pid, signal.SIGKILL)

    def finish(self) -> tuple[list[Result], Sequence[int]]:
        """What ended the process, if it did not get through, and the numbers that it did not come to."""
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        os.close(self.pipe)
        self._log.seek(0)
        said = self._log.read().decode(errors="replace")
        self._log.close()
        if status == 0 and self._done == len(self._numbers):
            return [], ()
        name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        hang = self._stalled or name in ("SIGPROF", "SIGXCPU")
        what = f"over {self._limits.cpu_s} s" if hang else f"{name}: {said[:6000]}"
        number = self._numbers[self._done]
        result = Result(
            number=number,
            name=self._make(number).name,
            outcome="hang" if hang else "crash",
            stage=self._stage,
            error=name,
            sentence=what,
        )
        return [result], self._numbers[self._done + 1 :]

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self.pipe)


def _work(make: Callable[[int], Input], subject: Subject, numbers: Iterable[int], limits: Limits, out: int) -> None:
    """In the child."""
    if limits.memory:
        faulthandler.enable()  # a sanitizer says more of a crash
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as parent:
        for number in numbers:
            folder = Path(parent) / str(number)
            folder.mkdir()
            made = make(number)
            path = made.write(folder)
            result = open_one(made, path, subject, limits, lambda stage: _send(out, stage))
            _send(out, asdict(result))
            _remove(folder)


def _send(out: int, message: Any) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def open_one(made: Input, path: Path, subject: Subject, limits: Limits, announce: Callable[[str], None]) -> Result:
    """Opens one input under the limits, in this process: one that takes too long ends it with SIGPROF."""
    size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file())
    stage = "start"

    def reach(name: str) -> None:
        nonlocal stage
        stage = name
        announce(name)
        if name == ACCEPTED:
            _lift()

    error: BaseException | None = None
    allowed = MEMORY_PER_FILE_BYTE * size + MEMORY_FREE_BYTES
    before, began = _begin(limits, allowed), time.process_time()
    try:
        subject(path, reach)
    except Exception as caught:
        error = caught
    finally:
        growth = _end(before)
    cpu_s = time.process_time() - began
    outcome, sentence = judge(error, stage, path)
    if outcome != "memory" and growth > allowed and limits.memory:
        outcome, sentence = "memory", f"grew by {growth} bytes where {allowed} are allowed; {sentence}"
    return Result(
        number=made.number,
        name=made.name,
        outcome=outcome,
        stage=stage,
        error=type(error).__name__ if error is not None else "",
        sentence=sentence,
        growth_bytes=growth,
        file_bytes=size,
        cpu_s=round(cpu_s, 4),
    )


def judge(error: BaseException | None, stage: str, path: Path) -> tuple[str, str]:
    """The outcome and the sentence. Only success and a sentence that names a fault of the file will do."""
    if error is None:
        return OPENED, ""
    if _has_memory_error(error):
        return "memory", "".join(traceback.format_exception(error))[-3000:]
    sentence = str(error).replace(str(path), "FILE").replace(str(path.parent), "FOLDER")
    allowed: tuple[type[SwiftsureError], ...] = (ModelError, TemplateError, CapacityError)
    if stage == "decode":
        allowed += (ContractError,)  # weights that are no numbers give logits that are none
    if not isinstance(error, allowed):
        return "wrong error", f"{sentence}\n" + "".join(traceback.format_exception(error))[-3000:]
    fault = sentence.removeprefix("FILE").strip(": ")
    if len(fault) < 15 or len(sentence) > MAX_SENTENCE or not fault.isprintable() or _INTERPRETER_WORDS.search(fault):
        return "poor sentence", sentence[:4000]
    return REFUSED, sentence


def _has_memory_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


_libc = ctypes.CDLL(None)


def _begin(limits: Limits, allowed_bytes: int) -> int:
    """Sets the limits; returns the resident set, whose peak counts from here."""
    if limits.memory:
        _libc.malloc_trim(0)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + allowed_bytes, resource.RLIM_INFINITY))
    Path("/proc/self/clear_refs").write_text("5")
    resident = _status_bytes("VmRSS")
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    return resident


def _end(before: int) -> int:
    """Lifts the limits; returns how far the resident set grew at most."""
    signal.setitimer(signal.ITIMER_PROF, 0)
    _lift()
    return max(0, _status_bytes("VmHWM") - before)


def _lift() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _status_bytes(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
