"""Runs a program that a model wrote, and keeps it from doing harm.

The program runs in an interpreter of its own: isolated (``-I -S``), in an empty folder that is removed afterwards, with limits on processor
time, memory, file size, open files and processes (none may be started), in a network of its own that leads nowhere where the system allows
one, as nobody where this process is root, and under an audit hook that refuses sockets, processes, foreign code and writing anywhere else.
It is ended with everything it started when the time is up. This contains accidents and mischief of a small model, not an attacker with an
exploit of the interpreter or the kernel: for those, run the whole suite in a container.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TIMEOUT_S = 8.0
CPU_S = 4
MEMORY_BYTES = 512 * 1024 * 1024
FILE_BYTES = 1024 * 1024
_OUTPUT_BYTES = 4096

_LAUNCHER = """\
import os, resource, sys
cpu, memory, size, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), os.path.realpath(sys.argv[4])
with open(os.path.join(folder, "program.py"), encoding="utf-8") as file:
    program = compile(file.read(), "program.py", "exec")
for name in ("math json re string random itertools functools collections operator heapq bisect statistics decimal fractions datetime "
             "typing dataclasses copy textwrap").split():  # nobody may be unable to read this interpreter's library
    __import__(name)
if os.geteuid() == 0:
    os.chown(folder, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.chdir(folder)
limits = {"CPU": cpu, "AS": memory, "FSIZE": size, "NOFILE": 32, "NPROC": 0, "CORE": 0}
for name, limit in limits.items():
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (limit, limit))
refused = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.kill", "os.putenv", "ctypes.",
           "shutil.", "os.chmod", "os.chown", "os.link", "os.symlink", "signal.pthread_kill", "pty.", "resource.", "mmap.")
changing = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate")
real, sep = os.path.realpath, os.sep
def inside(path):
    return isinstance(path, (str, bytes, os.PathLike)) and (real(os.fsdecode(path)) + sep).startswith(folder + sep)
def guard(event, arguments):
    if event.startswith(refused):
        raise PermissionError(event + " is not allowed here")
    if event == "open":
        path, mode, flags = arguments
        writing = (isinstance(mode, str) and any(c in mode for c in "wax+")) or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writing and not inside(path):
            raise PermissionError("writing outside of the folder is not allowed here")
    elif event in changing and not all(inside(a) for a in arguments[: 2 if event == "os.rename" else 1]):
        raise PermissionError(event + " is not allowed here")
sys.addaudithook(guard)
sys.argv = ["program.py"]
exec(program, {"__name__": "__main__", "__builtins__": __builtins__})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``reason`` says why the program did not end well: a signal, the time limit, or the last line that it printed."""

    passed: bool
    reason: str | None


def run_program(source: str, *, timeout_s: float = TIMEOUT_S) -> Outcome:
    """Runs a Python program and tells whether it ended with exit code 0."""
    with tempfile.TemporaryDirectory(prefix="swiftsure-sandbox-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "program.py").write_text(source, encoding="utf-8", errors="replace")
        launcher = (sys.executable, "-I", "-S", "-B", "-c", _LAUNCHER, str(CPU_S), str(MEMORY_BYTES), str(FILE_BYTES), folder)
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0"}
        with tempfile.TemporaryFile() as printed:  # not a pipe: nothing that holds it open makes us wait
            process = subprocess.Popen(
                [*_no_network(), *launcher],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                cwd="/",
                env=environment,
                start_new_session=True,
            )
            late = False
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _end_session(process)
            return _outcome(process.returncode, late, timeout_s, _last_line(printed.fileno()))


def _outcome(code: int, late: bool, timeout_s: float, words: str) -> Outcome:
    if late:
        return Outcome(passed=False, reason=f"did not end within {timeout_s:g} s")
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        return Outcome(passed=False, reason=f"ended by {signal.Signals(number).name if number in set(signal.Signals) else number}")
    return Outcome(passed=code == 0, reason=None if code == 0 else words or f"ended with exit code {code}")


def _last_line(descriptor: int) -> str:
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, max(0, size - _OUTPUT_BYTES), os.SEEK_SET)
    lines = os.read(descriptor, _OUTPUT_BYTES).decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """The program and whatever shares its session's process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@lru_cache(maxsize=1)
def _no_network() -> tuple[str, ...]:
    """The prefix that gives a program an empty network of its own, where the system allows that."""
    tool = shutil.which("unshare")
    if tool is None:
        return ()
    options = ("--net",) if os.geteuid() == 0 else ("--user", "--net")
    works = subprocess.run([tool, *options, "true"], capture_output=True, check=False, timeout=10).returncode == 0
    return (tool, *options) if works else ()
