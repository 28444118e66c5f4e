"""Writes the tables of docs/paired-statistics.md from ``benchmarks/results/paired_statistics.json``; ``--check`` only says whether they are
up to date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from generated import write_or_check

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.paired_statistics import tables  # noqa: E402  (the repository's root is not on the path of a script)

PAGE = ROOT / "docs" / "paired-statistics.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->\n"


def page() -> str:
    record = json.loads((ROOT / "benchmarks" / "results" / "paired_statistics.json").read_text(encoding="utf-8"))
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return head + BEGIN + tables(record) + END + rest.partition(END)[2]


if __name__ == "__main__":
    stale = "the tables are not those of benchmarks/results: run python docs/generate_statistics.py"
    sys.exit(write_or_check(PAGE, page(), sys.argv[1:], stale=stale))
