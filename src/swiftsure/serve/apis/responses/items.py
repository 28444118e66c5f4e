"""Input items: checked, given ids so that they can be listed, and turned into the messages that chat templates read.

What a template has no place for is refused by the item's type.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from swiftsure.errors import quotable
from swiftsure.serve.problems import RefusedError

Item: TypeAlias = dict[str, Any]
MAX_ITEMS = 100_000

_ROLES = ("user", "assistant", "system", "developer")
_KINDS = ("message", "function_call", "function_call_output", "reasoning")
_KEYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {  # of an item: what it must have, what it may have
    "message": (frozenset(("role", "content")), frozenset(("id", "status", "phase"))),
    "function_call": (frozenset(("call_id", "name", "arguments")), frozenset(("id", "status"))),
    "function_call_output": (frozenset(("call_id", "output")), frozenset(("id", "status", "name"))),  # the call says its name
    "reasoning": (frozenset(("summary",)), frozenset(("id", "status", "content"))),
}
_PREFIX = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def new_id(kind: str) -> str:
    return f"{_PREFIX[kind]}_{secrets.token_hex(24)}"


def read_input(given: Any, *, where: str = "input") -> list[Item]:
    """A string or a list of items, in the form in which they are kept. Raises RefusedError with the place of what is malformed."""
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise RefusedError(f"{where} must be a string or a list of items, got {type(given).__name__}", param=where)
    if len(given) > MAX_ITEMS:
        raise RefusedError(f"{where} must hold at most {MAX_ITEMS} items, got {len(given)}", param=where)
    return [_read_item(item, f"{where}[{i}]") for i, item in enumerate(given)]


def _read_item(item: Any, where: str) -> Item:
    if not isinstance(item, Mapping):
        raise RefusedError(f"{where} must be an object, got {type(item).__name__}", param="input")
    kind = item.get("type", "message" if "role" in item else None)
    if kind not in _KINDS:
        raise RefusedError(
            quotable(f"{where}: an item of type {kind!r:.80} is not supported here, only {', '.join(_KINDS)}"), param="input"
        )
    needed, more = _KEYS[kind]
    for key in needed:
        if key not in item:
            raise RefusedError(f"{where}: a {kind} item needs {key}", param="input")
    for key, value in item.items():
        if key != "type" and key not in needed and key not in more and value is not None:
            raise RefusedError(quotable(f"{where}.{key!s:.80} is not supported in a {kind} item"), param="input")
    given_id = item.get("id")
    read: Item = {"id": new_id(kind) if given_id is None else _text(item, "id", where), "type": kind}
    if kind == "reasoning":
        _list_of(item["summary"], ("summary_text",), f"{where}.summary")  # for people; the content is what the model wrote
        parts = _list_of(item.get("content") or [], ("reasoning_text",), f"{where}.content")
        return {**read, "summary": list(item["summary"]), "content": [{"type": "reasoning_text", "text": text} for text in parts]}
    read["status"] = "completed" if item.get("status") is None else _text(item, "status", where)
    if kind == "message":
        return {**read, **_read_message(item, where)}
    read["call_id"] = _text(item, "call_id", where)
    if kind == "function_call":
        return {**read, "name": _text(item, "name", where), "arguments": _text(item, "arguments", where)}
    output = item["output"]
    return {**read, "output": output if isinstance(output, str) else "\n".join(_list_of(output, ("input_text",), f"{where}.output"))}


def _read_message(item: Mapping[str, Any], where: str) -> Item:
    role, content = item["role"], item["content"]
    if role not in _ROLES:
        raise RefusedError(quotable(f"{where}.role must be {', '.join(_ROLES)}, got {role!r:.80}"), param="input")
    kind = "output_text" if role == "assistant" else "input_text"
    texts = [content] if isinstance(content, str) else _list_of(content, ("input_text", "output_text"), f"{where}.content")
    if not texts:
        raise RefusedError(f"{where}.content must have at least 1 part, got none", param="input")
    extra: dict[str, Any] = {"annotations": []} if kind == "output_text" else {}
    return {"role": role, "content": [{"type": kind, "text": text, **extra} for text in texts]}


def _list_of(parts: Any, allowed: tuple[str, ...], where: str) -> list[str]:
    """The texts of content parts. ``annotations`` and ``logprobs`` of texts that come back are let go: the model never saw them."""
    if not isinstance(parts, list):
        raise RefusedError(f"{where} must be a string or a list of parts, got {type(parts).__name__}", param="input")
    texts = []
    for i, part in enumerate(parts):
        if not isinstance(part, Mapping) or part.get("type") not in allowed:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise RefusedError(
                quotable(f"{where}[{i}]: a part of type {kind!r:.80} is not supported here, only {', '.join(allowed)}"), param="input"
            )
        for key, value in part.items():
            if key not in ("type", "text", "annotations", "logprobs") and value is not None:
                raise RefusedError(quotable(f"{where}[{i}].{key!s:.80} is not supported"), param="input")
        texts.append(_text(part, "text", f"{where}[{i}]"))
    return texts


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise RefusedError(f"{where}.{key} must be a string, got {type(value).__name__}", param="input")
    return value


# --- to messages ----------------------------------------------------------------------------------------------------------


def chat_messages(instructions: str | None, items: Sequence[Item]) -> list[dict[str, Any]]:
    """The conversation in the form of chat templates. Reasoning, text and calls of the assistant in a row are one turn.

    Raises RefusedError for a call without its output and an output without its call.
    """
    messages: list[dict[str, Any]] = [] if instructions is None else [{"role": "system", "content": instructions}]
    open_calls: dict[str, str] = {}
    for item in items:
        kind = item["type"]
        if kind == "message":
            if item["role"] != "assistant":
                role = "system" if item["role"] == "developer" else item["role"]  # one thing under two names; templates know the older
                messages.append({"role": role, "content": _content(item)})
                continue
            turn = _assistant(messages, fresh=("content", "tool_calls"))
            turn["content"] = _content(item)
        elif kind == "reasoning":
            if texts := [part["text"] for part in item["content"]]:
                turn = _assistant(messages, fresh=("content", "tool_calls", "reasoning_content"))
                turn["reasoning_content"] = "".join(texts)
        elif kind == "function_call":
            call = {"name": item["name"], "arguments": _arguments(item)}
            turn = _assistant(messages, fresh=())
            turn.setdefault("tool_calls", []).append({"id": item["call_id"], "type": "function", "function": call})
            open_calls[item["call_id"]] = item["name"]
        else:
            if open_calls.pop(item["call_id"], None) is None:
                raise RefusedError(
                    quotable(f"no function call {item['call_id']!r:.80} comes before its output, or it has one already"), param="input"
                )
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
    if open_calls:
        call_id, name = next(iter(open_calls.items()))
        raise RefusedError(quotable(f"no output is given for the function call {call_id!r:.80} of {name!r:.80}"), param="input")
    return messages


def outstanding_calls(items: Iterable[Item]) -> list[Item]:
    """The function calls that wait for their output."""
    calls = {item["call_id"]: item for item in items if item["type"] == "function_call"}
    for item in items:
        if item["type"] == "function_call_output":
            calls.pop(item["call_id"], None)
    return list(calls.values())


def _assistant(messages: list[dict[str, Any]], *, fresh: tuple[str, ...]) -> dict[str, Any]:
    """The assistant's turn under way; a new one if there is none, or if it has any of ``fresh`` already."""
    if not messages or messages[-1]["role"] != "assistant" or any(key in messages[-1] for key in fresh):
        messages.append({"role": "assistant"})
    return messages[-1]


def _content(item: Item) -> str | list[dict[str, Any]]:
    """One text as a string; several stay parts, which a template that only knows strings gets joined by line ends."""
    texts = [part["text"] for part in item["content"]]
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts]


def _arguments(item: Item) -> dict[str, Any]:
    try:
        arguments = json.loads(item["arguments"])
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise RefusedError(
            quotable(f"the arguments of the function call {item['call_id']!r:.80} are no JSON object: the call broke off"), param="input"
        )
    return arguments
