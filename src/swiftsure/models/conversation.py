"""What a chat template is given: messages, tools, documents and variables, checked and rebuilt from JSON's types alone.

The forms are those of the transformers library's ``apply_chat_template``; what it would pass on unseen is refused here by name and place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swiftsure.errors import UsageError

Message = Mapping[str, Any]
MAX_DEPTH = 64  # of lists and objects within each other

MESSAGE_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "thinking")
# One thing under three names; the first is what templates read. transformers fills the same two from any of them.
_REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Checked inputs of one rendering, of dicts, lists, texts, numbers, booleans and None; made by :func:`conversation`."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    variables: dict[str, Any] = field(default_factory=dict)


def conversation(
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    template_variables: Mapping[str, Any] | None = None,
) -> Conversation:
    """Raises UsageError that says which part breaks which rule, with the value."""
    return Conversation(
        messages=_messages(messages),
        tools=None if tools is None else [_tool(f"tool {i}", tool) for i, tool in enumerate(_listed("tools", tools))],
        documents=None if documents is None else [_object(f"document {i}", one) for i, one in enumerate(_listed("documents", documents))],
        variables=_variables(template_variables),
    )


def _messages(messages: Any) -> list[dict[str, Any]]:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise UsageError(f"messages must be a list of at least one message, got {messages!r:.80}")
    return [_message(f"message {i}", message) for i, message in enumerate(messages)]


def _message(where: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise UsageError(f"{where} must be a dict with the keys role and content, got {type(message).__name__}")
    given = {key: value for key, value in message.items() if value is not None}  # as transformers: None is a key left out
    for key in given:
        if key not in MESSAGE_KEYS:
            raise UsageError(f"{where} has the unknown key {key!r:.80}; known: {', '.join(MESSAGE_KEYS)}")
    if "role" not in given:
        raise UsageError(f"{where} has no role")
    role = _text(f"{where}: role", given["role"])
    if not _ROLE.fullmatch(role):
        raise UsageError(f"{where}: role must be a word of letters, digits, '_' and '-', got {role!r:.80}")
    out: dict[str, Any] = {"role": role}
    reasoning = next((given[key] for key in _REASONING_KEYS if key in given), None)
    if "content" in given:
        out["content"] = _content(f"{where}: content", given["content"])
    elif role != "assistant" or ("tool_calls" not in given and reasoning is None):
        raise UsageError(f"{where} has no content; only an assistant's message with tool_calls or reasoning_content may have none")
    for key in ("name", "tool_call_id", *_REASONING_KEYS):
        if key in given:
            out[key] = _text(f"{where}: {key}", given[key])
    if reasoning is not None:
        out = {"thinking": reasoning, **out, "reasoning_content": reasoning}
    if "tool_calls" in given:
        if role != "assistant":
            raise UsageError(f"{where}: tool_calls belong to the role assistant, got {role!r}")
        calls = _listed(f"{where}: tool_calls", given["tool_calls"])
        out["tool_calls"] = [_tool_call(f"{where}: tool call {i}", call) for i, call in enumerate(calls)]
    return out


def _content(where: str, content: Any) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return _text(where, content)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise UsageError(f"{where} must be a text or a list of parts, got {type(content).__name__}")
    if not content:
        raise UsageError(f"{where} must have at least 1 part, got an empty list")
    parts = []
    for i, part in enumerate(content):
        place = f"{where} part {i}"
        if not isinstance(part, Mapping):
            raise UsageError(f'{place} must be an object like {{"type": "text", "text": ...}}, got {type(part).__name__}')
        if part.get("type") != "text":
            raise UsageError(f'{place} must have the type "text", the only one supported, got {part.get("type")!r:.80}')
        unknown = next((key for key in part if key not in ("type", "text")), None)
        if unknown is not None:
            raise UsageError(f"{place} has the unknown key {unknown!r:.80}; known: type, text")
        parts.append({"type": "text", "text": _text(f"{place}: text", part.get("text"))})
    return parts


def _tool(where: str, tool: Any) -> dict[str, Any]:
    out = _object(where, tool)
    described = out.get("function", out)  # some templates take the function's own object
    if not isinstance(described, dict):
        raise UsageError(f"{where}: function must be an object, got {described!r:.80}")
    if not isinstance(described.get("name"), str) or not described["name"]:
        raise UsageError(f"{where} must have a name of at least 1 character, got {described.get('name')!r:.80}")
    if not isinstance(described.get("parameters", {}), dict):
        raise UsageError(f"{where}: parameters must be a JSON schema (an object), got {described['parameters']!r:.80}")
    return out


def _tool_call(where: str, call: Any) -> dict[str, Any]:
    out = _object(where, call)
    function = out.get("function", out)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise UsageError(f"{where} must have a function with a name, got {function!r:.80}")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        # OpenAI's form. Templates write arguments as JSON themselves and would write a text as a quoted text: they need the object.
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            raise UsageError(f"{where}: arguments must be an object or its JSON, got {arguments!r:.80}") from None
        arguments = _plain(f"{where}: arguments", arguments)
        function["arguments"] = arguments
    if not isinstance(arguments, dict):
        raise UsageError(f"{where}: arguments must be an object or its JSON, got {arguments!r:.80}")
    return out


def _variables(variables: Mapping[str, Any] | None) -> dict[str, Any]:
    if variables is None:
        return {}
    out = _object("template_variables", variables)
    for name in out:
        if not _NAME.fullmatch(name):
            raise UsageError(f"a template variable's name must be an identifier, got {name!r:.80}")
        if name in _RESERVED:
            raise UsageError(f"a template variable must not be named {name}: it is set by the call itself")
    return out


def _listed(where: str, value: Any) -> Sequence[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise UsageError(f"{where} must be a list, got {type(value).__name__}")
    return value


def _object(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must be an object, got {type(value).__name__}")
    plain: dict[str, Any] = _plain(where, value)
    return plain


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where} must be a string, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} holds a lone surrogate at character {error.start}") from None
    return str(value)


def _plain(where: str, value: Any, depth: int = 0) -> Any:
    """The value rebuilt from JSON's types: a template gets no object with methods of its own."""
    if depth > MAX_DEPTH:
        raise UsageError(f"{where} must not be nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(where, value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{where} must be finite, got {value}")
        return float(value)
    if isinstance(value, Mapping):
        out = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise UsageError(f"{where} must have texts as keys, got {key!r:.80}")
            out[_text(where, key)] = _plain(f"{where}: {key:.40}", item, depth + 1)
        return out
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(f"{where}[{i}]", item, depth + 1) for i, item in enumerate(value)]
    raise UsageError(f"{where} must be of JSON's types (object, list, text, number, true, false, null), got {type(value).__name__}")
