"""What an answer said, event by event, whatever interface it came over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from swiftsure.bench.exchange import Arrival, Share, Usage

MOST_TOKENS = 10**12  # more is no count, and would not fit a table of exchanges
OPENING, CLOSING = "<think>", "</think>"


@dataclass(slots=True)
class Transcript:
    """Filled by an interface's reader. ``closed``: the event came that ends a stream. ``error_words``: of an error event in the stream.

    ``first_tokens``: how many tokens the first content holds, where its own event says so.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)  # one for each arrival
    usage: Usage | None = None
    finish_reason: str | None = None
    closed: bool = False
    error_words: str | None = None
    tier: str | None = None
    first_event_s: float | None = None
    first_tokens: int | None = None

    def add(self, at_s: float, share: Share, text: object) -> None:
        """One piece of content; an empty one, or none, is nothing."""
        if isinstance(text, str) and text:
            self.arrivals.append(Arrival(at_s=at_s, share=share, characters=len(text)))
            self.texts.append(text)

    def count(self, **counts: object) -> None:
        """The endpoint's counts by their names in :class:`Usage`; each replaces what came before, what is no number changes nothing."""
        told = {
            name: value
            for name, value in counts.items()
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
        }
        if told:
            before = self.usage or Usage()
            names = ("prompt_tokens", "output_tokens", "reasoning_tokens", "cached_tokens")
            self.usage = Usage(**{name: told.get(name, getattr(before, name)) for name in names})

    def text(self, *shares: Share) -> str:
        """All text of these shares, or of all."""
        pairs = zip(self.arrivals, self.texts, strict=True)
        return "".join(text for arrival, text in pairs if not shares or arrival.share in shares)

    def has(self, *shares: Share) -> bool:
        return any(arrival.share in shares for arrival in self.arrivals)


def mark_inline_thinking(transcript: Transcript) -> None:
    """An answer that begins with ``<think>`` carries its thinking in its text: everything up to the closing mark and the blanks after it.

    A piece that holds the end of both counts as the answer. Where the mark never closes, all of it is thinking.
    """
    if transcript.has("reasoning"):
        return
    answer = transcript.text("answer")
    if not answer.lstrip().startswith(OPENING):
        return
    closing = answer.find(CLOSING)
    rest = answer[closing + len(CLOSING) :].lstrip() if closing >= 0 else ""
    boundary = len(answer) - len(rest)
    position = 0
    for index, arrival in enumerate(transcript.arrivals):
        if arrival.share == "answer":
            position += arrival.characters
            if position <= boundary:
                transcript.arrivals[index] = Arrival(at_s=arrival.at_s, share="reasoning", characters=arrival.characters)


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one: endpoints send null, or nothing, where others send an object."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def words_of(error: object) -> str:
    """What an error object says, in one line; endpoints send a string, an object with a message, or nest one in the other."""
    if isinstance(error, Mapping):
        for name in ("message", "error", "detail", "type"):
            if error.get(name):
                return words_of(error[name])
    return " ".join(str(error).split())[:500]
