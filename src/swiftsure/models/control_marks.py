"""Tells the control tokens that a chat template writes from those that a user spelled out.

Both look alike in the rendered text. So whatever a user's text could contribute to a control token is put between two marks, characters
that occur nowhere in the inputs, and the template is rendered once more: what stands between marks is the user's, wherever the template
put it and however it trimmed around it. transformers does the same for whole tokens (``sanitize_control_tokens``); here pieces at a text's
edges count too, which two texts side by side would join to a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from swiftsure.models.conversation import Conversation
from swiftsure.models.token_matcher import TokenMatcher

Span = tuple[int, int]
_PRIVATE_USE = range(0xF0000, 0xFFFFE)


class ControlTokens:
    """The spellings of a vocabulary's control tokens."""

    def __init__(self, spellings: Iterable[str]) -> None:
        tokens = {spelling for spelling in spellings if spelling}
        self._matcher = TokenMatcher(dict.fromkeys(tokens, 0))
        self._heads = frozenset(token[:n] for token in tokens for n in range(1, len(token)))
        self._tails = frozenset(token[-n:] for token in tokens for n in range(1, len(token)))
        self._longest = max(map(len, tokens), default=0)

    def find(self, text: str) -> Iterator[Span]:
        """Ranges of the tokens in a text, left to right, the longest of those that start at one place."""
        return ((start, end) for start, end, _ in self._matcher.matches(text))

    def pieces(self, text: str) -> list[Span]:
        """As :meth:`find`, with the pieces of tokens that the text begins and ends with, white space aside."""
        spans = list(self.find(text))
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        tail = next((n for n in range(min(self._longest, end - start), 0, -1) if text[start : start + n] in self._tails), 0)
        head = next((n for n in range(min(self._longest, end - start), 0, -1) if text[end - n : end] in self._heads), 0)
        if tail and not (spans and spans[0][0] < start + tail):
            spans.insert(0, (start, start + tail))
        if head and not (spans and spans[-1][1] > end - head):
            spans.append((end - head, end))
        return spans


@dataclass(frozen=True, slots=True)
class Marks:
    """The two characters around what a user wrote."""

    opening: str
    closing: str

    @classmethod
    def absent_from(cls, *texts: str) -> Marks:
        taken = set().union(*texts)
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in taken)
        return cls(next(free), next(free))

    def read(self, text: str) -> tuple[str, list[Span]]:
        """The text without marks, and the ranges in it that stood between two. A mark without its other half stands for nothing: the
        template cut the token apart."""
        pieces: list[str] = []
        spans: list[Span] = []
        size, begun, last = 0, -1, 0
        for mark in re.finditer(f"[{self.opening}{self.closing}]", text):
            pieces.append(text[last : mark.start()])
            size += mark.start() - last
            last = mark.end()
            if mark.group() == self.closing and 0 <= begun < size:
                spans.append((begun, size))
            begun = size if mark.group() == self.opening else -1
        pieces.append(text[last:])
        return "".join(pieces), spans


def spells_control_token(chat: Conversation, control: ControlTokens) -> str | None:
    """Where the first control token is spelled out, in words; None: nowhere."""
    parts: list[tuple[str, Any]] = [(f"message {i}", message) for i, message in enumerate(chat.messages)]
    parts += [(f"tool {i}", tool) for i, tool in enumerate(chat.tools or ())]
    parts += [(f"document {i}", document) for i, document in enumerate(chat.documents or ())]
    parts += [(f"template variable {name}", value) for name, value in chat.variables.items()]
    return next((where for where, value in parts if any(any(control.find(text)) for text in texts_of(value))), None)


def marked(chat: Conversation, control: ControlTokens, marks: Marks, *, edges: bool) -> Conversation:
    """The conversation with marks; ``edges``: around pieces of tokens at texts' edges too. Roles are words that templates compare."""

    def mark_text(text: str) -> str:
        spans = control.pieces(text) if edges else control.find(text)
        out, last = "", 0
        for start, end in spans:
            out += f"{text[last:start]}{marks.opening}{text[start:end]}{marks.closing}"
            last = end
        return out + text[last:]

    def mark(value: Any) -> Any:
        if isinstance(value, str):
            return mark_text(value)
        if isinstance(value, dict):
            return {mark_text(key): mark(item) for key, item in value.items()}
        return [mark(item) for item in value] if isinstance(value, list) else value

    return replace(
        chat,
        messages=[{key: item if key == "role" else mark(item) for key, item in message.items()} for message in chat.messages],
        tools=mark(chat.tools),
        documents=mark(chat.documents),
        variables={name: mark(value) for name, value in chat.variables.items()},
    )


def texts_of(value: Any) -> Iterator[str]:
    """Every text in a value of JSON's types, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
