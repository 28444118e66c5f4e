"""``python -m benchmarks.websocket_turns --json FILE``: time to first token on the turns of a conversation, over a WebSocket and over HTTP.

All three transports speak the Responses interface and continue with ``previous_response_id``: a WebSocket that is kept open, HTTP on one
connection that is kept alive, HTTP with a new connection for each request. They take turns within each round, in changing order; each
conversation begins with words of its own, so that none reads another's prefix from the cache. TTFT: from the send to the
first delta of text.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import httpx
from websockets.sync.client import ClientConnection, connect

from benchmarks.servers.contenders import Server, swiftsure
from swiftsure.models.cache import home
from swiftsure.models.catalogue import resolve
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import write_json

SCHEMA = "swiftsure-websocket-turns-1"
_QUESTION = "Here is what I found out today, and I would like to know what to do about it. "
_TIMEOUT_S = 120.0

Ask: TypeAlias = Callable[[dict[str, Any]], tuple[float, dict[str, Any]]]
"""Sends one turn; returns the seconds to the first text and the response."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    files = resolve(options.model)
    with ExitStack() as stack:
        server = Server(swiftsure("exact"), files.path, files.path.parent, log=home() / "peers" / "websocket-turns.log")
        stack.callback(server.close)
        base = f"127.0.0.1:{server.port}"
        kept = stack.enter_context(httpx.Client(timeout=_TIMEOUT_S))
        rounds = [_round(number, base, kept, options) for number in range(options.rounds + 1)][1:]  # the first warms up
    record = {
        "schema": SCHEMA,
        "measured_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": read_machine().to_dict(),
        "model": {"name": files.name, "sha256": files.sha256},
        "settings": {
            "turns": options.turns,
            "rounds": options.rounds,
            "max_output_tokens": options.max_tokens,
            "sentences": options.sentences,
        },
        "rounds": rounds,
    }
    _print(rounds, options.turns)
    if options.json:
        write_json(options.json, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.websocket_turns", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--sentences", type=int, default=4, help="of each turn: what is new in it has to be read, whatever brings it")
    parser.add_argument("--json", type=Path)
    return parser


def _round(number: int, base: str, kept: httpx.Client, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """By transport, its turns: ``ttft_s``, ``input_tokens``, ``cached_tokens``."""
    url = f"http://{base}/v1/responses"
    with connect(f"ws://{base}/v1/responses", proxy=None) as socket:
        transports: list[tuple[str, Ask]] = [
            ("websocket", lambda body: _over_socket(socket, body)),
            ("http_kept", lambda body: _over_http(kept, url, body)),
            ("http_new", lambda body: _over_new_connection(url, body)),
        ]
        previous: dict[str, str] = {}
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in transports}
        for turn in range(options.turns):
            shift = (number + turn) % len(transports)
            for name, ask in [*transports[shift:], *transports[:shift]]:
                body = {
                    "instructions": f"{number} {name}: be brief.",
                    "input": f"Turn {turn + 1}. {_QUESTION * options.sentences}",
                    "max_output_tokens": options.max_tokens,
                    "temperature": 0,
                    **({"previous_response_id": previous[name]} if name in previous else {}),
                }
                ttft_s, response = ask(body)
                previous[name] = response["id"]
                used = response["usage"]
                cached = used["input_tokens_details"]["cached_tokens"]
                turns[name].append({"ttft_s": ttft_s, "input_tokens": used["input_tokens"], "cached_tokens": cached})
        print(f"round {number}: done", file=sys.stderr)
        return turns


def _over_socket(socket: ClientConnection, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    began = perf_counter()
    socket.send(json.dumps({"type": "response.create", "store": False, **body}))
    first: float | None = None
    while True:
        text = socket.recv(timeout=_TIMEOUT_S)
        at = perf_counter()
        event = json.loads(text)
        first, response = _seen(event, first, at - began)
        if response is not None:
            return _whole(first, response)


def _over_http(client: httpx.Client, url: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    began = perf_counter()
    first: float | None = None
    with client.stream("POST", url, json={"stream": True, **body}) as answer:
        for line in answer.iter_lines():
            at = perf_counter()
            if line.startswith("data: "):
                first, response = _seen(json.loads(line.removeprefix("data: ")), first, at - began)
                if response is not None:
                    return _whole(first, response)
    raise SystemExit(f"HTTP {answer.status_code}: the stream ended without a response")


def _over_new_connection(url: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    client = httpx.Client(timeout=_TIMEOUT_S)  # building it is no part of a turn; connecting is
    with client:
        return _over_http(client, url, body)


def _seen(event: dict[str, Any], first: float | None, now_s: float) -> tuple[float | None, dict[str, Any] | None]:
    kind = event["type"]
    if kind in ("error", "response.failed"):
        raise SystemExit(f"the server answered {json.dumps(event)}")
    if kind == "response.output_text.delta" and event["delta"] and first is None:
        first = now_s
    return first, event["response"] if kind in ("response.completed", "response.incomplete") else None


def _whole(first: float | None, response: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    if first is None:
        raise SystemExit("a response had no text: its time to first token was not reached")
    return first, response


def _print(rounds: list[dict[str, list[dict[str, Any]]]], turns: int) -> None:
    names = list(rounds[0])
    print("TTFT in ms, medians; tokens of the prompt, of them cached (WebSocket)")
    print(f"{'turn':>4} " + " ".join(f"{name:>10}" for name in names) + f" {'tokens':>7} {'cached':>7}")
    for turn in range(turns):
        times = [1e3 * median(one[name][turn]["ttft_s"] for one in rounds) for name in names]
        last = rounds[-1]["websocket"][turn]
        print(f"{turn + 1:>4} " + " ".join(f"{time:>10.2f}" for time in times) + f" {last['input_tokens']:>7} {last['cached_tokens']:>7}")
    for name in names[1:]:
        later = [1e3 * _longer(one, name, turn) for one in rounds for turn in range(1, turns)]
        last_turn = [1e3 * _longer(one, name, turns - 1) for one in rounds]
        print(
            f"{name} against the WebSocket, turn by turn: {median(later):+.2f} ms from turn 2 on, {median(last_turn):+.2f} ms on the last"
        )


def _longer(one: dict[str, list[dict[str, Any]]], name: str, turn: int) -> float:
    """Seconds that the first token took longer than over the WebSocket, on the same turn of the same round."""
    return float(one[name][turn]["ttft_s"] - one["websocket"][turn]["ttft_s"])


if __name__ == "__main__":
    sys.exit(main())
