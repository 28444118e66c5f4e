"""Runs one program under limits and tells what became of it. A script of its own, with the standard library alone.

``python -I -S launcher.py JOB`` reads a JSON file, runs the program and prints one JSON object on standard output::

    {"argv": [...], "cwd": path | null, "env": {...}, "stdout": path, "stderr": path, "log_bytes": n,
     "time_limit_s": s | null, "memory_limit_bytes": n | null, "cgroup": folder | null}
    {"exit_code": n | null, "signal": n | null, "wall_s": s, "user_s": s, "system_s": s, "largest_process_bytes": n,
     "largest_tree_bytes": n | null, "held_bytes": n, "ended": null | "time" | "memory" | "parent", "not_started": reason | null,
     "left_behind": n, "dropped_bytes": {"stdout": n, "stderr": n}}

Why a process between: ``ru_maxrss`` survives exec, so a child of a large process reports its parent's size; here the parent is this small
one. Limits are set between fork and exec, which is unsafe in a process with threads. And whatever the program leaves behind becomes this
process's child, so that all of it can be found and ended. The end of standard input means that the parent is gone: everything ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_PAGE = os.sysconf("SC_PAGE_SIZE")
_READ = 1 << 16


class BoundedLog:
    """The first and the last bytes of a stream, half of ``limit`` each; what lay between is counted."""

    def __init__(self, path: str, limit: int) -> None:
        self._file = open(path, "wb")  # noqa: SIM115  (closed in close)
        self._half = max(1, limit // 2)
        self._written = 0
        self._tail = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        head = data[: max(0, self._half - self._written)]
        self._file.write(head)
        self._written += len(head)
        self._tail += data[len(head) :]
        surplus = len(self._tail) - self._half
        if surplus > 0:
            del self._tail[:surplus]
            self.dropped += surplus

    def close(self) -> None:
        if self.dropped:
            self._file.write(f"\n[... {self.dropped} bytes left out ...]\n".encode())
        self._file.write(self._tail)
        self._file.close()


def descendants() -> list[int]:
    """Every living process below this one. Empty where there is no ``/proc``."""
    children_of = _stated_children if os.path.exists(f"/proc/self/task/{os.getpid()}/children") else _children_by_parent()
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children_of(queue.pop())
        found += below
        queue += below
    return [pid for pid in found if _stat(pid)[:1] != [b"Z"]]


def _stated_children(pid: int) -> list[int]:
    """Children as the kernel lists them by thread: as cheap as the tree is small."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _children_by_parent() -> Callable[[int], list[int]]:
    """Children by the parents that all processes of the machine state, for kernels without that list."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            for parent in _stat(pid)[1:2]:
                children.setdefault(int(parent), []).append(pid)
    return lambda pid: children.get(pid, [])


def _stat(pid: int) -> list[bytes]:
    """State and parent of a process, then more; empty when it is gone. The name before them may hold anything."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()
    return []


def resident_bytes(pids: list[int]) -> int:
    """Resident sizes added up; a page that two processes share counts twice."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            total += int(file.read().split()[1]) * _PAGE
    return total


def held_bytes(pids: list[int]) -> int:
    """What processes hold without pages of files, which the kernel may drop: RssAnon and RssShmem of proc(5), added up."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/status", "rb") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith((b"RssAnon:", b"RssShmem:")))
    return total


