"""``/completions``: a text and what follows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from swiftsure.bench.client.interfaces.base import bearer
from swiftsure.bench.client.interfaces.openai_usage import read_usage
from swiftsure.bench.client.transcript import Transcript, mapping, sequence, words_of
from swiftsure.bench.exchange import Prompt
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError


class Completions:
    path = "/completions"
    optional = ("stream_options",)

    def headers(self, target: Target) -> Mapping[str, str]:
        return bearer(target)

    def body(self, prompt: Prompt, target: Target, without: Collection[str]) -> Mapping[str, Any]:
        options = {} if "stream_options" in without else {"stream_options": {"include_usage": True}}
        name = {"model": target.model} if target.model is not None else {}
        return {**name, "prompt": plain_text(prompt), "max_tokens": prompt.max_tokens, "stream": True, **options, **prompt.sampling}

    def read_event(self, event: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        if event.get("error"):
            transcript.error_words = words_of(event["error"])
            return
        first = not transcript.arrivals
        for choice in map(mapping, sequence(event.get("choices"))):
            transcript.add(at_s, "answer", choice.get("text"))
            if choice.get("finish_reason"):
                transcript.finish_reason = str(choice["finish_reason"])
            if first and transcript.arrivals:
                transcript.first_tokens = len(sequence(mapping(choice.get("logprobs")).get("tokens"))) or None
        read_usage(event.get("usage"), transcript)

    def read_whole(self, answer: Mapping[str, Any], at_s: float, transcript: Transcript) -> None:
        self.read_event(answer, at_s, transcript)


def plain_text(prompt: Prompt) -> str:
    """The text to continue. One message of a user is as good as a text; a conversation needs a template, which this interface has not."""
    if prompt.text is not None:
        return prompt.text
    messages = prompt.messages or ()
    if len(messages) == 1 and messages[0].get("role") == "user" and isinstance(messages[0].get("content"), str):
        return str(messages[0]["content"])
    raise UsageError(f"the completions interface needs a text or one user message, prompt {prompt.name!r} has {len(messages)} messages")
