"""What the tokenizer asks of a kind of vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Protocol


class Place(Enum):
    """Where a stretch of text stands; some vocabularies put a blank before it, depending on that."""

    START = auto()  # of the whole text
    AFTER_ADDED = auto()  # a special or other added token
    CONTINUES = auto()  # other text, encoded before


class Segmenter(Protocol):
    """Turns ordinary text into ids and spells tokens. Special tokens are no business of it: they were taken out before."""

    @property
    def prefixed(self) -> Collection[Place]:
        """Where text is read as if a blank stood before it."""

    @property
    def added(self) -> Mapping[str, int]:
        """Tokens that are not special, yet are to be found in the text before any other rule applies."""

    def encode(self, text: str, place: Place) -> list[int]:
        """Ids of a stretch of text between such tokens."""

    def spell(self, token: int) -> bytes:
        """The bytes that a token which is not special stands for."""
