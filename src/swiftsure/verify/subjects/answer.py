"""What an endpoint answers, put together from its chunks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from swiftsure.verify.subjects.base import Output


class AnswerError(Exception):
    """The endpoint sent an error, or something that is no chat completion."""


@dataclass(slots=True)
class Answer:
    """``first_s`` and ``last_s``: when the first and the last piece of the answer came; a chunk with a role alone is none."""

    text: str = ""
    reasoning: str = ""
    tool_calls: dict[int, dict[str, str]] = field(default_factory=dict)
    finish_reason: str | None = None
    logprobs: list[float] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    fingerprint: str | None = None
    first_s: float | None = None
    last_s: float | None = None
    last_chunk: Mapping[str, Any] = field(default_factory=dict)

    def add(self, chunk: Any, now_s: float) -> None:
        """A chunk of a stream, or a whole completion. Raises AnswerError."""
        if not isinstance(chunk, dict):
            raise AnswerError(f"a chunk must be an object, got {chunk!r:.200}")
        if chunk.get("error"):
            raise AnswerError(f"the endpoint says: {error_words(chunk)}")
        try:
            self._add(chunk, now_s)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise AnswerError(f"not a chunk of a chat completion ({type(error).__name__}: {error}): {chunk!r:.200}") from None

    def _add(self, chunk: dict[str, Any], now_s: float) -> None:
        self.last_chunk = chunk
        self.fingerprint = chunk.get("system_fingerprint") or self.fingerprint
        choices = chunk.get("choices") or []
        for choice in choices[:1]:  # one was asked for
            if self._extend(choice.get("delta") or choice.get("message") or {}):
                self.first_s = now_s if self.first_s is None else self.first_s
                self.last_s = now_s
            self._add_logprobs(choice.get("logprobs"))
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def outputs(self) -> dict[str, Output]:
        """``reasoning``, ``tool_calls`` and ``logprobs`` only where there are any."""
        found: dict[str, Output] = {"text": self.text, "finish_reason": self.finish_reason or ""}
        if self.reasoning:
            found["reasoning"] = self.reasoning
        if self.tool_calls:
            found["tool_calls"] = [self.tool_calls[index] for index in sorted(self.tool_calls)]
        if self.logprobs:
            found |= {"tokens": self.tokens, "logprobs": np.array(self.logprobs, np.float64)}
        return found

    def _extend(self, delta: Any) -> bool:
        """Whether the delta brought any of the answer."""
        text, reasoning = delta.get("content") or "", delta.get("reasoning_content") or delta.get("reasoning") or ""
        self.text += text  # raises TypeError for what is no text
        self.reasoning += reasoning
        calls = delta.get("tool_calls") or []
        for place, call in enumerate(calls):
            index = call.get("index", place)
            known = self.tool_calls.setdefault(index, {"name": "", "arguments": ""})  # its id is the server's invention
            for name in known:
                known[name] += (call.get("function") or {}).get(name) or ""
        return bool(text or reasoning or calls)

    def _add_logprobs(self, logprobs: Any) -> None:
        for entry in (logprobs or {}).get("content") or []:
            self.tokens.append(str(entry["token"]))
            self.logprobs.append(float(entry["logprob"]))


def error_words(body: Any) -> str:
    """The message of an error object, in the forms that servers give it."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return f"{error!s:.500}"
