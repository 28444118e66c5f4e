"""One entry of a user's file, in any of its forms, as a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swiftsure.bench.exchange import Prompt
from swiftsure.errors import UsageError, quotable

MAX_NAME = 80
MAX_MESSAGES = 2000
MAX_TOKENS = 1_000_000

_SHAREGPT_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_LENGTHS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_OURS = frozenset(
    (
        "name",
        "custom_id",
        "kind",
        "sampling",
        "messages",
        "prompt",
        "text",
        "model",
        "stream",
        "stream_options",
        "n",
        "user",
        "metadata",
        "store",
    )
) | frozenset(_LENGTHS)
"""Fields that the bench reads or decides itself, or that name the user whose request it was."""
_REQUEST = frozenset(
    (
        "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "stop", "stop_sequences",
        "seed", "logit_bias", "tools", "tool_choice", "parallel_tool_calls", "response_format", "reasoning_effort", "reasoning", "thinking",
        "verbosity", "ignore_eos", "min_tokens", "system", "chat_template_kwargs", "service_tier",
    )
)  # fmt: skip
"""Fields of a request that are sent when they stand beside a prompt; others are left out, and said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """``most`` overrules what an entry says about its answer's length; ``default`` stands where it says nothing."""

    most: int | None
    default: int


def prompt_of_entry(entry: Any, *, name: str, lengths: Lengths) -> tuple[Prompt, frozenset[str]]:
    """The prompt, by ``name`` where the entry has none, and the names of fields that are not a request's and are not sent.

    Raises UsageError that states the rule; the caller adds the place.
    """
    if isinstance(entry, str):
        entry = {"text": entry}
    if not isinstance(entry, Mapping):
        raise UsageError(f"a prompt is an object or a text, got {type(entry).__name__}")
    if "conversations" in entry:
        prompt = Prompt(
            name=_word(str(entry.get("id") or name), name, "id"),
            kind="own",
            messages=_sharegpt(entry["conversations"]),
            max_tokens=_length({}, lengths),
        )
        return prompt, frozenset()
    body = next((entry[key] for key in ("body", "request") if isinstance(entry.get(key), Mapping)), None)
    named = entry.get("name") or entry.get("custom_id")
    fields = entry if body is None else body
    messages, text = _asked(fields)
    sampling, left_out = _sampling(fields, logged=body is not None)
    prompt = Prompt(
        name=_word(named, name, "name"),
        kind=_word(entry.get("kind"), "own", "kind"),
        messages=messages,
        text=text,
        max_tokens=_length(fields, lengths),
        sampling=sampling,
    )
    return prompt, left_out


def _asked(fields: Mapping[str, Any]) -> tuple[list[dict[str, Any]] | None, str | None]:
    messages, text = fields.get("messages"), fields.get("prompt", fields.get("text"))
    if (messages is None) == (text is None):
        have = quotable(", ".join(map(str, list(fields)[:8]))) or "nothing"
        raise UsageError(f"a prompt has either messages, or a text under prompt or text, got {have}")
    if messages is not None:
        return _messages(messages), None
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"the text of a prompt must be a string that is not blank, got {text!r:.60}")
    return None, text


def _sampling(fields: Mapping[str, Any], *, logged: bool) -> tuple[dict[str, Any], frozenset[str]]:
    """A logged body is sent as it was; beside a prompt of one's own may stand what is no request's field."""
    further = fields.get("sampling", {})
    if not isinstance(further, Mapping):
        raise UsageError(f"sampling must be an object of request fields, got {type(further).__name__}")
    ours = sorted(str(name) for name in further if name in _OURS)
    if ours:
        raise UsageError(f"sampling may not hold {', '.join(ours)}: the bench decides that itself, or it stands beside sampling")
    sent = {name: value for name, value in fields.items() if value is not None and name not in _OURS and (logged or name in _REQUEST)}
    left_out = frozenset(str(name) for name in fields if name not in _OURS and name not in sent)
    return sent | dict(further), left_out


def _length(fields: Mapping[str, Any], lengths: Lengths) -> int:
    if lengths.most is not None:
        return lengths.most
    for name in _LENGTHS:
        value = fields.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
            raise UsageError(f"{name} must be a whole number in 1..{MAX_TOKENS}, got {value!r:.100}")
        return value
    return lengths.default


def _word(value: Any, default: str, what: str) -> str:
    if value is None:
        return default
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME or not value.isprintable():
        raise UsageError(f"{what} must be a printable text of 1 to {MAX_NAME} characters, got {value!r:.120}")
    return value.strip()


def _messages(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        got = f"{len(messages)} of them" if isinstance(messages, list) else type(messages).__name__
        raise UsageError(f"messages must be a list of 1 to {MAX_MESSAGES} messages, got {got}")
    for number, message in enumerate(messages, 1):
        if not isinstance(message, Mapping):
            raise UsageError(f"message {number} must be an object with role and content, got {type(message).__name__}")
        if message.get("role") not in _ROLES:
            raise UsageError(f"the role of message {number} must be one of {', '.join(_ROLES)}, got {message.get('role')!r:.100}")
        content = message.get("content")
        if not isinstance(content, str | list) and not (content is None and message["role"] == "assistant"):
            raise UsageError(f"the content of message {number} must be a text or a list of parts, got {type(content).__name__}")
    return [dict(message) for message in messages]


def _sharegpt(turns: Any) -> list[dict[str, Any]]:
    """The conversation up to its last human turn: what the model is asked, without the recorded answer."""
    if not isinstance(turns, list) or len(turns) > MAX_MESSAGES:
        raise UsageError(f"conversations must be a list of at most {MAX_MESSAGES} turns, got {type(turns).__name__}")
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns, 1):
        if not isinstance(turn, Mapping) or not isinstance(turn.get("value"), str):
            raise UsageError(f"turn {number} must be an object with from and value")
        role = _SHAREGPT_ROLES.get(str(turn.get("from", "")).lower())
        if role is None:
            raise UsageError(f"turn {number} is from {turn.get('from')!r:.60}; known are {', '.join(sorted(_SHAREGPT_ROLES))}")
        messages.append({"role": role, "content": turn["value"]})
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    if not messages:
        raise UsageError("the conversation has no human turn")
    return messages
