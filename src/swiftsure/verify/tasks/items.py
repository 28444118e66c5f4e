"""What a task asks: passages read once with a choice at many places, choices of a continuation, and texts to complete.

Items are defined by text, not by tokens, so that two models with different tokenizers answer the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Method: TypeAlias = Literal["likelihood", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """After ``before``, which of the words comes next? ``choices`` begin with different letters; ``right`` is an index into them."""

    before: str
    choices: tuple[str, ...]
    right: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that is read once and asked about at many places; each place is an item, the passage their cluster.

    The text up to place i is the concatenation of ``before`` of places 0 to i: it holds the right words of the earlier ones.
    """

    id: str
    places: tuple[Place, ...]

    @property
    def items(self) -> int:
        return len(self.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which continuation is the most likely, per character?"""

    id: str
    cluster: str
    context: str
    choices: tuple[str, ...]
    right: int

    @property
    def items(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A text to go on with, greedily. ``check`` scores the new text, 0 to 1."""

    id: str
    cluster: str
    prompt: str
    max_tokens: int
    stop: tuple[str, ...]
    check: Callable[[str], float]

    @property
    def items(self) -> int:
        return 1


Work: TypeAlias = Passage | Choice | Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``build`` makes the same items every time."""

    name: str
    about: str
    method: Method
    build: Callable[[], tuple[Work, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """One answered item. ``size``: tokens that were read before the answer. ``wall_s``: its share of the time of its batch or passage.

    ``reason`` is set where the item was not answered; its score is then 0.
    """

    task: str
    id: str
    cluster: str
    score: float
    size: int | None = None
    wall_s: float | None = None
    answer: str = ""
    reason: str | None = None
