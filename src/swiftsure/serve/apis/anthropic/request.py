"""A body of the Messages interface, checked: a conversation, sampling values, tools and the tier to serve it in."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.errors import UsageError, quotable
from swiftsure.serve.apis.anthropic.blocks import chat_messages
from swiftsure.serve.apis.anthropic.fields import check_fields, check_tool
from swiftsure.serve.parsing import (
    OutputParser,
    Tool,
    grammar_for,
    parser_for,
    read_tool_choice,
    read_tools,
    with_calls_spelled,
    with_tools_described,
)
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import ServedModel

_PROMPT_TAIL = 16  # tokens of a prompt that say whether an answer begins inside of reasoning


class CountTokens(BaseModel):
    """``POST /v1/messages/count_tokens``"""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    speed: Literal["standard", "fast"] | None = None


class CreateMessage(CountTokens):
    """``POST /v1/messages``"""

    max_tokens: Annotated[int, Field(ge=1)]
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What count_tokens and create have in common.

    response_format: in OpenAI's form. parallel: whether one answer may hold several calls.
    thinks: whether the model should reason first, where its template can be told; None leaves it to the template. thinking_shown: whether
    the reasoning is sent, or only that there was some.
    """

    messages: list[dict[str, Any]]
    tools: tuple[Tool, ...]
    tool_choice: Any
    response_format: Mapping[str, Any] | None
    parallel: bool
    thinks: bool | None
    thinking_shown: bool
    ignored: tuple[str, ...]


def read_body(body: CountTokens) -> Asked:
    """Raises UsageError (RefusedError) that names the field and the rule."""
    ignored = check_fields(body.model_extra or {}, known=type(body).model_fields)
    for i, tool in enumerate(body.tools or []):
        check_tool(tool, f"tools[{i}]")
    tools = read_tools(body.tools)
    choice = body.tool_choice
    if choice is not None:
        _only(choice, ("type", "name", "disable_parallel_tool_use"), "tool_choice")
    read = read_tool_choice(choice, tools)
    thinks, shown = _thinking(body.thinking)
    return Asked(
        messages=chat_messages(body.system, body.messages),
        tools=tools if read != "none" else (),
        tool_choice=read,
        response_format=_response_format(body.output_config),
        parallel=not (choice or {}).get("disable_parallel_tool_use"),
        thinks=thinks,
        thinking_shown=shown,
        ignored=ignored,
    )


def tier_of(body: CreateMessage) -> Tier:
    """``speed: fast`` is the priority tier. ``service_tier: auto`` is the standard one: what costs more is never chosen for the client."""
    if body.speed != "fast":
        return "standard"
    if body.service_tier == "standard_only":
        raise RefusedError("speed fast is the priority tier, which service_tier standard_only rules out", param="service_tier")
    return "priority"


def sampling_of(body: CreateMessage) -> SamplingParams:
    """Raises UsageError. The temperature is 1 where none is given, as the interface says."""
    given = {"temperature": body.temperature, "top_p": body.top_p, "top_k": body.top_k, "seed": body.seed}
    values = {name: value for name, value in given.items() if value is not None}
    return SamplingParams.of({"temperature": 1.0, "max_tokens": body.max_tokens, "stop": tuple(body.stop_sequences or ()), **values})


async def encode(model: ServedModel, asked: Asked) -> tuple[tuple[int, ...], OutputParser, Grammar | None]:
    """Token ids of the prompt, what reads one answer to it, and what that answer must conform to.

    A template that reads no tools gets them described in the system message. Raises UsageError, TemplateError and ContextLengthError.
    """
    template, formats = model.model.chat_template, model.settings.formats
    calls = formats.calls
    if not asked.tools:
        ids = await _encode(model, asked.messages, None, asked.thinks)
    else:
        try:
            ids = await _encode(model, asked.messages, [tool.for_template() for tool in asked.tools], asked.thinks)
        except UsageError:  # any other fault is met again
            known, calls = formats.for_described_tools(template)
            spelled = [with_calls_spelled(message, known) for message in asked.messages]
            ids = await _encode(model, with_tools_described(spelled, asked.tools, known), None, asked.thinks)
    tail = b"".join(map(model.token_bytes, ids[-_PROMPT_TAIL:])).decode("utf-8", "replace")
    parser = parser_for(template, tools=asked.tools, tool_choice=asked.tool_choice, prompt=tail, calls=calls, reasoning=formats.reasoning)
    if parser.reasoning_open and asked.thinks is False:
        raise RefusedError("thinking cannot be disabled: this model's chat template always begins with it", param="thinking")
    return ids, parser, _grammar(asked, parser)


def _grammar(asked: Asked, parser: OutputParser) -> Grammar | None:
    """What only the engine can find wrong with it comes as the answer's error."""
    if not asked.parallel and asked.tool_choice == "auto" and asked.tools:
        raise RefusedError(
            "tool_choice.disable_parallel_tool_use is not supported with auto: nothing stops the model after one call", param="tool_choice"
        )
    return grammar_for(parser, response_format=asked.response_format, parallel=asked.parallel)


async def _encode(
    model: ServedModel, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, thinks: bool | None
) -> tuple[int, ...]:
    """With the switch that templates know reasoning by, or without it where this template has none."""
    if thinks is not None:
        with contextlib.suppress(UsageError):  # any other fault is met again
            return await model.encode(messages, tools=tools, template_variables={"enable_thinking": thinks})
    return await model.encode(messages, tools=tools)


def _thinking(config: Mapping[str, Any] | None) -> tuple[bool | None, bool]:
    """Whether to reason, and whether to show it. Absent: as the template does it by itself."""
    if config is None:
        return None, True
    kind = config.get("type")
    if kind == "disabled":
        _only(config, ("type",), "thinking")
        return False, True
    if kind == "adaptive":
        _only(config, ("type", "display"), "thinking")
        display = config.get("display")
        if display not in (None, "summarized", "omitted"):
            raise RefusedError(f"thinking.display must be summarized or omitted, got {display!r:.80}", param="thinking")
        return True, display != "omitted"
    if kind == "enabled":
        raise RefusedError(
            'thinking.budget_tokens is not supported: nothing ends thinking early; say {"type": "adaptive"}', param="thinking"
        )
    raise RefusedError(quotable(f"thinking.type must be adaptive or disabled, got {kind!r:.80}"), param="thinking")


def _response_format(config: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if config is None:
        return None
    _only(config, ("effort", "format"), "output_config")
    if config.get("effort") is not None:
        raise RefusedError("output_config.effort is not supported: these models have no levels of effort", param="output_config")
    wanted = config.get("format")
    if wanted is None:
        return None
    if not isinstance(wanted, Mapping) or wanted.get("type") != "json_schema" or set(wanted) != {"type", "schema"}:
        raise RefusedError('output_config.format must be {"type": "json_schema", "schema": ...}', param="output_config")
    return {"type": "json_schema", "json_schema": {"schema": wanted["schema"]}}


def _only(config: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in config:
        if name not in known:
            raise RefusedError(quotable(f"{where}.{name!s:.80} is not known; known: {', '.join(known)}"), param=where)
