"""Generated text into output items and the events that build them up."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from swiftsure.serve.apis.responses.items import Item, new_id
from swiftsure.serve.parsing import CallArguments, CallEnd, CallStart, OutputParser, Reasoning, Text

WireEvent: TypeAlias = dict[str, Any]
Logprob: TypeAlias = dict[str, Any]


class ItemWriter:
    """Generated text in, events of output items out, without their sequence numbers. ``output``: the items, as far as they are done."""

    def __init__(self, parser: OutputParser) -> None:
        self.output: list[Item] = []
        self.called = False  # whether there is a function call
        self._parser = parser
        self._open: Item | None = None
        self._text = ""  # of the item that is open
        self._logprobs: list[Logprob] = []  # of the item, and those that no text went out for yet
        self._pending: list[Logprob] = []

    @property
    def reasoning(self) -> bool:
        return self._open is not None and self._open["type"] == "reasoning"

    @property
    def may_stop(self) -> bool:
        """Whether the output could end here without breaking a call in two."""
        return self._parser.settled and not self.called

    def feed(self, text: str, logprobs: Sequence[Logprob] = ()) -> list[WireEvent]:
        self._pending += logprobs
        return [wire for event in self._parser.feed(text) for wire in self._write(event)]

    def finish(self, status: str) -> list[WireEvent]:
        """The rest. An output has at least one item, if an empty one; the last one takes on the ``status`` of the response."""
        wire = [wire for event in self._parser.finish() for wire in self._write(event)]
        if not self.output and self._open is None:
            wire += self._begin("message")
        return [*wire, *self._end(status)]

    def _write(self, event: Any) -> Iterator[WireEvent]:
        match event:
            case Text(text):
                yield from self._begin("message")
                logprobs, self._pending = self._pending, []
                self._text += text
                self._logprobs += logprobs
                yield self._event("response.output_text.delta", content_index=0, delta=text, logprobs=logprobs)
            case Reasoning(text):
                yield from self._begin("reasoning")
                self._text += text
                yield self._event("response.reasoning_text.delta", content_index=0, delta=text)
            case CallStart(_, name):
                yield from self._begin("function_call", name=name, call_id=f"call_{secrets.token_hex(12)}")
                self.called = True
            case CallArguments(_, text):
                self._text += text
                yield self._event("response.function_call_arguments.delta", delta=text)
            case CallEnd():
                yield from self._end("completed" if event.complete else "incomplete")

    def _begin(self, kind: str, **fields: Any) -> Iterator[WireEvent]:
        if self._open is not None and self._open["type"] == kind and kind != "function_call":
            return
        yield from self._end("completed")
        item: Item = {"id": new_id(kind), "type": kind, "status": "in_progress", **fields}
        if kind == "message":
            item |= {"role": "assistant", "content": []}
        elif kind == "reasoning":
            item |= {"summary": [], "content": []}
        else:
            item |= {"arguments": ""}
        self._open, self._text, self._logprobs = item, "", []
        yield {"type": "response.output_item.added", "output_index": len(self.output), "item": dict(item)}
        if kind != "function_call":
            yield self._event("response.content_part.added", content_index=0, part=self._part())

    def _end(self, status: str) -> Iterator[WireEvent]:
        item = self._open
        if item is None:
            return
        kind, text = item["type"], self._text
        if kind == "function_call":
            yield self._event("response.function_call_arguments.done", arguments=text, name=item["name"])
            done = {**item, "status": status, "arguments": text}
        else:
            if kind == "message":
                yield self._event("response.output_text.done", content_index=0, text=text, logprobs=self._logprobs)
            else:
                yield self._event("response.reasoning_text.done", content_index=0, text=text)
            yield self._event("response.content_part.done", content_index=0, part=self._part())
            done = {**item, "status": status, "content": [self._part()]}
        self._open = None
        self.output.append(done)
        yield {"type": "response.output_item.done", "output_index": len(self.output) - 1, "item": done}

    def _part(self) -> dict[str, Any]:
        if self.reasoning:
            return {"type": "reasoning_text", "text": self._text}
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": list(self._logprobs)}

    def _event(self, kind: str, **fields: Any) -> WireEvent:
        assert self._open is not None, "events of content belong to an open item"
        return {"type": kind, "item_id": self._open["id"], "output_index": len(self.output), **fields}
