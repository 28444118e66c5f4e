"""A body into what is asked of a model: sampling values, a tier, how many answers, and how they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.errors import UsageError, quotable
from swiftsure.serve.apis.openai.fields import Endpoint, checked
from swiftsure.serve.apis.streaming import ClientGoneError
from swiftsure.serve.problems import RefusedError

MAX_ANSWERS = 128
COMPLETION_TOKENS = 16  # OpenAI's, where a completion says nothing
TEMPERATURE = 1.0  # OpenAI's, where a request says nothing
_TIERS: Mapping[str, Tier] = {"auto": "standard", "default": "standard", "flex": "standard", "priority": "priority", "fast": "priority"}
_PLAIN = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a request asks for, whatever its prompt. ``values``: its honoured fields as they came."""

    sampling: SamplingParams
    tier: Tier
    n: int
    stream: bool
    include_usage: bool
    return_token_ids: bool
    deadline_s: float | None
    values: Mapping[str, Any]


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object of a body. Raises RefusedError for another type of content, for what is no JSON and for NaN and infinities."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a page in a browser can send any other type to a server on this machine without being asked
        raise RefusedError(quotable(f"the body must be sent as content-type: application/json, got {kind or 'none'!s:.80}"))
    try:
        body = json.loads(await request.body(), parse_constant=_no_json)
    except ClientDisconnect:
        raise ClientGoneError from None
    except (ValueError, RecursionError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RefusedError(quotable(f"the body must be JSON: {what}")) from None
    if not isinstance(body, dict):
        raise RefusedError(f"the body must be a JSON object, got {type(body).__name__}")
    return body


def _no_json(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def asked_of(body: Mapping[str, Any], endpoint: Endpoint, *, context: int) -> Asked:
    """Raises RefusedError with the field that breaks a rule."""
    values = checked(body, endpoint)
    n = values.get("n", 1)
    if not 1 <= n <= MAX_ANSWERS:
        raise RefusedError(f"n must be between 1 and {MAX_ANSWERS}, got {n}", param="n")
    stream = values.get("stream", False)
    options = values.get("stream_options")
    if options is not None:
        _check_stream_options(options, stream)
    deadline = values.get("deadline_s")
    if deadline is not None and not 0 < deadline < 1e9:
        raise RefusedError(f"deadline_s must be above 0, got {deadline}", param="deadline_s")
    return Asked(
        sampling=_sampling(values, endpoint, context),
        tier=_tier(values.get("service_tier", "auto")),
        n=n,
        stream=stream,
        include_usage=bool((options or {}).get("include_usage")),
        return_token_ids=values.get("return_token_ids", False),
        deadline_s=deadline,
        values=values,
    )


def _check_stream_options(options: Mapping[str, Any], stream: bool) -> None:
    if not stream:
        raise RefusedError("stream_options go with stream: true", param="stream_options")
    for name, value in options.items():
        if name not in ("include_usage", "include_obfuscation"):
            raise RefusedError(
                quotable(f"stream_options.{name:.80} is not known; known: include_usage, include_obfuscation"), param="stream_options"
            )
        if value is not None and not isinstance(value, bool):
            raise RefusedError(f"stream_options.{name} must be true or false, got {value!r:.80}", param="stream_options")


def _tier(name: str) -> Tier:
    if name not in _TIERS:
        raise RefusedError(quotable(f"service_tier must be one of {', '.join(_TIERS)}, got {name!r:.80}"), param="service_tier")
    return _TIERS[name]


def _sampling(values: Mapping[str, Any], endpoint: Endpoint, context: int) -> SamplingParams:
    if "max_tokens" in values and "max_completion_tokens" in values:
        raise RefusedError("give max_completion_tokens or max_tokens, not both", param="max_tokens")
    length = "max_completion_tokens" if "max_completion_tokens" in values else "max_tokens"
    given: dict[str, Any] = {"temperature": TEMPERATURE, **{name: values[name] for name in _PLAIN if name in values}}
    given["max_tokens"] = values.get(length, context if endpoint == "chat" else COMPLETION_TOKENS)
    given["stop"] = values.get("stop", ())
    given["logit_bias"] = _logit_bias(values.get("logit_bias", {}))
    logprobs = _chat_logprobs(values) if endpoint == "chat" else _completion_logprobs(values)
    try:
        return SamplingParams(**given, logprobs=logprobs[1])
    except UsageError as error:
        message = quotable(str(error))
        ours = message.partition(" ")[0].partition("[")[0]
        param = {"max_tokens": length, "logprobs": logprobs[0]}.get(ours, ours)
        raise RefusedError(param + message.removeprefix(ours), param=param) from None


def _logit_bias(given: Mapping[str, Any]) -> dict[int, Any]:
    out = {}
    for key, value in given.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 12):
            raise RefusedError(quotable(f"logit_bias must have token ids as keys, got {key!r:.80}"), param="logit_bias")
        out[int(key)] = value
    return out


def _chat_logprobs(values: Mapping[str, Any]) -> tuple[str, int | None]:
    """The field that says how many, and how many."""
    wanted, top = values.get("logprobs", False), values.get("top_logprobs")
    if not isinstance(wanted, bool):
        raise RefusedError(f"logprobs must be true or false, got {wanted}", param="logprobs")
    if top is not None and not wanted:
        raise RefusedError("top_logprobs goes with logprobs: true", param="top_logprobs")
    return "top_logprobs", (top or 0) if wanted else None


def _completion_logprobs(values: Mapping[str, Any]) -> tuple[str, int | None]:
    wanted = values.get("logprobs")
    if isinstance(wanted, bool):
        raise RefusedError(f"logprobs must be an integer, got {str(wanted).lower()}", param="logprobs")
    if wanted is not None and values.get("echo"):
        raise RefusedError("echo is not supported with logprobs: those of the prompt are not computed", param="echo")
    return "logprobs", wanted
