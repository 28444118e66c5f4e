"""A memory limit that holds: a cgroup of its own where this process may make one, else limits that the kernel keeps for each process.

Without a cgroup, two things act together. RLIMIT_DATA (and not RLIMIT_AS: address space that is reserved, or mapped from a file to be read,
is no memory, and threads' arenas and runtimes reserve many times what they use) makes an allocation beyond the limit fail in the process
that asks for it. And what the processes of a tree hold together, without pages of files, which the kernel may drop, is looked at every
20 ms; a tree above the limit is ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

_WORDS = re.compile(r"MemoryError|bad_alloc|(?:annot|an't) allocate memory|Unable to allocate|[Oo]ut of memory|OutOfMemory")
_WORDS_UNDER_A_LIMIT = re.compile(r"failed to map segment|can't start new thread|pthread_create failed|[Mm]emory allocation.* failed")

BY_CGROUP = "cgroup v2"
BY_RLIMIT = "RLIMIT_DATA for each process, sampled size for all together"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """``group``: the cgroup's folder, to be joined before exec and removed by ``close``; None: limits for each process."""

    limit_bytes: int
    group: Path | None = None

    @property
    def by(self) -> str:
        return BY_CGROUP if self.group is not None else BY_RLIMIT

    def kills(self) -> int:
        """Processes that the kernel ended in this cgroup because its memory ran out."""
        if self.group is None:
            return 0
        with contextlib.suppress(OSError, ValueError):
            for line in (self.group / "memory.events").read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def close(self) -> None:
        """Removes the cgroup; the kernel refuses while a process that was just ended is still in it."""
        if self.group is None:
            return
        for _ in range(50):
            try:
                self.group.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)


def memory_words(log: str, limit: MemoryLimit | None) -> str | None:
    """What a program said that means that its memory ran out; None when it said nothing of the kind."""
    found = _WORDS.search(log) or (_WORDS_UNDER_A_LIMIT.search(log) if limit is not None else None)
    return found[0] if found else None


def open_limit(limit_bytes: int, root: Path = Path("/")) -> MemoryLimit:
    """A cgroup with ``memory.max``, without swap, beside or below the one that this process is in; limits for each process otherwise.

    ``root`` is another folder only in tests.
    """
    for parent in _parents(root):
        group = parent / f"swiftsure-{uuid.uuid4().hex[:12]}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / "memory.max").write_text(str(limit_bytes))
            with contextlib.suppress(OSError):  # a kernel without swap accounting
                (group / "memory.swap.max").write_text("0")
            with contextlib.suppress(OSError):
                (group / "memory.oom.group").write_text("1")
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        return MemoryLimit(limit_bytes=limit_bytes, group=group)
    return MemoryLimit(limit_bytes=limit_bytes)


def _parents(root: Path) -> list[Path]:
    """Cgroups of version 2, from this process's own upward, that hand memory control down and that this process may write to."""
    mount = root / "sys/fs/cgroup"
    try:
        if not (mount / "cgroup.controllers").exists():
            return []
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        own = next(line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::"))
    except (OSError, StopIteration):
        return []
    folder = mount / own
    parents = []
    for group in (folder, *folder.parents):
        if group != mount and mount not in group.parents:
            break
        with contextlib.suppress(OSError):
            hands_down = "memory" in (group / "cgroup.subtree_control").read_text().split()
            # Moving a process needs the right to write where its old and its new group meet.
            if hands_down and os.access(group, os.W_OK) and os.access(group / "cgroup.procs", os.W_OK):
                parents.append(group)
    return parents
