"""Every field of the Messages interface: honoured, refused by name with the reason, or listed here as harmless. None is swallowed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from swiftsure.errors import quotable
from swiftsure.serve.apis.fields import harmless_among
from swiftsure.serve.problems import RefusedError

FAST_BETA = "fast-mode-2026-02-01"

HONOURED = frozenset(
    (
        "model",
        "messages",
        "max_tokens",
        "system",
        "temperature",
        "top_p",
        "top_k",
        "stop_sequences",
        "stream",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "service_tier",
        "speed",
        "seed",  # ours: the same seed gives the same answer
    )
)

HARMLESS: Mapping[str, str] = {
    "metadata": "says who asks; nothing here depends on it, and it is not kept",
    "cache_control": "prefixes are cached for everyone without being marked",
    "user_profile_id": "sent as a header: says for whom is asked",
    "workspace_id": "sent as a header: there are no workspaces",
    "betas": f"sent as the header anthropic-beta: what {FAST_BETA} brings is there without it, others change nothing",
}

REFUSED: Mapping[str, str] = {
    "billing_policy": "there is no billing",
    "compaction": "conversations are not compacted; send the turns that count",
    "container": "there are no containers to run code in",
    "context_management": "conversations are not edited; send the turns that count",
    "diagnostics": "earlier messages are not kept to be compared with",
    "fallback_credit_token": "there are no fallback models",
    "fallbacks": "there are no fallback models; an answer comes from the model that was named",
    "inference_geo": "the server does not know where it stands",
    "mcp_servers": "the server calls no other servers",
    "output_format": "write it as output_config.format",
    "thread": "conversations are not kept; send the earlier turns",
}

TOOL_HONOURED = frozenset(("name", "description", "input_schema", "strict", "type"))
TOOL_HARMLESS: Mapping[str, str] = {
    "cache_control": HARMLESS["cache_control"],
    "eager_input_streaming": "arguments stream as soon as they are certain",
}
TOOL_REFUSED: Mapping[str, str] = {
    "allowed_callers": "tools are called by the model alone",
    "defer_loading": "there is no search for tools; all of them are in the prompt",
    "input_examples": "chat templates have no place for examples; put them into the description",
}


def check_fields(more: Mapping[str, Any], *, known: Collection[str] = HONOURED) -> tuple[str, ...]:
    """Of the fields beyond the ``known`` ones, the harmless ones that are set. Raises RefusedError."""
    return harmless_among(more, known=known, harmless=HARMLESS, refused=REFUSED)


def check_tool(tool: Any, where: str) -> None:
    """Raises RefusedError for a tool that only its maker's servers run, and for fields that cannot be kept to."""
    if not isinstance(tool, Mapping):
        raise RefusedError(f"{where} must be an object, got {type(tool).__name__}", param="tools")
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise RefusedError(f"{where}: tools of type {kind!r:.80} are not supported; describe it with name and input_schema", param="tools")
    for name, value in tool.items():
        if name in TOOL_HONOURED or name in TOOL_HARMLESS or value is None:
            continue
        reason = TOOL_REFUSED.get(name, "it is no field of a tool")
        if (name == "defer_loading" and value is False) or (name == "allowed_callers" and value == ["direct"]):
            continue
        raise RefusedError(quotable(f"{where}.{name!s:.80} is not supported: {reason}"), param="tools")
    if "input_schema" not in tool:
        raise RefusedError(f"{where} needs an input_schema", param="tools")
