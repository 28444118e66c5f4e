"""What a parser finds in generated text, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """Text for the reader; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote for itself; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. ``index`` counts the calls of this output from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next characters of a call's arguments, a JSON object in the model's own spelling; never empty."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is over. ``arguments``: all of them. ``complete``: False where the output broke off inside; then they are no JSON."""

    index: int
    name: str
    arguments: str
    complete: bool = True


Event: TypeAlias = Text | Reasoning | CallStart | CallArguments | CallEnd
