"""The order of things: load, choose draft lengths, prompts, identity, sizes."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from benchmarks.peers.adapters.swiftsure import BASE
from benchmarks.peers.budget import Budget
from benchmarks.peers.cast import Cast, Member
from benchmarks.peers.folder import write_folder
from benchmarks.peers.identity import identity
from benchmarks.peers.measure import Prompt, fastest_choice, take_turns
from benchmarks.peers.neighbours import CpuClock, priority, read_clock, wait_until_quiet
from benchmarks.peers.process import ROOT, PeerError, Worker
from benchmarks.peers.sizes import Plan, measure_sizes
from swiftsure.engine.inputs import prompt_ids, prompt_of_messages
from swiftsure.models.cache import home
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from swiftsure.records.machine import read_machine

BUSY_FROM = 0.1  # of the machine's processor time


def compare(options: argparse.Namespace) -> dict[str, Any] | None:
    """The record of a run; None after ``--prepare``. Raises PeerError when Swiftsure's own base cannot be measured."""
    files = resolve(options.model)
    cache = home() / "peers"
    folder = cache / "models" / "float32" / files.sha256[:16]
    write_folder(files.path, folder)
    with open_model(files) as model:
        prompts = [_prompt(model, prompt) for prompt in options.workload]
        limit = model.config.context_length
        plan = Plan(contexts=options.contexts, prefills=options.prefill, repeats=options.repeats)
        text_ids = long_text_ids(model, max(plan.sizes, default=0), room=plan.decode_room)
    machine = read_machine().to_dict()
    with Cast(options.modules, options.pythons, cache=cache, model_path=files.path, folder=folder) as cast:
        if options.prepare:
            return None
        _load(cast, prompts, plan, options, limit)
        measured = _measure(cast, prompts, text_ids, plan, options)
    return report.record(
        cast.members,
        prompts,
        base=BASE,
        machine=machine,
        model={"name": files.name, "sha256": files.sha256},
        settings=_settings(options, plan, text_ids),
        **measured,
    )


def _load(cast: Cast, prompts: Sequence[Prompt], plan: Plan, options: argparse.Namespace, limit: int) -> None:
    short = max(len(prompt.ids) for prompt in prompts) + options.max_tokens + 64
    full = min(limit, max(short, max(plan.sizes, default=0) + plan.decode_room))
    for member in cast.members:
        context = short if member.contender.shares_passes else full
        print(f"loading {member.contender.name}", file=sys.stderr)
        cast.load(member, prompts[0].ids, threads=options.threads, context=context)
        if member.contender.name == BASE and member.reason is not None:
            raise PeerError(f"{BASE} is what all others are compared with: {member.reason}")


def _measure(cast: Cast, prompts: list[Prompt], ids: Sequence[int], plan: Plan, options: argparse.Namespace) -> dict[str, Any]:
    budget = Budget(run_s=options.budget, peer_s=options.peer_budget, cell_s=options.cell_budget)
    for member in cast.members:
        if member.reason is not None:
            budget.fail(member.contender.name, member.reason)
    workers = {member.contender.name: member.worker for member in cast.members if member.worker is not None}
    pids = [worker.pid for worker in workers.values()]

    def clock() -> CpuClock:
        return read_clock(pids)

    def quiet() -> None:
        if options.wait and not wait_until_quiet(clock, share=BUSY_FROM, at_most_s=options.wait):
            print(f"still busy after {options.wait:g} s: measuring all the same", file=sys.stderr)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    choices = _choose(cast.members, workers, prompts, budget, options.max_tokens)
    spread = {"repeats": options.repeats, "max_tokens": options.max_tokens, "pause_s": options.pause}
    turns = take_turns(workers, prompts, budget, **spread, clock=clock, wait_for_quiet=quiet, progress=say)
    contenders = [member.contender for member in cast.members]
    found: dict[str, dict[str, Any]] = {}
    if not options.no_identity:
        found = identity(contenders, workers, prompts, turns, budget, max_tokens=options.max_tokens, progress=say)
    own = {name: worker for name, worker in workers.items() if not _shares(cast.members, name)}
    cells = measure_sizes(own, ids, plan, budget, progress=say)
    return {"turns": turns, "choices": choices, "identity": found, "cells": cells, "peak_rss_bytes": _peaks(workers), "budget": budget}


def _shares(members: Sequence[Member], name: str) -> bool:
    return any(member.contender.name == name and member.contender.shares_passes for member in members)


def _choose(
    members: Sequence[Member], workers: dict[str, Worker], prompts: Sequence[Prompt], budget: Budget, max_tokens: int
) -> dict[str, dict[str, Any]]:
    """Each choosing contender at its best draft length on two prompts; the rates that decided are recorded apart from the measured ones."""
    chosen: dict[str, dict[str, Any]] = {}
    for name, choices in [(member.contender.name, member.contender.choices) for member in members]:
        if not choices or name not in workers:
            continue
        print(f"{name}: trying draft lengths {', '.join(map(str, choices))}", file=sys.stderr)
        try:
            best, rates = fastest_choice(workers[name], choices, prompts[:2], max_tokens)
            chosen[name] = {"draft_tokens": best, "decode_tokens_per_s": {str(choice): rate for choice, rate in rates.items()}}
        except PeerError as error:
            print(error, file=sys.stderr)
            budget.fail(name, error.reason)
    return chosen


def _peaks(workers: dict[str, Worker]) -> dict[str, int | None]:
    peaks = {}
    for name, worker in workers.items():
        try:
            peaks[name] = worker.ask("peak_rss_bytes")
        except PeerError:
            peaks[name] = None  # it ended on the way, and its reason stands in its line
    return peaks


def _prompt(model: Any, prompt: Any) -> Prompt:
    ids = prompt_ids(model, prompt_of_messages(model, prompt.chat()), context=model.config.context_length)
    return Prompt(name=prompt.name, ids=tuple(map(int, ids)))


def long_text_ids(model: Any, count: int, *, room: int) -> list[int]:
    """The first ``count`` ids of one text: the workload's documents, the licence, and the pages on decisions, in the order of their names.

    Raises PeerError when the text is too short or the model's context too small for ``room`` tokens more.
    """
    if count + room > model.config.context_length:
        raise PeerError(f"{count} tokens and {room} more do not fit the model's context of {model.config.context_length}")
    data = ROOT / "src" / "swiftsure" / "verify" / "data"
    paths = [*sorted(data.glob("*.txt")), ROOT / "LICENSE", *sorted((ROOT / "docs" / "decisions").glob("0*.md"))]
    text = "\n\n".join(Path(path).read_text(encoding="utf-8") for path in paths)
    ids: list[int] = model.tokenizer.encode(text, special=False)[:count]
    if len(ids) < count:
        raise PeerError(f"sizes must be at most {len(ids)} tokens, as long as the text is, got {count}")
    return ids


def _settings(options: argparse.Namespace, plan: Plan, text_ids: Sequence[int]) -> dict[str, Any]:
    return {
        "threads": options.threads,
        "repeats": options.repeats,
        "max_tokens": options.max_tokens,
        "pause_s": options.pause,
        "wait_s": options.wait,
        "budget_s": {"run": options.budget, "peer": options.peer_budget, "cell": options.cell_budget},
        "sizes": asdict(plan),
        "text_ids_sha256": hashlib.sha256(" ".join(map(str, text_ids)).encode()).hexdigest(),
        "priority": priority(),
        "environments_given": sorted(options.pythons),
        "environments": {name: asdict(m.ENVIRONMENT) if m.ENVIRONMENT else None for name, m in options.modules.items()},
    }
