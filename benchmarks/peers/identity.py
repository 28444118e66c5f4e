"""Does company change an engine's answer? Logits row by row where it hands them out, and its greedy text alone against in a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.peers.budget import Budget
from benchmarks.peers.contract import Contender
from benchmarks.peers.measure import Asked, Prompt, Turn, first_difference
from benchmarks.peers.process import PeerError

ROWS = 64
"""Positions of each prompt whose logits are compared: one pass each, and the slowest engines take 40 ms a pass."""
COPIES = 2
"""How often each prompt stands in the batch."""


def identity(
    contenders: Sequence[Contender],
    workers: Mapping[str, Asked],
    prompts: Sequence[Prompt],
    turns: Sequence[Turn],
    budget: Budget,
    *,
    max_tokens: int,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, dict[str, Any]]:
    """By contender: ``rows`` and ``batch``, each a result or ``{"reason"}``."""
    found: dict[str, dict[str, Any]] = {}
    for contender in contenders:
        name = contender.name
        reason = contender.shares_passes or budget.failed(name) or budget.why_not(name)
        if reason is not None:
            found[name] = {"rows": {"reason": reason}, "batch": {"reason": reason}}
            continue
        progress(f"identity: {name}")
        found[name] = {
            "rows": _or_reason(partial(compare_rows, workers[name], prompts)),
            "batch": _or_reason(partial(compare_batch, workers[name], prompts, _alone(turns, name), max_tokens)),
        }
    return found


def compare_rows(worker: Asked, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Over the first ROWS positions of all prompts."""
    compared = [worker.ask("rows", ids=list(prompt.ids[:ROWS])) for prompt in prompts]
    return {
        "rows": sum(one["rows"] for one in compared),
        "equal_rows": sum(one["equal_rows"] for one in compared),
        "largest_difference": max(one["largest_difference"] for one in compared),
        "different_best_tokens": sum(one["different_best_tokens"] for one in compared),
    }


def compare_batch(worker: Asked, prompts: Sequence[Prompt], alone: Mapping[str, Sequence[int]], max_tokens: int) -> dict[str, Any]:
    """All prompts in one batch, COPIES times each: which texts leave the text that the engine gave the prompt alone, and where first."""
    together = [prompt for _ in range(COPIES) for prompt in prompts if prompt.name in alone]
    texts = worker.ask("batch", prompts=[list(prompt.ids) for prompt in together], max_tokens=max_tokens)
    places = [first_difference(alone[prompt.name], text) for prompt, text in zip(together, texts, strict=True)]
    left = [place for place in places if place is not None]
    return {"texts": len(places), "leave": len(left), "first_at": min(left, default=None)}


def _alone(turns: Sequence[Turn], name: str) -> dict[str, tuple[int, ...]]:
    """Its own text of each prompt: that of the first turn."""
    return {turn.prompt: turn.token_ids for turn in reversed(turns) if turn.contender == name}


def _or_reason(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return measure()
    except PeerError as error:
        return {"reason": error.reason}
