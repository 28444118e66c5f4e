"""What the tokenizer asks of a kind of vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Segmenter(Protocol):
    """Turns ordinary text into ids and spells tokens. Special tokens are no business of it: they were taken out before."""

    @property
    def space_prefix(self) -> bool:
        """Whether a text, and what follows a special token, is read as if a blank stood before it."""

    @property
    def added(self) -> Mapping[str, int]:
        """Tokens that are not special, yet are to be found in the text before any other rule applies."""

    def encode(self, text: str, *, first: bool) -> list[int]:
        """Ids of a stretch of text between such tokens. ``first``: it begins the text or follows a special token."""

    def spell(self, token: int) -> bytes:
        """The bytes that a token which is not special stands for."""
