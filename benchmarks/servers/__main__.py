"""``python -m benchmarks.servers --json FILE``: aggregate and per-user speed of servers at several numbers of users."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.folder import write_folder
from benchmarks.peers.process import PeerError
from benchmarks.servers.client import AnswerError, closed_loop, level
from benchmarks.servers.contenders import Contender, Server, llama_server, swiftsure, vllm_server
from swiftsure.engine.inputs import prompt_ids, prompt_of_messages
from swiftsure.models.cache import home
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import Model, open_model
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import write_json
from swiftsure.verify.proving.builtin import builtin_workload

SCHEMA = "swiftsure-servers-1"
ALL = {
    "swiftsure-exact": lambda: swiftsure("exact"),
    "swiftsure-default": lambda: swiftsure("default"),
    "llama.cpp": llama_server,
    "vllm": lambda: vllm_server(ngram=False),
    "vllm-ngram": lambda: vllm_server(ngram=True),
}


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    files = resolve(options.model)
    folder = home() / "peers" / "models" / "served" / files.sha256[:16]
    write_folder(files.path, folder)
    _write_tokenizer(files.path, folder)
    with open_model(files) as model:
        prompts = _prompts(model)
    machine = read_machine().to_dict()
    reasons: dict[str, str] = {}
    with ExitStack() as stack:
        servers = []
        for name in options.contenders:
            server = _start(name, files.path, folder, reasons)
            if server is not None:
                stack.callback(server.close)
                servers.append(server)
        measured = _measure(servers, prompts, options)
    record = {
        "schema": SCHEMA,
        "measured_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "model": {"name": files.name, "sha256": files.sha256},
        "settings": {"users": options.users, "rounds": options.rounds, "max_tokens": options.max_tokens, "requests": options.requests},
        "not_measured": reasons,
        "servers": measured,
    }
    _print(measured, options.users)
    if options.json:
        write_json(options.json, record)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.servers", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--contenders", type=lambda text: text.split(","), default=list(ALL), metavar="A,B", help=", ".join(ALL))
    parser.add_argument("--users", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 4, 8, 16], metavar="N,N")
    parser.add_argument("--requests", type=int, default=2, help="of each user at each level (default: 2)")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser


def _start(name: str, model: Path, folder: Path, reasons: dict[str, str]) -> Server | None:
    """Started, warmed up and stopped; None with the reason kept where that fails."""
    print(f"starting {name}", file=sys.stderr)
    try:
        contender: Contender = ALL[name]()
        server = Server(contender, model, folder, log=home() / "peers" / f"server-{name}.log")
    except PeerError as error:
        print(error, file=sys.stderr)
        reasons[name] = error.reason
        return None
    try:
        warm = _body(contender, list(range(100, 164)), 32)
        asyncio.run(closed_loop(server.port, [[warm], [warm]]))
    except (AnswerError, TimeoutError, ExceptionGroup) as error:
        print(f"{name}: {error}", file=sys.stderr)
        reasons[name] = str(error)
        server.close()
        return None
    server.turn(False)
    return server


def _measure(servers: Sequence[Server], prompts: list[list[int]], options: argparse.Namespace) -> list[dict[str, Any]]:
    turns: dict[str, list[dict[str, Any]]] = {server.contender.name: [] for server in servers}
    for index in range(options.rounds):
        for users in options.users:
            shift = (index + users) % len(servers)
            for server in [*servers[shift:], *servers[:shift]]:
                name = server.contender.name
                bodies = [
                    [
                        _body(server.contender, _own(prompts, users, index, user, turn), options.max_tokens)
                        for turn in range(options.requests)
                    ]
                    for user in range(users)
                ]
                server.turn(True)
                answers = asyncio.run(closed_loop(server.port, bodies))
                server.turn(False)
                found = level(users, answers)
                print(f"round {index + 1}, {users} users, {name}: {found.tokens_per_s:.0f} tokens/s in all", file=sys.stderr)
                turns[name].append({"round": index + 1, **asdict(found)})
    return [{"name": server.contender.name, "start_s": server.start_s, "turns": turns[server.contender.name]} for server in servers]


def _own(prompts: list[list[int]], users: int, index: int, user: int, turn: int) -> list[int]:
    """A prompt that no request before began with: what a server remembers of others must not help."""
    prompt = prompts[(user + turn * users) % len(prompts)]
    return [prompt[0], 300 + index, 400 + users, 500 + user, 600 + turn, *prompt[1:]]


def _body(contender: Contender, ids: list[int], max_tokens: int) -> dict[str, Any]:
    return {"model": "m", "prompt": ids, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **contender.extra}


def _prompts(model: Model) -> list[list[int]]:
    asked = [prompt for prompt in builtin_workload() if prompt.greedy]
    found = [prompt_ids(model, prompt_of_messages(model, prompt.chat()), context=model.config.context_length).tolist() for prompt in asked]
    return [ids for ids in found if len(ids) <= 1024]


def _write_tokenizer(model: Path, folder: Path) -> None:
    """vLLM's server reads text and writes it: the tokenizer as transformers reads it from the same file."""
    if (folder / "tokenizer.json").is_file():
        return
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(str(model.parent), gguf_file=model.name).save_pretrained(str(folder))


def _print(measured: list[dict[str, Any]], users: list[int]) -> None:
    for server in measured:
        cells = []
        for count in users:
            own = [turn for turn in server["turns"] if turn["users"] == count]
            speed, gap = (median(turn[key] for turn in own) for key in ("tokens_per_s", "itl_p99_s"))
            cells.append(f"{count}: {speed:.0f} (p99 gap {gap * 1e3:.0f} ms)")
        print(f"{server['name']}: {'  '.join(cells)}")


if __name__ == "__main__":
    sys.exit(main())
