"""A job's answer in the interface's words: content blocks, a stop reason, usage."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from typing import Any

from swiftsure.serve.jobs import Outcome
from swiftsure.serve.parsing import CallArguments, CallEnd, CallStart, OutputParser, Reasoning, Text
from swiftsure.serve.problems import DeadlineError, UnavailableError
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices

WireEvent = dict[str, Any]


class BlockWriter:
    """Generated text in, the interface's events of content blocks out. A reply that is not streamed is made of the same ones."""

    def __init__(self, parser: OutputParser, *, thinking_shown: bool) -> None:
        self.called = False
        self.blocks = 0  # begun so far
        self._parser = parser
        self._shown = thinking_shown
        self._open: str | None = None  # the kind of block that is under way
        self._thought: list[str] = []

    def feed(self, text: str) -> list[WireEvent]:
        return [wire for event in self._parser.feed(text) for wire in self._write(event)]

    def finish(self) -> list[WireEvent]:
        """The rest. An answer has at least one block, if an empty one."""
        wire = [wire for event in self._parser.finish() for wire in self._write(event)]
        if not self.blocks:
            wire += self._begin("text", {"type": "text", "text": ""})
        return [*wire, *self._end()]

    def _write(self, event: Any) -> Iterable[WireEvent]:
        match event:
            case Text(text):
                yield from self._begin("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case Reasoning(text):
                yield from self._begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                self._thought.append(text)
                if self._shown:
                    yield self._delta({"type": "thinking_delta", "thinking": text})
            case CallStart(_, name):
                yield from self._end()
                block_id = f"toolu_{secrets.token_hex(12)}"
                yield from self._begin("tool_use", {"type": "tool_use", "id": block_id, "name": name, "input": {}})
            case CallArguments(_, text):
                yield self._delta({"type": "input_json_delta", "partial_json": text})
            case CallEnd():
                self.called = self.called or event.complete
                yield from self._end()

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterable[WireEvent]:
        if self._open == kind:
            return
        yield from self._end()
        self._open = kind
        self.blocks += 1
        yield {"type": "content_block_start", "index": self.blocks - 1, "content_block": block}

    def _end(self) -> Iterable[WireEvent]:
        if self._open is None:
            return
        if self._open == "thinking":
            signature = hashlib.sha256("".join(self._thought).encode()).hexdigest()
            self._thought.clear()
            yield self._delta({"type": "signature_delta", "signature": signature})
        self._open = None
        yield {"type": "content_block_stop", "index": self.blocks - 1}

    def _delta(self, delta: dict[str, Any]) -> WireEvent:
        return {"type": "content_block_delta", "index": self.blocks - 1, "delta": delta}


def folded(events: Iterable[WireEvent]) -> list[dict[str, Any]]:
    """The content blocks that the events of a stream build up."""
    blocks: list[dict[str, Any]] = []
    arguments = ""
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"]))
            arguments = ""
        elif event["type"] == "content_block_delta":
            match event["delta"]:
                case {"type": "input_json_delta", "partial_json": text}:
                    arguments += text
                case delta:
                    for name in delta.keys() - {"type"}:
                        blocks[-1][name] += delta[name]
        elif blocks[-1]["type"] == "tool_use":
            blocks[-1]["input"] = _object(arguments)
    return blocks


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # the output broke off inside the call; stop_reason says so
        return {}


def stop_fields(model: ServedModel, outcome: Outcome, *, called: bool) -> dict[str, Any]:
    """Raises DeadlineError and UnavailableError for an answer that was ended before its time."""
    if outcome.finish_reason == "deadline":
        raise DeadlineError("the request took longer than the server's deadline")
    if outcome.finish_reason == "cancelled":
        raise UnavailableError("the answer was ended by the server")
    if outcome.finish_reason == "length":
        full = outcome.prompt_tokens + outcome.output_tokens >= model.facts.context
        return {"stop_reason": "model_context_window_exceeded" if full else "max_tokens", "stop_sequence": None}
    if outcome.stop_string is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": outcome.stop_string}
    return {"stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None}


def usage(outcome: Outcome, prices: Prices) -> dict[str, Any]:
    """input_tokens and cache_read_input_tokens add up to the prompt. The tier is the one that was really used; ``cost`` is ours."""
    priority = outcome.tier == "priority"
    counted: dict[str, Any] = {
        "input_tokens": outcome.prompt_tokens - outcome.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": outcome.cached_tokens,
        "output_tokens": outcome.output_tokens,
        "service_tier": "priority" if priority else "standard",
        "speed": "fast" if priority else "standard",
    }
    if prices.input or prices.output:
        counted["cost"] = prices.cost(prompt_tokens=outcome.prompt_tokens, output_tokens=outcome.output_tokens, tier=outcome.tier)
    return counted


def message(message_id: str, model: ServedModel, content: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """``swiftsure`` beside the interface's own fields: what the answer is a function of, and once it has ended its digest."""
    return {"id": message_id, "type": "message", "role": "assistant", "model": model.name, "content": content, **fields}


def proof(model: ServedModel, outcome: Outcome | None = None) -> dict[str, Any]:
    facts = model.facts
    out = {"fingerprint": facts.fingerprint, "mode": facts.mode}
    return out if outcome is None else {**out, "digest": outcome.digest}
