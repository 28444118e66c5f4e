"""The command line of the comparison."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from benchmarks.peers.adapters import adapters
from swiftsure.verify.proving.builtin import builtin_workload

PROMPTS = ("limiter-greedy", "chat-sky", "summary-short", "json-orders")
CONTEXTS = (128, 1024, 4096, 7900)
PREFILLS = (128, 512, 2048, 7900)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Adds what follows from the options: ``modules`` by adapter, ``pythons`` by adapter, ``workload``. Ends with status 2 on nonsense."""
    parser = _parser()
    options = parser.parse_args(argv)
    known = adapters()
    options.modules = _chosen(parser, known, options.peers)
    options.pythons = {}
    for given in options.python:
        name, separator, path = given.partition("=")
        if not separator or name not in known:
            parser.error(f"--python takes PEER=PATH with a peer of {', '.join(known)}, got {given}")
        options.pythons[name] = Path(path)
    workload = {prompt.name: prompt for prompt in builtin_workload() if prompt.greedy}
    for name in options.prompts:
        if name not in workload:
            parser.error(f"--prompts takes names of {', '.join(workload)}, got {name}")
    options.workload = [workload[name] for name in options.prompts]
    for name, value in (("--pause", options.pause), ("--wait", options.wait)):
        if not value >= 0:
            parser.error(f"{name} must be at least 0, got {value}")
    if options.max_tokens < 2:
        parser.error(f"--max-tokens must be at least 2 for a decode rate, got {options.max_tokens}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Swiftsure beside other engines, alternating in one run."
    )
    add = parser.add_argument
    add("--model", default="smollm2-135m-instruct", help="catalogue name or GGUF file (default: %(default)s)")
    add("--peers", type=_names, metavar="A,B", help="adapters to run beside Swiftsure (default: all)")
    add("--python", nargs="+", default=[], metavar="PEER=PATH", help="an environment or a Python that has the peer already")
    add("--prompts", type=_names, default=PROMPTS, metavar="A,B", help="greedy prompts of the built-in workload")
    add(
        "--contexts",
        type=_sizes,
        default=CONTEXTS,
        metavar="N,N",
        help="prompt tokens at which decoding is timed; 0: none",
    )
    add(
        "--prefill",
        type=_sizes,
        default=PREFILLS,
        metavar="N,N",
        help="prompt tokens at which reading is timed; 0: none",
    )
    add("--repeats", type=_positive, default=2, help="visits of each prompt and size (default: %(default)s)")
    add("--max-tokens", type=_positive, default=128, help="new tokens of a prompt (default: %(default)s)")
    add("--threads", type=_positive, default=2)
    add("--budget", type=_seconds, default=950.0, metavar="SECONDS", help="for all turns of the run (default: %(default)g)")
    add("--peer-budget", type=_seconds, default=200.0, metavar="SECONDS", help="for all turns of one contender (default: %(default)g)")
    add("--cell-budget", type=_seconds, default=75.0, metavar="SECONDS", help="for one turn at one size (default: %(default)g)")
    add("--pause", type=float, default=0.3, metavar="SECONDS", help="idle time before each turn (default: %(default)s)")
    add("--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine before a prompt's turns")
    add("--no-identity", action="store_true", help="leave out whether company changes an engine's logits and texts")
    add("--prepare", action="store_true", help="only build what is missing: environments, and the model in the peers' own formats")
    add("--json", type=Path, metavar="PATH", help="where the record goes, and beside it the page (default: benchmarks/results/)")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0 s, got {text}")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _sizes(text: str) -> tuple[int, ...]:
    if text == "0":
        return ()
    return tuple(sorted({_positive(part) for part in text.split(",")}))


def _chosen(parser: argparse.ArgumentParser, known: dict[str, ModuleType], peers: Sequence[str] | None) -> dict[str, ModuleType]:
    for name in peers or ():
        if name not in known:
            parser.error(f"--peers takes names of {', '.join(known)}, got {name}")
    others = peers if peers is not None else sorted(known)
    return {name: known[name] for name in ["swiftsure", *(name for name in others if name != "swiftsure")]}
