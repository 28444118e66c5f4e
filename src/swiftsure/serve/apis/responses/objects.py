"""The response object, its usage, and log probabilities in the interface's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swiftsure.engine.request import TokenLogprob
from swiftsure.serve.jobs import Outcome
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices


def response_object(
    response_id: str, created_at: int, model: ServedModel, echo: Mapping[str, Any], *, tier: str, **fields: Any
) -> dict[str, Any]:
    """``fields``: what changes while it runs: status, output, usage, error, incomplete_details, completed_at. ``swiftsure`` stands beside
    the interface's own: what the answer is a function of, and once it has ended its digest."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "model": model.name,
        "service_tier": "priority" if tier == "priority" else "default",
        **echo,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        **fields,
    }


def proof(model: ServedModel, outcome: Outcome | None = None) -> dict[str, Any]:
    facts = model.facts
    out = {"fingerprint": facts.fingerprint, "mode": facts.mode}
    return out if outcome is None else {**out, "digest": outcome.digest}


def usage(outcome: Outcome, reasoning_tokens: int, prices: Prices) -> dict[str, Any]:
    """``cost`` is ours, where the server has prices."""
    counted: dict[str, Any] = {
        "input_tokens": outcome.prompt_tokens,
        "input_tokens_details": {"cached_tokens": outcome.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": outcome.output_tokens,
        "output_tokens_details": {"reasoning_tokens": min(reasoning_tokens, outcome.output_tokens)},
        "total_tokens": outcome.prompt_tokens + outcome.output_tokens,
    }
    if prices.input or prices.output:
        counted["cost"] = prices.cost(prompt_tokens=outcome.prompt_tokens, output_tokens=outcome.output_tokens, tier=outcome.tier)
    return counted


def logprob(model: ServedModel, entry: TokenLogprob) -> dict[str, Any]:
    top = [_token(model, token_id, value) for token_id, value in entry.top]
    return {**_token(model, entry.token_id, entry.logprob), "top_logprobs": top}


def _token(model: ServedModel, token_id: int, value: float) -> dict[str, Any]:
    data = model.token_bytes(token_id)
    return {"token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": value}
