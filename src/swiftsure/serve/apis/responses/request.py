"""A request's body, checked, in the server's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.errors import quotable
from swiftsure.serve.apis.responses.fields import INCLUDABLE, check_fields, check_tool, only
from swiftsure.serve.parsing import Tool, ToolChoice, read_tool_choice, read_tools
from swiftsure.serve.problems import RefusedError

_MOST_METADATA = 16


class CreateResponse(BaseModel):
    """``POST /v1/responses``, and ``response.create`` on a WebSocket."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str | None = None
    input: str | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: Literal["auto", "default", "flex", "priority", "fast"] | None = None
    truncation: str | None = None
    metadata: dict[str, str] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """thinks: whether the model should reason first, where its template can be told; None leaves it to the template. response_format: in
    the form of chat completions. echo: fields that the response object repeats. ignored: what was sent and changes nothing."""

    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    parallel: bool
    response_format: Mapping[str, Any] | None
    thinks: bool | None
    logprobs: int | None
    tier: Tier
    store: bool
    echo: Mapping[str, Any]
    ignored: tuple[str, ...]


def read_body(body: CreateResponse) -> Asked:
    """Raises UsageError (RefusedError) that names the field and the rule."""
    ignored = check_fields(body.model_extra or {}, known=type(body).model_fields)
    if body.background:
        raise RefusedError("background is not supported: an answer lives as long as its connection", param="background")
    if body.truncation not in (None, "disabled"):
        raise RefusedError("truncation must be disabled: a conversation is never cut in silence", param="truncation")
    if body.input is None and body.previous_response_id is None:
        raise RefusedError("input is missing", param="input")
    for i, tool in enumerate(body.tools or []):
        check_tool(tool, f"tools[{i}]")
    if isinstance(body.tool_choice, dict) and body.tool_choice.get("type") != "function":
        raise RefusedError(quotable(f"tool_choice of type {body.tool_choice.get('type')!r:.80} is not supported"), param="tool_choice")
    tools = read_tools(body.tools)
    _check_options(body)
    return Asked(
        tools=tools,
        tool_choice=read_tool_choice(body.tool_choice, tools),
        parallel=body.parallel_tool_calls is not False,
        response_format=_format(body.text),
        thinks=_thinking(body.reasoning),
        logprobs=_logprobs(body),
        tier="priority" if body.service_tier in ("priority", "fast") else "standard",
        store=body.store is not False,
        echo=_echo(body),
        ignored=ignored,
    )


def sampling_of(body: CreateResponse, asked: Asked, *, room: int) -> SamplingParams:
    """Raises UsageError. The temperature is 1 where none is given, as the interface says; ``room``: tokens up to the context's edge."""
    most = room if body.max_output_tokens is None else body.max_output_tokens
    given = {"temperature": body.temperature, "top_p": body.top_p, "seed": body.seed, "logprobs": asked.logprobs}
    values = {name: value for name, value in given.items() if value is not None}
    if most < 1:
        raise RefusedError(f"max_output_tokens must be at least 1, got {most}", param="max_output_tokens")
    return SamplingParams.of({"temperature": 1.0, "max_tokens": most, **values})


def _check_options(body: CreateResponse) -> None:
    if body.stream_options is not None:
        only(body.stream_options, ("include_obfuscation",), "stream_options")
        if body.stream_options.get("include_obfuscation"):
            raise RefusedError("stream_options.include_obfuscation is not supported: events are not padded", param="stream_options")
    for name in body.include or []:
        if name not in INCLUDABLE:
            raise RefusedError(quotable(f"include holds {name!r:.80}; supported: {', '.join(INCLUDABLE)}"), param="include")
    pairs = body.metadata or {}
    if len(pairs) > _MOST_METADATA:
        raise RefusedError(f"metadata must have at most {_MOST_METADATA} pairs, got {len(pairs)}", param="metadata")
    for key, value in pairs.items():
        if len(key) > 64 or len(value) > 512:
            raise RefusedError("metadata must have keys of at most 64 and values of at most 512 characters", param="metadata")


def _logprobs(body: CreateResponse) -> int | None:
    wanted = "message.output_text.logprobs" in (body.include or [])
    if body.top_logprobs is not None and not 0 <= body.top_logprobs <= 20:
        raise RefusedError(f"top_logprobs must be between 0 and 20, got {body.top_logprobs}", param="top_logprobs")
    return body.top_logprobs or 0 if wanted or body.top_logprobs else None


def _format(text: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    only(text, ("format", "verbosity"), "text")
    if text.get("verbosity") not in (None, "medium"):
        raise RefusedError("text.verbosity is not supported: these models have no levels of it", param="text.verbosity")
    wanted = text.get("format")
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping) or wanted.get("type") not in ("text", "json_object", "json_schema"):
        raise RefusedError("text.format must be an object of type text, json_object or json_schema", param="text.format")
    if wanted["type"] == "json_schema":
        only(wanted, ("type", "name", "schema", "strict", "description"), "text.format")
    else:
        only(wanted, ("type",), "text.format")
    return None if wanted["type"] == "text" else wanted


def _thinking(reasoning: Mapping[str, Any] | None) -> bool | None:
    if reasoning is None:
        return None
    only(reasoning, ("effort", "summary", "generate_summary"), "reasoning")
    for name in ("summary", "generate_summary"):
        if reasoning.get(name) is not None:
            raise RefusedError(f"reasoning.{name} is not supported: reasoning is sent whole, as content", param=f"reasoning.{name}")
    effort = reasoning.get("effort")
    if effort not in (None, "none"):
        raise RefusedError("reasoning.effort must be none: these models have no levels of effort", param="reasoning.effort")
    return None if effort is None else False


def _echo(body: CreateResponse) -> dict[str, Any]:
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": body.reasoning or {"effort": None, "summary": None},
        "store": body.store is not False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": (body.text or {}).get("format") or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": [{"strict": False, "parameters": None, **tool} for tool in body.tools or []],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
    }
