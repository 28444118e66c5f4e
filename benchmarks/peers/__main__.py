"""Arguments, workers, and the order of things; see the package for what it measures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.peers import report
from benchmarks.peers.adapters import adapters
from benchmarks.peers.adapters.swiftsure import BASE
from benchmarks.peers.contract import Contender
from benchmarks.peers.environments import python_for
from benchmarks.peers.measure import Prompt, take_turns
from benchmarks.peers.neighbours import CpuClock, priority, read_clock, wait_until_quiet
from benchmarks.peers.process import ROOT, PeerError, Worker
from swiftsure.errors import SwiftsureError
from swiftsure.models.cache import home
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from swiftsure.records.machine import read_machine
from swiftsure.verify.builtin import builtin_workload

BUSY_FROM = 0.1  # of the machine's processor time
PROMPTS = ("limiter-greedy", "chat-sky", "summary-short", "json-orders")


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    try:
        result = compare(options)
    except (PeerError, SwiftsureError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    print(report.table(result))
    if (result["others_cpu_share"] or 0) > BUSY_FROM:
        print(f"\nBUSY: others used {result['others_cpu_share']:.0%} of the machine meanwhile; such a run proves little", file=sys.stderr)
    path = options.json or ROOT / "benchmarks" / "results" / f"peers-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    report.write(result, path)
    print(f"\n{path}")
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description="Swiftsure beside other engines, alternating in one run."
    )
    parser.add_argument("--model", default="smollm2-135m-instruct", help="catalogue name or GGUF file (default: %(default)s)")
    parser.add_argument("--peers", nargs="+", metavar="PEER", help="adapters to run beside Swiftsure (default: all)")
    parser.add_argument("--python", nargs="+", default=[], metavar="PEER=PATH", help="an environment or a Python that has the peer already")
    parser.add_argument("--prompts", nargs="+", default=PROMPTS, metavar="NAME", help="greedy prompts of the built-in workload")
    parser.add_argument("--repeats", type=_positive, default=5)
    parser.add_argument("--max-tokens", type=_positive, default=256)
    parser.add_argument("--threads", type=_positive, default=2)
    parser.add_argument("--pause", type=float, default=0.3, metavar="SECONDS", help="idle time before each turn (default: %(default)s)")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait so long for a quiet machine before a prompt's turns"
    )
    parser.add_argument("--no-rows", action="store_true", help="leave out the comparison of rows in a batch with rows one by one")
    parser.add_argument("--json", type=Path, metavar="PATH", help="where the record goes (default: benchmarks/results/)")
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


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _chosen(parser: argparse.ArgumentParser, known: dict[str, ModuleType], peers: list[str] | None) -> dict[str, ModuleType]:
    for name in peers or ():
        if name not in known:
            parser.error(f"--peers takes names of {', '.join(known)}, got {name}")
    others = peers if peers is not None else sorted(known)
    return {name: known[name] for name in ["swiftsure", *(name for name in others if name != "swiftsure")]}


def compare(options: argparse.Namespace) -> dict[str, Any]:
    files = resolve(options.model)
    with open_model(files) as model:
        prompts = [_prompt(model, prompt) for prompt in options.workload]
    context = max(len(prompt.ids) for prompt in prompts) + options.max_tokens + 64
    machine = read_machine().to_dict()
    with _workers(options) as (contenders, workers):
        facts = {}
        for contender, (adapter, worker) in zip(contenders, workers, strict=True):
            place = {"model_path": str(files.path), "threads": options.threads, "context": context}
            facts[contender.name] = worker.ask("load", adapter=options.modules[adapter].__name__, variant=contender.variant, **place)
        asked = {worker.name: worker for _, worker in workers}
        pids = [worker.pid for _, worker in workers]

        def clock() -> CpuClock:
            return read_clock(pids)

        def quiet() -> None:
            if options.wait and not wait_until_quiet(clock, share=BUSY_FROM, at_most_s=options.wait):
                print(f"still busy after {options.wait:g} s: measuring all the same", file=sys.stderr)

        turns = take_turns(
            asked,
            prompts,
            repeats=options.repeats,
            max_tokens=options.max_tokens,
            pause_s=options.pause,
            clock=clock,
            wait_for_quiet=quiet,
            progress=lambda line: print(line, file=sys.stderr),
        )
        peak = {name: worker.ask("peak_rss_bytes") for name, worker in asked.items()}
        rows = {}
        if not options.no_rows:
            # Speculating contenders share their plain sibling's passes; Swiftsure's modes each answer for themselves.
            for contender, (adapter, worker) in zip(contenders, workers, strict=True):
                if contender.plain is None or adapter == "swiftsure":
                    rows[contender.name] = [worker.ask("rows", ids=list(prompt.ids)) for prompt in prompts]
    return report.record(
        contenders,
        turns,
        prompts,
        base=BASE,
        facts=facts,
        rows=rows,
        peak_rss_bytes=peak,
        machine=machine,
        model={"name": files.name, "sha256": files.sha256},
        settings={
            "threads": options.threads,
            "repeats": options.repeats,
            "max_tokens": options.max_tokens,
            "pause_s": options.pause,
            "wait_s": options.wait,
            "priority": priority(),
            "environments_given": sorted(options.pythons),
            "environments": {name: asdict(m.ENVIRONMENT) if m.ENVIRONMENT else None for name, m in options.modules.items()},
        },
    )


def _prompt(model: Any, prompt: Any) -> Prompt:
    text = model.chat_template.render([dict(message) for message in prompt.chat()], add_generation_prompt=True)
    return Prompt(name=prompt.name, ids=tuple(model.tokenizer.encode(text, special=True)))


@contextmanager
def _workers(options: argparse.Namespace) -> Iterator[tuple[list[Contender], list[tuple[str, Worker]]]]:
    """One process a contender; all end with the block."""
    cache = home() / "peers"
    cache.mkdir(parents=True, exist_ok=True)
    contenders: list[Contender] = []
    workers: list[tuple[str, Worker]] = []
    with ExitStack() as stack:
        for adapter, module in options.modules.items():
            python = python_for(adapter, module.ENVIRONMENT, options.pythons, cache=cache)
            for contender in module.CONTENDERS:
                worker = Worker(contender.name, python, log=cache / f"{contender.name.replace(' ', '-')}.log")
                stack.callback(worker.close)
                contenders.append(contender)
                workers.append((adapter, worker))
        yield contenders, workers


if __name__ == "__main__":
    sys.exit(main())
