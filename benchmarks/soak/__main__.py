"""``python -m benchmarks.soak --json FILE``: a real server under thousands of mixed requests, and 200 connections at once.

One request in five is left in the middle, one in ten makes no sense; all interfaces, WebSockets included. Afterwards the server must hold
nothing: no request, no key-value block, no connection. Memory is compared with what it was once a fifth of the requests had been served.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.servers.contenders import Server, family, swiftsure
from benchmarks.soak.traffic import Traffic, crowd
from benchmarks.soak.watch import Process, rest
from swiftsure.models.cache import home
from swiftsure.models.catalogue import resolve
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import write_json

SCHEMA = "swiftsure-soak-1"
MOST_GROWTH_BYTES = 64 * 2**20
"""Of the server's and the engine's resident memory together, from a fifth of the requests on."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    files = resolve(options.model)
    began = time.perf_counter()
    with Server(swiftsure("exact", contexts=1), files.path, files.path.parent, log=home() / "peers" / "soak.log") as server:
        url = f"http://127.0.0.1:{server.port}"
        _serve(url, options.count // 5, options, seed=1, title="warming up")
        before = _processes(server.pid)
        tally = _serve(url, options.count, options, seed=2, title="soak")
        held, after = rest(url), _processes(server.pid)
        answers = asyncio.run(crowd(url, "m", options.connections, tokens=options.max_tokens))
        held_then, then = rest(url), _processes(server.pid)
    record = {
        "schema": SCHEMA,
        "measured_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": read_machine().to_dict(),
        "model": {"name": files.name, "sha256": files.sha256},
        "settings": {"requests": options.count, "at_once": options.at_once, "max_tokens": options.max_tokens},
        "wall_s": time.perf_counter() - began,
        "soak": {
            "outcomes": dict(sorted(tally.outcomes.items())),
            "unexpected": tally.unexpected,
            "unexpected_count": tally.unexpected_count,
        },
        "held_afterwards": _fields(held),
        "processes": {"before": before, "after": after, "after_connections": then},
        "most_growth_bytes": MOST_GROWTH_BYTES,
        "connections": {"at_once": options.connections, "answers": dict(answers), "held_afterwards": _fields(held_then)},
    }
    if options.json:
        write_json(options.json, record)
    failures = judge(record)
    growth = (_rss(after) - _rss(before)) / 1e6
    print(f"{options.count} requests: {tally.of('whole')} whole, {tally.of('left')} left, {tally.of('busy')} busy, memory {growth:+.1f} MB")
    print(f"{options.connections} connections at once: {dict(answers)}, memory {(_rss(then) - _rss(after)) / 1e6:+.1f} MB")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def judge(record: dict[str, Any]) -> list[str]:
    """What a soak must not have ended with."""
    failures = [f"unexpected answer: {text}" for text in record["soak"]["unexpected"]]
    connections, processes = record["connections"], record["processes"]
    for name, held in (("the soak", record["held_afterwards"]), ("the connections", connections["held_afterwards"])):
        failures += [f"after {name} the server still holds {held}"] if any(held.values()) else []
    failures += [f"a connection was answered {status}" for status in connections["answers"] if status not in ("200", "429", "503")]
    for earlier, later in (("before", "after"), ("after", "after_connections")):
        growth = _rss(processes[later]) - _rss(processes[earlier])
        failures += [f"memory grew by {growth / 1e6:.0f} MB from {earlier} to {later}"] if growth > record["most_growth_bytes"] else []
        for name, more in (("sockets", 0), ("threads", 2)):
            was, now = (sum(process[name] for process in processes[when]) for when in (earlier, later))
            failures += [f"{name} grew from {was} to {now}, {earlier} to {later}"] if now > was + more else []
    return failures


def _serve(url: str, count: int, options: argparse.Namespace, *, seed: int, title: str) -> Any:
    traffic = Traffic(url, "m", seed=seed, most_tokens=options.max_tokens)
    tally = asyncio.run(traffic.run(count, at_once=options.at_once, done=_progress(title, count)))
    rest(url)
    return tally


def _progress(title: str, count: int) -> Callable[[int], None]:
    def done(ended: int) -> None:
        if ended % 100 == 0 or ended == count:
            print(f"{title}: {ended} of {count}", file=sys.stderr, flush=True)

    return done


def _processes(pid: int) -> list[dict[str, int]]:
    """Of the server and its engine, once connections that were let go are closed."""
    time.sleep(2.0)
    return [Process.read(one).to_dict() for one in family(pid)]


def _rss(processes: list[dict[str, int]]) -> int:
    return sum(process["rss_bytes"] for process in processes)


def _fields(held: Any) -> dict[str, int]:
    return {name: getattr(held, name) for name in held.__slots__}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