class Run:
    """One program from its start to the end of everything that it started."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.ended: str | None = None
        self.not_started: str | None = None
        self.left_behind = 0
        self.largest_tree: int | None = None
        self.largest_process = self.held = 0
        self.status: int | None = None
        self.user_s = self.system_s = 0.0
        self.logs = {name: BoundedLog(job[name], job["log_bytes"]) for name in ("stdout", "stderr")}

    def go(self) -> dict[str, Any]:
        self.began, self.wall_s = time.monotonic(), 0.0
        self._start()
        self._watch()
        self._end_all()
        for fd, log in self.pipes.items():  # what was written before the end and not yet read
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError):
                while data := os.read(fd, _READ):
                    log.add(data)
        for log in self.logs.values():
            log.close()
        return self._result()

    def _start(self) -> None:
        pairs = {name: os.pipe() for name in self.logs}
        failure_read, failure_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.job, pairs["stdout"][1], pairs["stderr"][1], failure_write)
        for _, write in pairs.values():
            os.close(write)
        os.close(failure_write)
        self.pipes = {pairs[name][0]: log for name, log in self.logs.items()}
        with os.fdopen(failure_read, "rb") as file:
            self.not_started = file.read().decode(errors="replace") or None  # ends at exec

    def _watch(self) -> None:
        """Until the program itself has ended, or something ended it."""
        limit_s, next_sample = self.job["time_limit_s"], 0.0
        pidfd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None  # readable at the program's end
        while self.status is None:
            elapsed_s = time.monotonic() - self.began
            if elapsed_s >= next_sample:
                self._sample()
                next_sample = elapsed_s + self._interval(elapsed_s)
            if limit_s is not None and elapsed_s > limit_s:
                self._end("time")
                break
            until = next_sample if limit_s is None else min(next_sample, limit_s)
            wait_s = max(0.001, until - (time.monotonic() - self.began))
            watched = [*self.pipes, 0, *([] if pidfd is None else [pidfd])]
            ready, _, _ = select.select(watched, [], [], wait_s)
            self._read([fd for fd in ready if fd != pidfd])
            self._reap(os.WNOHANG)
        if pidfd is not None:
            os.close(pidfd)

    def _interval(self, elapsed_s: float) -> float:
        """Seconds to the next sample: a short run is looked at often, a long one is not disturbed."""
        longest_s = 0.25 if self.job["memory_limit_bytes"] is None else 0.02
        return min(longest_s, max(0.005, 0.02 * elapsed_s))

    def _read(self, ready: list[int]) -> None:
        for fd in ready:
            if fd == 0:
                if not os.read(0, _READ):
                    self._end("parent")
            elif data := os.read(fd, _READ):
                self.pipes[fd].add(data)
            else:
                del self.pipes[fd]  # closed by the program; it may run on
                os.close(fd)

    def _sample(self) -> None:
        pids = descendants()
        self.largest_tree = max(self.largest_tree or 0, resident_bytes(pids))
        limit = self.job["memory_limit_bytes"]
        if limit is not None and self.job["cgroup"] is None:
            self.held = held_bytes(pids)
            if self.held > limit:
                self._end("memory")

    def _end(self, why: str) -> None:
        if self.ended is None:
            self.ended = why
            _kill([self.pid])
            self._reap(0)

    def _reap(self, flags: int) -> None:
        """Takes the ends of children; each is another's or the program's own."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, flags if self.status is None else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.largest_process = max(self.largest_process, usage.ru_maxrss * 1024)
            self.user_s, self.system_s = self.user_s + usage.ru_utime, self.system_s + usage.ru_stime
            if pid == self.pid:
                self.status, self.wall_s = status, time.monotonic() - self.began

    def _end_all(self) -> None:
        """Ends what is left, again and again: a process may start another before it is ended."""
        for attempt in range(200):
            left = descendants()
            if attempt == 0:
                self.left_behind = len(left)
            _kill(left)
            self._reap(os.WNOHANG)
            if not left:
                return
            time.sleep(0.005)

    def _result(self) -> dict[str, Any]:
        status = self.status if self.status is not None else 0
        by_signal = os.WIFSIGNALED(status)
        return {
            "exit_code": None if by_signal else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if by_signal else None,
            "wall_s": self.wall_s,
            "user_s": self.user_s,
            "system_s": self.system_s,
            "largest_process_bytes": self.largest_process,
            "largest_tree_bytes": self.largest_tree,
            "held_bytes": self.held,
            "ended": self.ended,
            "not_started": self.not_started,
            "left_behind": self.left_behind if self.ended is None else 0,
            "dropped_bytes": {name: log.dropped for name, log in self.logs.items()},
        }


def _become(job: dict[str, Any], stdout: int, stderr: int, failure: int) -> None:
    """In the child: limits, streams, exec. Never returns."""
    try:
        os.setsid()
        if job["cgroup"] is not None:
            with open(os.path.join(job["cgroup"], "cgroup.procs"), "w") as file:
                file.write("0")
        elif job["memory_limit_bytes"] is not None:
            limit = job["memory_limit_bytes"]
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.set_inheritable(failure, False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (stdout, 1), (stderr, 2)):
            os.dup2(source, target)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if job["cwd"] is not None:
            os.chdir(job["cwd"])
        os.execvpe(job["argv"][0], job["argv"], job["env"])
    except BaseException as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(failure, reason.encode())
    os._exit(127)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent's business; it closes our input
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    json.dump(Run(job).go(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
