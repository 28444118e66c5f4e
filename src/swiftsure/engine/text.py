"""Tokens of one sequence to text: whole characters only, stop strings found across token edges.

Text is assembled token by token whatever the pass that brought the tokens, so drafts and batches cannot move an edge: the pieces that
stream out join to exactly the text that ``generate`` returns.
"""

from __future__ import annotations

import codecs
from collections.abc import Collection
from typing import Protocol


class TokenBytes(Protocol):
    """What this file needs of a tokenizer."""

    @property
    def special_ids(self) -> Collection[int]: ...

    def token_bytes(self, token_id: int, /) -> bytes: ...


class TextAssembler:
    """``push`` tokens, get text that can no longer change. ``stopped`` turns true with the first stop string, which is left out."""

    __slots__ = ("_decoder", "_held", "_pieces", "_special", "_stop", "_tokenizer", "stop_string", "stopped")

    def __init__(self, tokenizer: TokenBytes, stop: tuple[str, ...] = ()) -> None:
        self._tokenizer = tokenizer
        self._special = tokenizer.special_ids
        self._stop = stop
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the longest tail that may still become a stop string
        self._pieces: list[str] = []
        self.stopped = False
        self.stop_string: str | None = None  # the one that ended the text

    @property
    def text(self) -> str:
        """Everything released so far."""
        return "".join(self._pieces)

    def push(self, token_id: int) -> str:
        """Adds one token; returns the text released by it (may be empty)."""
        if token_id in self._special:
            return ""
        return self._take(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def finish(self) -> str:
        """No more tokens: an unfinished character becomes U+FFFD and what was held back is released."""
        if self.stopped:
            return ""
        piece = self._take(self._decoder.decode(b"", True))
        if self._held:
            self._pieces.append(self._held)
            piece += self._held
            self._held = ""
        return piece

    def _take(self, new: str) -> str:
        if not new or self.stopped:
            return ""
        if not self._stop:
            self._pieces.append(new)
            return new
        text = self._held + new
        found = [(at, stop) for stop in self._stop if (at := text.find(stop)) >= 0]
        if found:
            at, self.stop_string = min(found, key=lambda place: place[0])
            self.stopped = True
            self._held = ""
            piece = text[:at]
        else:
            keep = _partial_stop(text, self._stop)
            piece, self._held = text[: len(text) - keep], text[len(text) - keep :]
        if piece:
            self._pieces.append(piece)
        return piece


def _partial_stop(text: str, stops: tuple[str, ...]) -> int:
    """Length of the longest tail of ``text`` that begins some stop string without completing it."""
    longest = min(len(text), max(map(len, stops)) - 1)
    for size in range(longest, 0, -1):
        tail = text[-size:]
        if any(len(stop) > size and stop.startswith(tail) for stop in stops):
            return size
    return 0
