"""The formats in which models call tools: how each begins, and a reader that says whether what follows is a call.

A reader sees a text that grows, from the tag on. It answers None (more is needed), :class:`Found` or :class:`NotFound`, and once it has
answered, more text would not change the answer: so events never depend on how the text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from swiftsure.serve.parsing.json_text import BLANKS, Call, JsonEnd, calls_of_json
from swiftsure.serve.parsing.python_text import calls_of_python

MAX_CALL = 256 * 1024  # characters held back for what may be a call
Parameters: TypeAlias = Mapping[str, Sequence[str]]
"""Names of the tools, and of each one's arguments in order."""


@dataclass(frozen=True, slots=True)
class Found:
    calls: tuple[Call, ...]
    end: int  # characters that they took


@dataclass(frozen=True, slots=True)
class NotFound:
    end: int  # so many characters are text; what is behind them may be anything


Answer: TypeAlias = Found | NotFound | None


class CallReader(Protocol):
    arguments_at: int
    """Where a call's arguments begin, while there is one call and its name is known; else 0."""

    arguments_end: JsonEnd | None
    name: str

    def read(self, text: str, *, final: bool) -> Answer: ...


_HEAD = re.compile(r'\s*\[?\s*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


class _Reader:
    """``open``: the tag that was met, empty for a call that begins with its bracket."""

    def __init__(self, open_: str, close: str, tools: Parameters) -> None:
        self.name, self.arguments_at = "", 0
        self.arguments_end: JsonEnd | None = None
        self._open, self._close, self._tools = open_, close, tools
        self._text_end = max(1, len(open_))

    def read(self, text: str, *, final: bool) -> Answer:
        answer = NotFound(self._text_end) if len(text) > MAX_CALL else self._read(text, final)
        return NotFound(self._text_end) if answer is None and final else answer

    def _read(self, text: str, final: bool) -> Answer:
        raise NotImplementedError


class JsonCall(_Reader):
    """A JSON object or list, and the closing tag where the format has one. At the end of all text the tag may be missing."""

    _end: JsonEnd | None = None
    _calls: tuple[Call, ...] | None = None
    _start = 0

    def _read(self, text: str, final: bool) -> Answer:
        if self._end is None:
            self._start = _behind_blanks(text, len(self._open))
            if self._start == len(text):
                return None
            self._end = JsonEnd(self._start)
        if not self._open and not _may_be_call(text):
            return NotFound(self._text_end)
        self._end.advance(text)
        self._look_at_arguments(text)
        if self._end.bad:
            return NotFound(self._text_end)
        if not self._end.done:
            return None
        if self._calls is None:
            self._calls = calls_of_json(text[self._start : self._end.pos], self._tools)
        if self._calls is None:
            return NotFound(self._text_end)
        return self._closed(text, self._calls, self._end.pos, final)

    def _closed(self, text: str, calls: tuple[Call, ...], end: int, final: bool) -> Answer:
        if not self._close:
            return Found(calls, end)
        at = _behind_blanks(text, end)
        rest = text[at : at + len(self._close)]
        if rest == self._close:
            return Found(calls, at + len(self._close))
        if self._close.startswith(rest):
            return Found(calls, len(text)) if final else None
        return NotFound(self._text_end)

    def _look_at_arguments(self, text: str) -> None:
        if not self.name:
            head = _HEAD.match(text, len(self._open))
            if head is None or head[1] not in self._tools:
                return
            self.name, self.arguments_at = head[1], head.end()
            self.arguments_end = JsonEnd(head.end())
        assert self.arguments_end is not None, "there is a head"
        self.arguments_end.advance(text)


class NamedJsonCall(JsonCall):
    """Mistral's: ``[TOOL_CALLS]`` and a list, or the name before its arguments, ``[ARGS]`` between them or not."""

    _HEADER = re.compile(r"\s*([A-Za-z0-9_.:-]+)(?:\[CALL_ID\][A-Za-z0-9]+)?(?:\[ARGS\])?\s*")

    def _read(self, text: str, final: bool) -> Answer:
        start = _behind_blanks(text, len(self._open))
        if not self._open or text[start : start + 1] in ("", "[", "{"):
            return super()._read(text, final)
        bracket = text.find("{", start)
        if bracket < 0:
            header = text[start:]
            return None if len(header) < 256 and re.fullmatch(r"[A-Za-z0-9_.:\-\[\]\s]*", header) else NotFound(self._text_end)
        header_match = self._HEADER.fullmatch(text, start, bracket)
        if header_match is None or header_match[1] not in self._tools:
            return NotFound(self._text_end)
        if self._end is None:
            self._end = self.arguments_end = JsonEnd(bracket)
            self.name, self.arguments_at = header_match[1], bracket
        self._end.advance(text)
        if self._end.bad:
            return NotFound(self._text_end)
        if not self._end.done:
            return None
        arguments = text[bracket : self._end.pos]
        call = calls_of_json(f'{{"name": "{self.name}", "arguments": {arguments}}}', self._tools)
        return Found(call, self._end.pos) if call else NotFound(self._text_end)


class FencedCall(_Reader):
    """A fenced block that holds calls in JSON or in Python and nothing else."""

    def _read(self, text: str, final: bool) -> Answer:
        at = text.find("\n" + self._close, len(self._open) - 1)
        if at < 0 and not final:
            return None
        body = text[len(self._open) : at if at >= 0 else len(text)]
        calls = calls_of_json(body, self._tools) or calls_of_python(body, self._tools)
        end = at + 1 + len(self._close) if at >= 0 else len(text)
        return Found(calls, end) if calls else NotFound(self._text_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """tags: what begins a call. bare: characters that begin one at the start of an output, without a tag. before, between, after: what a
    grammar writes around calls, each ``{"name": ..., key: ...}``."""

    name: str
    tags: tuple[str, ...]
    close: str
    reader: type[JsonCall] | type[FencedCall]
    bare: str = ""
    before: str = ""
    between: str = ""
    after: str = ""
    key: str = "arguments"
    separators: str = BLANKS  # what may stand between calls

    def start(self, tag: str, tools: Parameters) -> CallReader:
        """A reader for a text that begins with ``tag``, or with a bracket."""
        return self.reader(tag, self.close, tools) if tag else JsonCall("", "", tools)


HERMES = CallFormat(
    name="hermes",
    tags=("<tool_call>",),
    close="</tool_call>",
    reader=JsonCall,
    before="<tool_call>\n",
    between="\n</tool_call>\n<tool_call>\n",
    after="\n</tool_call>",
)
SMOLLM2 = CallFormat(
    name="smollm2",
    tags=("<tool_call>",),
    close="</tool_call>",
    reader=JsonCall,
    before="<tool_call>[",
    between=", ",
    after="]</tool_call>",
)
LLAMA3 = CallFormat(
    name="llama3_json",
    tags=("<|python_tag|>",),
    close="",
    reader=JsonCall,
    bare="{",
    between="; ",
    key="parameters",
    separators=BLANKS + ";",
)
MISTRAL = CallFormat(name="mistral", tags=("[TOOL_CALLS]",), close="", reader=NamedJsonCall, bare="[", before="[", between=", ", after="]")
GEMMA = CallFormat(
    name="gemma",
    tags=("```tool_code\n", "```tool_call\n", "```json\n"),
    close="```",
    reader=FencedCall,
    bare="{[",
    before="```tool_code\n",
    between="\n```\n```tool_code\n",
    after="\n```",
    key="parameters",
)


_HEADS = tuple(f'{{"{key}":' for key in ("name", "type", "function", "arguments", "parameters"))


def _may_be_call(text: str) -> bool:
    """Whether an object without a tag begins as calls do, as far as it goes: another answer in JSON should not wait for its end."""
    begun = "".join(text[:64].split()).removeprefix("[")[:14]
    return any(head.startswith(begun) or begun.startswith(head) for head in _HEADS)


def _behind_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at
