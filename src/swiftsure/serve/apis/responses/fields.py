"""Every field of the Responses interface: honoured, refused by name with the reason, or listed here as harmless. None is swallowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from swiftsure.errors import quotable
from swiftsure.serve.apis.fields import harmless_among
from swiftsure.serve.problems import RefusedError

HONOURED = frozenset(
    (
        "model",
        "input",
        "instructions",
        "previous_response_id",
        "store",
        "stream",
        "stream_options",
        "background",  # false; true is refused
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "include",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "service_tier",
        "truncation",
        "metadata",
        "seed",  # ours: the same seed gives the same answer
    )
)

HARMLESS: Mapping[str, str] = {
    "user": "says who asks; nothing here depends on it, and it is not kept",
    "safety_identifier": "says who asks; nothing here depends on it, and it is not kept",
    "prompt_cache_key": "prefixes are cached for everyone, whatever the key",
    "prompt_cache_retention": "says how long a prefix may be kept at most; it is kept in memory, until room is needed",
    "max_tool_calls": "counts calls of built-in tools, and there are none",
}

REFUSED: Mapping[str, str] = {
    "access_programs": "there are no access programs",
    "background_options": "nothing runs in the background",
    "context_management": "conversations are not compacted; send the items that count",
    "conversation": "conversations are not kept as objects; continue with previous_response_id",
    "generate": "a response without output is not made; the first turn fills the prefix cache",
    "image": "the models read text",
    "moderation": "there is no moderation model",
    "prompt": "there are no prompt templates; send the text",
    "prompt_cache_options": "prefixes are cached by themselves; there is nothing to set",
}

TOOL_FIELDS = frozenset(("type", "name", "description", "parameters", "strict"))

INCLUDABLE: Mapping[str, str] = {
    "message.output_text.logprobs": "honoured",
    "reasoning.encrypted_content": "harmless: reasoning is sent in plain text, and read back so",
}


def check_fields(more: Mapping[str, Any], *, known: Collection[str] = HONOURED) -> tuple[str, ...]:
    """Of the fields beyond the ``known`` ones, the harmless ones that are set. Raises RefusedError."""
    asked = {name: value for name, value in more.items() if not (name == "generate" and value is True)}
    return harmless_among(asked, known=known, harmless=HARMLESS, refused=REFUSED)


def check_tool(tool: Any, where: str) -> None:
    """Raises RefusedError for a built-in tool, by its type, and for fields that cannot be kept to."""
    if not isinstance(tool, Mapping):
        raise RefusedError(f"{where} must be an object, got {type(tool).__name__}", param="tools")
    kind = tool.get("type")
    if kind != "function":
        raise RefusedError(quotable(f"{where}: tools of type {kind!r:.80} are not supported; functions are"), param="tools")
    for name, value in tool.items():
        if name not in TOOL_FIELDS and value is not None and not (name == "defer_loading" and value is False):
            raise RefusedError(quotable(f"{where}.{name!s:.80} is not supported"), param="tools")
    if "name" not in tool:
        raise RefusedError(f"{where} needs a name; its fields stand beside its type, not within function", param="tools")


def only(config: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raises RefusedError for a key of an object-valued field that is not ``known``; null is a key left out."""
    for name, value in config.items():
        if name not in known and value is not None:
            raise RefusedError(quotable(f"{where}.{name!s:.80} is not supported; supported: {', '.join(sorted(known))}"), param=where)
