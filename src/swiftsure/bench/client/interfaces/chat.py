"""``/chat/completions``, with what endpoints add to it: thinking under several names, content in parts, usage in every chunk."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from swiftsure.bench.client.interfaces.base import bearer
from swiftsure.bench.client.interfaces.openai_usage import read_usage
from swiftsure.bench.client.transcript import Transcript, mapping, sequence, words_of
from swiftsure.bench.exchange import Prompt
from swiftsure.bench.target import Target

_REASONING = ("reasoning_content", "reasoning", "thinking")  # the first that is there; some endpoints send the same text under two names


class ChatCompletions:
    path = "/chat/completions"
    optional = ("stream_options", "max_tokens")

    def headers(self, target: Target) -> Mapping[str, str]:
        return bearer(target)

    def body(self, prompt: Prompt, target: Target, without: Collection[str]) -> Mapping[str, Any]:
        """``max_tokens`` goes as ``max_completion_tokens`` to endpoints that refuse the former."""
        messages = prompt.messages if prompt.messages is not None else [{"role": "user", "content": prompt.text}]
        limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
        options = {} if "stream_options" in without else {"stream_options": {"include_usage": True}}
        name = {"model": target.model} if target.model is not None else {}
        return {**name, "messages": list(messages), limit: prompt.max_tokens, "stream": True, **options, **prompt.sampling}

    def read_event(self, event: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        self._read(event, at_s, transcript, "delta")

    def read_whole(self, answer: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        self._read(answer, at_s, transcript, "message")

    def _read(self, event: Mapping[str, Any], at_s: float, transcript: Transcript, content: str) -> None:
        if event.get("error"):
            transcript.error_words = words_of(event["error"])
            return
        first = not transcript.arrivals
        for choice in sequence(event.get("choices")):
            choice = mapping(choice)
            _read_delta(mapping(choice.get(content)), at_s, transcript)
            if choice.get("finish_reason"):
                transcript.finish_reason = str(choice["finish_reason"])
        read_usage(event.get("usage"), transcript)
        if isinstance(event.get("service_tier"), str):
            transcript.tier = event["service_tier"]
        if first and transcript.arrivals:
            transcript.first_tokens = _tokens_of(event)


def _read_delta(delta: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
    thinking = next((delta[name] for name in _REASONING if delta.get(name)), None)
    transcript.add(at_s, "reasoning", thinking)
    content = delta.get("content")
    if isinstance(content, list):  # parts, each of a type
        for part in map(mapping, content):
            _read_part(part, at_s, transcript)
    else:
        transcript.add(at_s, "answer", content)
    transcript.add(at_s, "other", delta.get("refusal"))
    calls = [mapping(mapping(call).get("function")) for call in sequence(delta.get("tool_calls"))]
    for call in (*calls, mapping(delta.get("function_call"))):
        transcript.add(at_s, "tool_call", f"{call.get('name') or ''}{call.get('arguments') or ''}")


def _read_part(part: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
    if part.get("type") == "thinking":
        thinking = part.get("thinking")
        whole = "".join(str(mapping(piece).get("text", "")) for piece in sequence(thinking)) if isinstance(thinking, list) else thinking
        transcript.add(at_s, "reasoning", whole)
    else:
        transcript.add(at_s, "answer", part.get("text"))


def _tokens_of(event: Mapping[str, Any]) -> int | None:
    """Tokens in a stream's first content, where its own event counts them: by usage so far, or by one logprob a token."""
    so_far = mapping(event.get("usage")).get("completion_tokens")
    if isinstance(so_far, int) and so_far > 0:
        return so_far
    choices = sequence(event.get("choices"))
    logprobs = mapping(mapping(choices[0]).get("logprobs")) if choices else {}
    return len(sequence(logprobs.get("content"))) or None
