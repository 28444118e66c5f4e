"""JSON inside generated text: where a value ends, told piece by piece, and which calls it states."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 64
_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_OUTSIDE = re.compile(r'["{}\[\]]|[^\s0-9a-zA-Z+\-.,:]')
_CLOSERS = {"{": "}", "[": "]"}
BLANKS = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str  # a JSON object, spelled as the model did


class JsonEnd:
    """Finds the end of an object or a list in a text that grows. ``bad``: it can be no JSON, whatever follows.

    It knows strings and brackets only; whether what it found is JSON is for a parser to say. Each character is looked at once.
    """

    __slots__ = ("_closers", "_escaped", "_in_string", "bad", "done", "pos")

    def __init__(self, start: int) -> None:
        self.pos = start  # of the next character to look at; once ``done``, behind the value
        self.done = self.bad = False
        self._closers: list[str] = []
        self._in_string = self._escaped = False

    def advance(self, text: str) -> None:
        """``text`` is all of it, from its beginning."""
        while self.pos < len(text) and not (self.done or self.bad):
            if self._escaped:
                self._escaped = False
                self.pos += 1
                continue
            found = (_IN_STRING if self._in_string else _OUTSIDE).search(text, self.pos)
            if found is None:
                self.pos = len(text)
                self.bad = not self._closers
                return
            if not self._closers and found.start() > self.pos:
                self.bad = True  # something before the bracket
                return
            self.pos = found.end()
            self._meet(found.group())

    def _meet(self, character: str) -> None:
        if self._in_string:
            self._in_string = character != '"'
            self._escaped = character == "\\"
            self.bad = character < " "
        elif character == '"':
            self._in_string = True
            self.bad = not self._closers
        elif character in _CLOSERS:
            self._closers.append(_CLOSERS[character])
            self.bad = len(self._closers) > MAX_DEPTH
        elif self._closers and character == self._closers[-1]:
            self._closers.pop()
            self.done = not self._closers
        else:
            self.bad = True


def calls_of_json(text: str, names: Collection[str]) -> tuple[Call, ...] | None:
    """The calls that a JSON object or a list of objects states, each of a known tool; None: it is something else.

    Read are ``{"name", "arguments"}``, ``parameters`` for arguments, and either inside ``{"function": ...}``. Arguments may be left out, or
    be a string that holds the object.
    """
    try:
        value = _strict(text)
        spans = list(_items(text)) if isinstance(value, list) else [text]
        calls = [_call(span, names) for span in spans]
    except (ValueError, RecursionError):
        return None
    return tuple(call for call in calls if call) if calls and all(calls) else None


def _call(text: str, names: Collection[str]) -> Call | None:
    value = _strict(text)
    if not isinstance(value, dict):
        return None
    members = dict(_members(text))
    if "name" not in value and isinstance(value.get("function"), dict):
        return _call(members["function"], names)
    name = value.get("name")
    key = "arguments" if "arguments" in value else "parameters"
    arguments, spelled = value.get(key, {}), members.get(key, "{}")
    if isinstance(arguments, str):
        arguments, spelled = _strict(arguments), arguments.strip()
    if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
        return None
    return Call(name, spelled)


def is_object(text: str) -> bool:
    try:
        return isinstance(_strict(text), dict)
    except (ValueError, RecursionError):
        return False


def _strict(text: str) -> Any:
    """Raises ValueError for what Python's reader takes beyond JSON."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _members(text: str) -> Iterator[tuple[str, str]]:
    """Keys and spelled values of the object that ``text`` is, which is sound JSON."""
    decode = json.JSONDecoder().raw_decode
    at = _next(text, text.index("{") + 1)
    while text[at] != "}":
        key, at = decode(text, at)
        start = _next(text, text.index(":", at) + 1)
        at = decode(text, start)[1]
        yield key, text[start:at]
        at = _separated(text, at)


def _items(text: str) -> Iterator[str]:
    """Spelled items of the list that ``text`` is, which is sound JSON."""
    decode = json.JSONDecoder().raw_decode
    at = _next(text, text.index("[") + 1)
    while text[at] != "]":
        start, at = at, decode(text, at)[1]
        yield text[start:at]
        at = _separated(text, at)


def _next(text: str, at: int) -> int:
    while text[at] in BLANKS:
        at += 1
    return at


def _separated(text: str, at: int) -> int:
    at = _next(text, at)
    return _next(text, at + 1) if text[at] == "," else at
