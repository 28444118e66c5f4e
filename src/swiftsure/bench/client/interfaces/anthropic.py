"""``/messages``: Anthropic's interface, whose events say themselves what they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from swiftsure.bench.client.transcript import Transcript, mapping, sequence, words_of
from swiftsure.bench.exchange import Prompt, Share
from swiftsure.bench.target import Target

VERSION = "2023-06-01"
_PIECES: dict[str, tuple[Share, str]] = {
    "text_delta": ("answer", "text"),
    "text": ("answer", "text"),
    "thinking_delta": ("reasoning", "thinking"),
    "thinking": ("reasoning", "thinking"),
    "input_json_delta": ("tool_call", "partial_json"),
    "tool_use": ("tool_call", "name"),
}


class AnthropicMessages:
    path = "/messages"
    optional: Collection[str] = ()

    def headers(self, target: Target) -> Mapping[str, str]:
        return {"anthropic-version": VERSION, **({"x-api-key": target.api_key} if target.api_key else {})}

    def body(self, prompt: Prompt, target: Target, without: Collection[str]) -> Mapping[str, Any]:
        """What a system message says goes into ``system``, since messages here have no such role."""
        messages = prompt.messages if prompt.messages is not None else [{"role": "user", "content": prompt.text}]
        system = [_text_of(message.get("content")) for message in messages if message.get("role") in ("system", "developer")]
        turns = [message for message in messages if message.get("role") not in ("system", "developer")]
        name = {"model": target.model} if target.model is not None else {}
        head = {"system": "\n\n".join(system)} if system else {}
        return {**name, **head, "messages": turns, "max_tokens": prompt.max_tokens, "stream": True, **prompt.sampling}

    def read_event(self, event: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        kind = event.get("type")
        if kind == "error":
            transcript.error_words = words_of(event.get("error"))
        elif kind == "message_start":
            _read_usage(mapping(event.get("message")).get("usage"), transcript, output=False)
        elif kind in ("content_block_start", "content_block_delta"):
            _read_piece(mapping(event.get("content_block" if kind == "content_block_start" else "delta")), at_s, transcript)
        elif kind == "message_delta":
            reason = mapping(event.get("delta")).get("stop_reason")
            transcript.finish_reason = _REASONS.get(reason, reason) if isinstance(reason, str) else transcript.finish_reason
            _read_usage(event.get("usage"), transcript, output=True)
        elif kind == "message_stop":
            transcript.closed = True

    def read_whole(self, answer: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        if answer.get("type") == "error":
            transcript.error_words = words_of(answer.get("error"))
            return
        for block in map(mapping, sequence(answer.get("content"))):
            _read_piece(block, at_s, transcript)
        reason = answer.get("stop_reason")
        transcript.finish_reason = _REASONS.get(reason, reason) if isinstance(reason, str) else None
        _read_usage(answer.get("usage"), transcript, output=True)


_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls"}  # as the other interfaces say it


def _read_piece(piece: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
    share, name = _PIECES.get(str(piece.get("type")), ("other", ""))
    transcript.add(at_s, share, piece.get(name))


def _read_usage(told: object, transcript: Transcript, *, output: bool) -> None:
    """Input tokens are told apart by where they came from; a stream's first output count is of nothing yet and is not taken."""
    usage = mapping(told)
    parts = [usage.get(name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
    transcript.count(
        prompt_tokens=sum(part for part in parts if isinstance(part, int)) if isinstance(parts[0], int) else None,
        output_tokens=usage.get("output_tokens") if output else None,
        reasoning_tokens=mapping(usage.get("output_tokens_details")).get("thinking_tokens"),
        cached_tokens=parts[2],
    )
    if isinstance(usage.get("service_tier"), str):
        transcript.tier = usage["service_tier"]


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(mapping(part).get("text", "")) for part in sequence(content))
