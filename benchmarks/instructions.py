"""Counts the instructions of the hot loops and compares them with the counts on record: a trend without noise.

    python -m benchmarks.instructions [--record] [--program FILE] [--isa NAME,NAME]

Builds ``bench_instructions`` (CMake, in build/bench) unless ``--program`` names it, and prints every kernel's count per instruction set
with its change since the last entry of ``results/instructions.json``; ``--record`` appends an entry. Counts depend on the compiler, which
an entry names. Fewer instructions are not less time where memory is the limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "instructions.json"
SCHEMA = "swiftsure.instructions/1"
NOT_MEASURED = "NOT MEASURED"

Counts = dict[str, dict[str, int]]  # instruction set -> kernel -> instructions


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help=f"append the counts to {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--program", type=Path, help="a bench_instructions that is built already")
    parser.add_argument("--isa", help="only these instruction sets, a,b; such a run is not recorded")
    options = parser.parse_args(arguments)
    if options.record and options.isa:
        parser.error("--record keeps whole runs: leave --isa out")
    program = options.program or build()
    command = [str(program), *(["--isa", options.isa] if options.isa else [])]
    counts, missing = parse(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())
    entries = load(RESULTS)
    for line in table(counts, missing, entries[-1] if entries else None):
        print(line)
    if options.record:
        write(RESULTS, [*entries, entry(counts, missing, compiler(program))])
    return 0


def build() -> Path:
    """Builds the counting program and returns its path."""
    folder = ROOT / "build" / "bench"
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DSWIFTSURE_BENCHMARKS=ON", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, ["cmake", "--build", str(folder), "--target", "bench_instructions", "--parallel"]):
        subprocess.run(command, check=True, stdout=sys.stderr)
    return folder / "bench_instructions"


def parse(lines: Iterable[str]) -> tuple[Counts, dict[str, str]]:
    """The program's lines as counts, and the reason for each instruction set that was not counted. Raises ValueError for other lines."""
    counts: Counts = {}
    missing: dict[str, str] = {}
    for line in lines:
        parts = line.split("\t")
        if len(parts) != 3:
            raise ValueError(f"a line has an instruction set, a kernel and a count with tabs between, got {line!r}")
        isa, kernel, value = parts
        if kernel == "NOT":
            missing[isa] = value
        else:
            counts.setdefault(isa, {})[kernel] = int(value)
    return counts, missing


def table(counts: Counts, missing: Mapping[str, str], before: Mapping[str, Any] | None) -> list[str]:
    """One line per instruction set and kernel, with the change since ``before``, an entry on record."""
    old: Counts = before["counts"] if before else {}
    lines = [f"{'isa':12}{'kernel':32}{'instructions':>14}{'change':>10}"]
    for isa, kernels in counts.items():
        lines += [f"{isa:12}{name:32}{count:>14,}{change(count, old.get(isa, {}).get(name)):>10}" for name, count in kernels.items()]
        gone = [name for name in old.get(isa, {}) if name not in kernels]
        lines += [f"{isa:12}{name:32}{'gone':>14}" for name in gone]
    lines += [f"{isa:12}{NOT_MEASURED}: {reason}" for isa, reason in missing.items()]
    if before:
        lines.append(f"change: since {before['created']}, csrc {before['csrc'][:12]}, {before['compiler']}")
    return lines


def change(count: int, before: int | None) -> str:
    if before is None:
        return "new"
    return "" if count == before else f"{count / before - 1:+.1%}"


def entry(counts: Counts, missing: Mapping[str, str], built_with: str) -> dict[str, Any]:
    """What ``--record`` keeps of a run."""
    from swiftsure.records.machine import read_machine
    from swiftsure.records.run_record import utc_now

    machine = read_machine()
    return {
        "created": utc_now(),
        "csrc": sources(),
        "compiler": built_with,
        "counter": "single steps (the processor's trap flag)",
        "machine": {"cpu_model": machine.cpu_model, "architecture": machine.architecture, "system": machine.system},
        "counts": counts,
        "not_measured": {isa: f"{NOT_MEASURED}: {reason}" for isa, reason in missing.items()},
    }


def load(path: Path) -> list[dict[str, Any]]:
    """The entries on record, oldest first. Raises ValueError for a file of another schema."""
    if not path.is_file():
        return []
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept.get("schema") != SCHEMA:
        raise ValueError(f"{path} must have the schema {SCHEMA}, got {kept.get('schema')!r}")
    return list(kept["entries"])


def write(path: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    from swiftsure.records.run_record import write_json

    write_json(path, {"schema": SCHEMA, "entries": list(entries)})


def sources() -> str:
    """The id of the tree of csrc, which names what was counted whatever commit brings it, with + for changes that are not in it."""
    tree = subprocess.run(["git", "rev-parse", "HEAD:csrc"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    changes = subprocess.run(["git", "status", "--porcelain", "csrc"], cwd=ROOT, check=True, capture_output=True, text=True)
    return tree + ("+" if changes.stdout.strip() else "")


def compiler(program: Path) -> str:
    """What the program says it was compiled by: the compilers' own mark in the file."""
    sections = subprocess.run(["readelf", "-p", ".comment", str(program)], check=True, capture_output=True, text=True).stdout
    marks = dict.fromkeys(line.split("]", 1)[1].strip() for line in sections.splitlines() if "]" in line)
    return ", ".join(marks)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
