"""Becomes another command under a memory limit: ``python -I -S limited.py BYTES GROUP COMMAND...``.

GROUP is the folder of a cgroup to join, or ``-`` for RLIMIT_DATA. A script of its own, because
limits that a process with threads sets between fork and exec may hang it.
"""

from __future__ import annotations

import os
import resource
import sys


def main(limit: str, group: str, *command: str) -> None:
    if group != "-":
        with open(os.path.join(group, "cgroup.procs"), "w") as file:
            file.write("0")
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit), int(limit)))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
