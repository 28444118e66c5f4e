"""Opens hostile files from the command line, and opens one of them again."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hostile_files.workers import Result

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MALLOC_ARENA_MAX", "1")  # every other arena reserves 64 MB of address space

SAVED = Path(tempfile.gettempdir()) / "swiftsure-hostile-files"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hostile_files", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="inputs to open (default: 5000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one: the seed")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--sanitized", action="store_true", help="the core is built with a sanitizer: no limit of address space, 30 s each")
    parser.add_argument("--json", type=Path, help="where to write counts and faults")
    parser.add_argument("--save", type=Path, default=SAVED, help=f"where faulty inputs are kept (default: {SAVED})")
    parser.add_argument("--replay", help="open one input in this process: its number, or a saved file")
    arguments = parser.parse_args()
    # Processes that render templates bound their address space, which a sanitizer's runtime does not survive; they run none of the core.
    os.environ.pop("LD_PRELOAD", None)
    if arguments.replay is not None:
        return replay(arguments.replay)
    from swiftsure.records.run_record import write_json

    report = fuzz(arguments)
    if arguments.json is not None:
        write_json(arguments.json, report)
    print(json.dumps({name: report[name] for name in ("inputs", "outcomes", "stages", "seconds", "largest_excess_bytes")}))
    return 1 if report["faults"] else 0


def fuzz(arguments: argparse.Namespace) -> dict[str, Any]:
    from hostile_files.inputs import make_input
    from hostile_files.report import Report
    from hostile_files.workers import Limits, run

    subject = warm_subject()
    limits = Limits(cpu_s=30, memory=False) if arguments.sanitized else Limits()
    report = Report(limits)
    numbers = range(arguments.first, arguments.first + arguments.count)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a run in the background inherits as ignored
    try:
        for done, result in enumerate(run(make_input, subject, numbers, workers=arguments.workers, limits=limits), 1):
            report.add(result)
            if result.faulty:
                tell(result, arguments.save)
            if sys.stderr.isatty() or done % 10_000 == 0:
                print(f"\r{done}/{arguments.count}", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted; the report is of what was done", file=sys.stderr)
    return report.facts(first=arguments.first, command=f"python -m hostile_files {' '.join(sys.argv[1:])}")


def tell(result: Result, saved: Path) -> None:
    """Prints a fault, and keeps the input that showed it."""
    from hostile_files.inputs import make_input

    kept = make_input(result.number).write(_empty(saved / str(result.number)))
    print(f"{result.outcome}: input {result.number} ({result.name}) at stage {result.stage}: {result.error}: {result.sentence[:600]}")
    print(f"  replay with: python -m hostile_files --replay {result.number}    (saved: {kept})", flush=True)


def warm_subject() -> Any:
    """Imports what opening needs and opens every sound file once, so that children start warm."""
    from hostile_files.inputs import sound_inputs
    from hostile_files.opening import end_renderer, open_wholly

    for made in sound_inputs():
        with tempfile.TemporaryDirectory() as folder:
            open_wholly(made.write(Path(folder)), lambda stage: None)
    end_renderer()
    return open_wholly


def replay(what: str) -> int:
    """Opens one input without limits; its error comes with the whole trace."""
    from hostile_files.inputs import make_input
    from hostile_files.opening import open_wholly
    from swiftsure.errors import SwiftsureError

    with tempfile.TemporaryDirectory() as folder:
        if what.isdigit():
            made = make_input(int(what))
            print(made.name)
        path = made.write(Path(folder)) if what.isdigit() else Path(what)
        try:
            open_wholly(path, lambda stage: print(f"stage: {stage}"))
        except SwiftsureError as error:
            print(f"{type(error).__name__}: {error!s:.4000}")
    return 0


def _empty(folder: Path) -> Path:
    """A folder of an input, without what an earlier run left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    sys.exit(main())
