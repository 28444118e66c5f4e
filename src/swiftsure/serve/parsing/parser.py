"""Generated text, piece by piece, into events. A tag that may be under way is held back; whatever is no call stays text."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from swiftsure.serve.parsing.events import CallArguments, CallEnd, CallStart, Event, Reasoning, Text
from swiftsure.serve.parsing.formats import CallFormat, CallReader, Found, NotFound, Parameters
from swiftsure.serve.parsing.json_text import BLANKS, is_object
from swiftsure.serve.parsing.tools import NamedTool, Tool, ToolChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningFormat:
    """Tags around what a model writes for itself. ``always``: outputs begin inside, without the opening tag, unless a prompt says
    otherwise."""

    name: str
    open: str = "<think>"
    close: str = "</think>"
    always: bool = False


class _Mode(enum.Enum):
    TEXT = enum.auto()
    REASONING = enum.auto()
    CALL = enum.auto()


class OutputParser:
    """One output of one choice.

    The events are the same however the text is cut into pieces, but for the pieces that text, reasoning and arguments come in. Text that
    holds neither a call nor reasoning comes out as it went in. Blanks around calls and around reasoning belong to neither and are left out.
    A call that is malformed, or of a tool that was not offered, is text. Calls come out once they are whole and sound; where a grammar
    makes sure of that (``eager``), their arguments stream.
    """

    def __init__(
        self,
        *,
        calls: CallFormat | None = None,
        tools: Sequence[Tool] = (),
        tool_choice: ToolChoice = "none",
        reasoning: ReasoningFormat | None = None,
        reasoning_open: bool = False,
    ) -> None:
        """``reasoning_open``: the output begins inside of reasoning. See :func:`~.choose.parser_for`, which derives all of it."""
        self.tools = tuple(tools)
        self.tool_choice = tool_choice
        self.calls = calls if tools and tool_choice != "none" else None
        self.reasoning = reasoning
        self.reasoning_open = reasoning is not None and reasoning_open
        self.eager = isinstance(tool_choice, NamedTool) or tool_choice == "required" or any(tool.strict for tool in tools)
        self.call_count = 0
        self._parameters: Parameters = {tool.name: tuple(_properties(tool)) for tool in self.tools}
        self._plain = self.calls is None and reasoning is None
        self._mode = _Mode.REASONING if self.reasoning_open else _Mode.TEXT
        self._buffer = ""
        self._events: list[Event] = []
        self._space, self._drop = "", BLANKS if self.reasoning_open else ""  # blanks held back; what is left out before the next text
        self._at_start, self._may_reason = True, not self.reasoning_open
        self._reader: CallReader | None = None
        self._streamed = 0  # characters of the buffer whose arguments went out; 0: the call was not announced

    @property
    def plain(self) -> bool:
        """Whether the output is text and nothing else, whatever it says."""
        return self._plain

    @property
    def settled(self) -> bool:
        """Whether nothing is held back that a call or a tag may begin with."""
        return not self._buffer and self._mode is not _Mode.CALL

    def feed(self, text: str) -> list[Event]:
        """The events that ``text``, the next piece of the output, makes certain."""
        if self._plain:
            return [Text(text)] if text else []
        self._buffer += text
        while self._advance(final=False):
            pass
        return self._take()

    def finish(self) -> list[Event]:
        """The output is over: releases what was held back."""
        while self._buffer and self._advance(final=True):
            pass
        if self._space and not self._drop and self._mode is _Mode.TEXT:
            self._events.append(Text(self._space))
        self._space = ""
        return self._take()

    # --- one step, True while there may be another ------------------------------------------------------------------------

    def _advance(self, *, final: bool) -> bool:
        if not self._buffer:
            return False
        if self._mode is _Mode.CALL:
            return self._in_call(final)
        return self._in_reasoning(final) if self._mode is _Mode.REASONING else self._in_text(final)

    def _in_reasoning(self, final: bool) -> bool:
        assert self.reasoning is not None, "the mode says so"
        at = self._buffer.find(self.reasoning.close)
        if at < 0:
            self._release(0 if final else _partial(self._buffer, (self.reasoning.close,)))
            return False
        self._emit(self._buffer[:at])
        self._buffer = self._buffer[at + len(self.reasoning.close) :]
        self._mode, self._space, self._drop = _Mode.TEXT, "", BLANKS
        return True

    def _in_text(self, final: bool) -> bool:
        if self.calls is not None and self.calls.bare and self._at_start:
            bare = self.calls.bare
            begun = self._buffer.lstrip(self._drop or BLANKS)
            tagged = any(begun.startswith(tag) or (tag.startswith(begun) and not final) for tag in self.calls.tags)
            if begun and begun[0] in bare and not tagged:
                self._emit(self._buffer[: len(self._buffer) - len(begun)])
                return self._open_call("", len(self._buffer) - len(begun))
        tags = self.calls.tags if self.calls is not None else ()
        if self.reasoning is not None and self._may_reason:
            tags = (*tags, self.reasoning.open)
        found = min(((at, tag) for tag in tags if (at := self._buffer.find(tag)) >= 0), default=None)
        if found is None:
            return self._release(0 if final else _partial(self._buffer, tags)) and bool(self._buffer)
        at, tag = found
        self._emit(self._buffer[:at])
        if self.reasoning is None or tag != self.reasoning.open:
            return self._open_call(tag, at)
        if not self._may_reason:  # the text before it says that it is quoted
            self._emit(tag)
            self._buffer = self._buffer[at + len(tag) :]
            return True
        self._buffer = self._buffer[at + len(tag) :]
        self._mode, self._space, self._drop, self._may_reason = _Mode.REASONING, "", BLANKS, False
        return True

    def _open_call(self, tag: str, at: int) -> bool:
        assert self.calls is not None, "a tag of calls was met"
        self._buffer = self._buffer[at:]
        self._reader, self._streamed, self._mode = self.calls.start(tag, self._parameters), 0, _Mode.CALL
        return True

    def _in_call(self, final: bool) -> bool:
        assert self._reader is not None, "the mode says so"
        answer = self._reader.read(self._buffer, final=final)
        if self.eager:
            self._stream_arguments(self._reader)
        if answer is None:
            return False
        self._mode = _Mode.TEXT
        if isinstance(answer, Found):
            self._found(answer)
        elif self._streamed:
            self._break_off(self._reader, final)
        else:
            self._not_found(answer)
        return True

    def _found(self, answer: Found) -> None:
        assert self.calls is not None, "there is a reader"
        for number, call in enumerate(answer.calls):
            if not (self._streamed and number == 0):
                self._events += [CallStart(self.call_count, call.name), CallArguments(self.call_count, call.arguments)]
            self._events.append(CallEnd(self.call_count, call.name, call.arguments))
            self.call_count += 1
        self._buffer = self._buffer[answer.end :]
        self._space, self._drop, self._at_start, self._may_reason = "", self.calls.separators, True, False

    def _not_found(self, answer: NotFound) -> None:
        text, self._buffer = self._buffer[: answer.end], self._buffer[answer.end :]
        self._emit(text)

    def _stream_arguments(self, reader: CallReader) -> None:
        end = reader.arguments_end
        if end is None:
            return
        if not self._streamed:
            self._events.append(CallStart(self.call_count, reader.name))
            self._streamed = reader.arguments_at
        if end.pos > self._streamed:
            self._events.append(CallArguments(self.call_count, self._buffer[self._streamed : end.pos]))
            self._streamed = end.pos

    def _break_off(self, reader: CallReader, final: bool) -> None:
        """A call that was announced is not whole: the output ended inside it, or no grammar held it."""
        end = reader.arguments_end
        assert end is not None, "the call was announced"
        arguments = self._buffer[reader.arguments_at : end.pos]
        self._events.append(CallEnd(self.call_count, reader.name, arguments, complete=end.done and is_object(arguments)))
        self.call_count += 1
        self._buffer = "" if final else self._buffer[end.pos :]  # in the end only the format's own closing is left

    # --- text -------------------------------------------------------------------------------------------------------------

    def _release(self, keep: int) -> bool:
        """Emits the buffer but for its last ``keep`` characters. False: nothing more can be said now."""
        cut = len(self._buffer) - keep
        text, self._buffer = self._buffer[:cut], self._buffer[cut:]
        self._emit(text)
        return False

    def _emit(self, text: str) -> None:
        if self._drop:
            text = text.lstrip(self._drop)
        if not text:
            return
        text = self._space + text
        shown = text.rstrip(BLANKS)
        self._space = text[len(shown) :]
        if not shown:
            return
        self._drop = ""
        if self._mode is _Mode.REASONING:
            self._events.append(Reasoning(shown))
        else:
            self._at_start = self._may_reason = False
            self._events.append(Text(shown))

    def _take(self) -> list[Event]:
        """The events so far; what comes in pieces is joined."""
        joined: list[Event] = []
        for event in self._events:
            last = joined[-1] if joined else None
            if isinstance(event, Text) and isinstance(last, Text):
                joined[-1] = Text(last.text + event.text)
            elif isinstance(event, Reasoning) and isinstance(last, Reasoning):
                joined[-1] = Reasoning(last.text + event.text)
            elif isinstance(event, CallArguments) and isinstance(last, CallArguments) and event.index == last.index:
                joined[-1] = CallArguments(event.index, last.text + event.text)
            else:
                joined.append(event)
        self._events = []
        return joined


def _properties(tool: Tool) -> list[str]:
    properties = tool.parameters.get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _partial(text: str, tags: Sequence[str]) -> int:
    """Length of the longest tail of ``text`` that begins a tag without completing it."""
    for size in range(min(len(text), max(map(len, tags), default=1) - 1), 0, -1):
        if any(len(tag) > size and tag.startswith(text[-size:]) for tag in tags):
            return size
    return 0
