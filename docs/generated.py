"""What the generators of this folder do with the page they made: write it, or say that the one that stands there is stale."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, arguments: Sequence[str], *, stale: str) -> int:
    """The exit code: with ``--check`` nothing is written, and 1 follows ``stale`` where the file holds anything else."""
    if "--check" not in arguments:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    print(stale, file=sys.stderr)
    return 1
