"""The grammar that makes an output what a request demands: a response format, or a call of its tools in the model's own format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from swiftsure.engine.constraints.grammar import JSON_STYLE, Grammar
from swiftsure.errors import UsageError
from swiftsure.serve.parsing.formats import CallFormat
from swiftsure.serve.parsing.parser import OutputParser, ReasoningFormat
from swiftsure.serve.parsing.tools import NamedTool, Tool

MAX_CALLS = 8  # of one output, where a call is forced: a small model would not end by itself
_ANY_TEXT = "/(.|\\n)*/"
_NO_TOOLS = OutputParser()


def grammar_for(parser: OutputParser | None = None, *, response_format: Any = None, parallel: bool = True) -> Grammar | None:
    """What the output must conform to; None: nothing.

    parser: as :func:`~.choose.parser_for` gives it for the request, with its tools and choice; the same parser reads what comes.
    ``required`` and a named tool force calls in its format, with arguments that their schemas admit; ``auto`` with tools that are
    ``strict`` leaves the choice and forces what follows once a call begins. parallel: more than one call may come, up to 8.

    response_format, in OpenAI's forms: ``{"type": "text"}``, ``json_object``, ``json_schema`` (``json_schema: {"schema": ...}``, or flat
    with ``schema``), and ``{"type": "regex", "regex": ...}``, ``{"type": "grammar", "grammar": ...}`` (llguidance's Lark notation).
    Forced calls and a response format exclude each other. A model that reasons does so first, freely.

    Raises UsageError.
    """
    parser = parser or _NO_TOOLS
    wanted = _response_grammar(response_format)
    forced = parser.tool_choice == "required" or isinstance(parser.tool_choice, NamedTool)
    strict = parser.tool_choice == "auto" and any(tool.strict for tool in parser.tools)
    if wanted is not None and forced:
        raise UsageError("response_format and a tool_choice that forces a call exclude each other")
    if wanted is not None:
        return _after_reasoning(parser, wanted)
    if parser.calls is None:
        if strict and parser.tools:
            raise UsageError("strict tools need the format in which this model calls them, which its chat template does not show")
        return None
    if forced:
        choice = parser.tool_choice
        tools = [tool for tool in parser.tools if not isinstance(choice, NamedTool) or tool.name == choice.name]
        body = _forced_calls(parser.calls, tools, parallel and not isinstance(choice, NamedTool))
        return Grammar(kind="lark", text=_reasoned(parser, "\n".join(body)))
    return Grammar(kind="lark", text=_chosen_calls(parser.calls, parser.tools)) if strict else None


def _response_grammar(response_format: Any) -> Grammar | None:
    if response_format is None:
        return None
    if not isinstance(response_format, Mapping):
        raise UsageError(f"response_format must be an object, got {type(response_format).__name__}")
    kind = response_format.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar(kind="json_object")
    if kind == "json_schema":
        inner = response_format.get("json_schema", response_format)
        schema = inner.get("schema") if isinstance(inner, Mapping) else None
        if schema is None:
            raise UsageError("response_format of type json_schema needs json_schema.schema")
        return Grammar.of_schema(schema)
    if kind in ("regex", "grammar"):
        text = response_format.get(kind)
        if not isinstance(text, str):
            raise UsageError(f"response_format of type {kind} needs the string {kind}, got {type(text).__name__}")
        return Grammar(kind="regex" if kind == "regex" else "lark", text=text)
    raise UsageError(f"response_format.type must be text, json_object, json_schema, regex or grammar, got {kind!r}")


# --- calls ----------------------------------------------------------------------------------------------------------------


def _forced_calls(calls: CallFormat, tools: list[Tool], parallel: bool) -> list[str]:
    again = f" ({_quoted(calls.between)} call){{0,{MAX_CALLS - 1}}}" if parallel else ""
    before, after = (f"{_quoted(text)} " if text else "" for text in (calls.before, calls.after))
    return [f"body: {before}call{again} {after}".rstrip(), *_call_rules(calls, tools)]


def _call_rules(calls: CallFormat, tools: list[Tool]) -> list[str]:
    """The rule ``call``, an object for each tool, and those of their arguments."""
    heads = [_quoted(f'{{"name": {json.dumps(tool.name)}, "{calls.key}": ') for tool in tools]
    one = " | ".join(f"{head} arguments_{i} {_quoted('}')}" for i, head in enumerate(heads))
    return [f"call: {one}", *(f"arguments_{i}: %json {_schema_text(_arguments(tool))}" for i, tool in enumerate(tools))]


def _chosen_calls(calls: CallFormat, tools: tuple[Tool, ...]) -> str:
    """Free text, in which the tag of a call must be followed by one."""
    if not calls.before or not calls.close:
        raise UsageError(f"strict tools with tool_choice auto are not supported in the format {calls.name}; say required")
    tag = next(tag for tag in calls.tags if calls.before.startswith(tag))
    inside = calls.before.removeprefix(tag)
    rules = [
        "start: (begun call_end)* TEXT",
        f"begun[lazy]: TEXT {_quoted(tag)}",
        f"call_end: {_quoted(inside) if inside else ''} call {_quoted(calls.after)}",
        f"TEXT: {_ANY_TEXT}",
        *_call_rules(calls, list(tools)),
    ]
    return "\n".join(rules)


def _arguments(tool: Tool) -> dict[str, Any]:
    schema = dict(tool.parameters)
    schema.setdefault("type", "object")
    if tool.strict or "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema


# --- reasoning ------------------------------------------------------------------------------------------------------------


def _after_reasoning(parser: OutputParser, wanted: Grammar) -> Grammar:
    if parser.reasoning is None:
        return wanted
    if wanted.kind in ("regex", "lark"):
        if parser.reasoning_open:
            raise UsageError("this model reasons before it answers; a regex or a grammar needs a prompt with reasoning switched off")
        return wanted
    schema = {"type": "object"} if wanted.kind == "json_object" else json.loads(wanted.text)
    return Grammar(kind="lark", text=_reasoned(parser, f"body: %json {_schema_text(schema)}"))


def _reasoned(parser: OutputParser, body: str) -> str:
    """The rule ``start``: ``body``, after reasoning where there is any."""
    if parser.reasoning is None:
        return f"start: body\n{body}"
    return "\n".join([_start(parser.reasoning, parser.reasoning_open), f"TEXT: {_ANY_TEXT}", body])


def _start(reasoning: ReasoningFormat, begins_inside: bool) -> str:
    close = f"thought[lazy]: TEXT {_quoted(reasoning.close)}"
    if begins_inside:
        return f'start: thought "\\n\\n" body\n{close}'
    return f'start: ({_quoted(reasoning.open)} thought "\\n\\n")? body\n{close}'


def _schema_text(schema: Any) -> str:
    if isinstance(schema, dict) and "x-guidance" not in schema:
        schema = {**schema, "x-guidance": JSON_STYLE}
    return json.dumps(schema, ensure_ascii=True, allow_nan=False)


def _quoted(text: str) -> str:
    """As a literal of the notation."""
    return json.dumps(text, ensure_ascii=True)
