"""Content blocks into the messages that chat templates read. What a template has no place for is refused by the block's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from swiftsure.errors import quotable
from swiftsure.serve.problems import RefusedError

MAX_MESSAGES = 100_000

_KEYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {  # of a block: what it must have, what it may have
    "text": (frozenset(("text",)), frozenset(("cache_control",))),
    "tool_use": (frozenset(("id", "name", "input")), frozenset(("cache_control", "caller"))),
    "tool_result": (frozenset(("tool_use_id",)), frozenset(("content", "is_error", "cache_control"))),
    "thinking": (frozenset(("thinking",)), frozenset(("signature",))),
}
_ROLES = ("user", "assistant", "system")
_BLOCKS_OF = {"user": ("text", "tool_result"), "assistant": ("text", "tool_use", "thinking"), "system": ("text",)}


def chat_messages(system: Any, messages: Sequence[Any]) -> list[dict[str, Any]]:
    """The conversation in OpenAI's form. Turns of one role in a row become one turn, as the interface says.

    Raises RefusedError with the place of what is malformed or not supported.
    """
    if not messages:
        raise RefusedError("messages must have at least 1 message, got none", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise RefusedError(f"messages must be at most {MAX_MESSAGES}, got {len(messages)}", param="messages")
    out: list[dict[str, Any]] = []
    if system is not None and (texts := _texts(system, "system", "system")):
        out.append({"role": "system", "content": texts})
    for i, message in enumerate(messages):
        _add(out, message, f"messages[{i}]")
    if out[-1]["role"] == "assistant":
        raise RefusedError("the last message must not be the assistant's: continuing it (prefill) is not supported", param="messages")
    return [_plain(message) for message in out]


def _add(out: list[dict[str, Any]], message: Any, where: str) -> None:
    if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
        raise RefusedError(f"{where} must be an object with exactly role and content", param="messages")
    role = message["role"]
    if role not in _ROLES:
        raise RefusedError(quotable(f"{where}.role must be {', '.join(_ROLES)}, got {role!r:.80}"), param="messages")
    for i, block in enumerate(_blocks(message["content"], f"{where}.content")):
        _add_block(out, role, block, f"{where}.content[{i}]")


def _add_block(out: list[dict[str, Any]], role: str, block: Any, where: str) -> None:
    kind = _kind(block, where, _BLOCKS_OF[role])
    if kind == "tool_result":
        text = "\n".join(_texts(block.get("content") or "", f"{where}.content", "tool_result"))
        failed = block.get("is_error")
        if failed not in (None, True, False):
            raise RefusedError(f"{where}.is_error must be true or false", param="messages")
        result = {"role": "tool", "tool_call_id": _text(block, "tool_use_id", where), "content": [f"error: {text}" if failed else text]}
        out.append(result)
        return
    if not out or out[-1]["role"] != role:
        out.append({"role": role, "content": []})
    turn = out[-1]
    if kind == "text":
        turn["content"].append(_text(block, "text", where))
    elif kind == "thinking":
        turn["reasoning_content"] = turn.get("reasoning_content", "") + _text(block, "thinking", where)
    else:
        arguments = block["input"]
        if not isinstance(arguments, Mapping):
            raise RefusedError(f"{where}.input must be an object, got {type(arguments).__name__}", param="messages")
        call = {"name": _text(block, "name", where), "arguments": arguments}
        turn.setdefault("tool_calls", []).append({"id": _text(block, "id", where), "type": "function", "function": call})


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """One text as a string; several stay parts, which a template that only knows strings gets joined by line ends."""
    texts = message["content"]
    content = texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts] if texts else ""
    return {**message, "content": content}


def _blocks(content: Any, where: str) -> Sequence[Any]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list) or not content:
        raise RefusedError(f"{where} must be a string or a list of at least one block", param="messages")
    return content


def _texts(content: Any, where: str, owner: str) -> list[str]:
    """Of a string or of text blocks alone."""
    if isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list):
        raise RefusedError(f"{where} must be a string or a list of text blocks, got {type(content).__name__}", param=owner)
    out = []
    for i, block in enumerate(content):
        _kind(block, f"{where}[{i}]", ("text",))
        out.append(_text(block, "text", f"{where}[{i}]"))
    return out


def _kind(block: Any, where: str, allowed: tuple[str, ...]) -> str:
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        raise RefusedError(f"{where} must be a block, an object with a type", param="messages")
    kind = str(block["type"])
    if kind not in allowed:
        raise RefusedError(
            quotable(f"{where}: a block of type {kind!r:.80} is not supported here, only {', '.join(allowed)}"), param="messages"
        )
    needed, more = _KEYS[kind]
    for key in needed:
        if key not in block:
            raise RefusedError(f"{where}: a {kind} block needs {key}", param="messages")
    for key, value in block.items():
        if key != "type" and key not in needed and key not in more and value is not None:
            raise RefusedError(quotable(f"{where}.{key!s:.80} is not supported in a {kind} block"), param="messages")
    return kind


def _text(block: Mapping[str, Any], key: str, where: str) -> str:
    value = block[key]
    if not isinstance(value, str):
        raise RefusedError(f"{where}.{key} must be a string, got {type(value).__name__}", param="messages")
    return value
