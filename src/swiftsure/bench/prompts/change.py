"""Prompts made from prompts: cold by a nonce, long by a text pasted above, or as one text where an interface knows no messages."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from swiftsure.bench.exchange import Prompt


def nonce() -> str:
    """New in every call, so that no prefix cache can have seen it, whatever was sent and killed before."""
    return secrets.token_hex(8)


def cold(prompt: Prompt, mark: str) -> Prompt:
    """The prompt with ``mark`` at its very start: everything after it must be computed anew."""
    return _with_start(prompt, f"[{mark}] ")


def with_context(prompt: Prompt, context: str) -> Prompt:
    """The prompt with a long text pasted above the first message of a user. ``messages`` before it, as a system's, stay in front."""
    pasted = f"{context}\n\n---\n\n"
    if prompt.messages is None:
        return replace(prompt, text=pasted + (prompt.text or ""))
    messages = list(prompt.messages)
    first = next((i for i, message in enumerate(messages) if message.get("role") == "user"), 0)
    messages[first] = _message_with_start(messages[first], pasted)
    return replace(prompt, messages=messages)


def as_text(prompt: Prompt) -> Prompt:
    """For ``/completions``: the messages as paragraphs, the roles named where there are several."""
    if prompt.messages is None:
        return prompt
    parts = [(str(message.get("role", "user")), _content_text(message.get("content"))) for message in prompt.messages]
    text = parts[0][1] if len(parts) == 1 else "\n\n".join(f"{role}: {content}" for role, content in parts) + "\n\nassistant:"
    return replace(prompt, messages=None, text=text)


def as_messages(prompt: Prompt) -> Prompt:
    """For chat: a text as one message of a user."""
    if prompt.messages is not None:
        return prompt
    return replace(prompt, messages=[{"role": "user", "content": prompt.text or ""}], text=None)


def characters(prompt: Prompt) -> int:
    """The text's length; what is not text (images) does not count."""
    if prompt.messages is None:
        return len(prompt.text or "")
    return sum(len(_content_text(message.get("content"))) for message in prompt.messages)


def digest(prompts: Sequence[Prompt]) -> str:
    """SHA-256 over all prompts with everything that is sent of them."""
    text = json.dumps([asdict(prompt) for prompt in prompts], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _with_start(prompt: Prompt, start: str) -> Prompt:
    if prompt.messages is None:
        return replace(prompt, text=start + (prompt.text or ""))
    first, *others = prompt.messages
    return replace(prompt, messages=[_message_with_start(first, start), *others])


def _message_with_start(message: Mapping[str, Any], start: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": start}, *content]}
    return {**message, "content": start + (content or "")}


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""
