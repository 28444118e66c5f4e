"""Counting the tokens of whole texts with a model's own tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache


@lru_cache(maxsize=4)
def token_counter(model: str) -> Callable[[str], int]:
    """Counts the tokens of a text as the tokenizer of a model (a name or a file) cuts it, special tokens read as text, none added.

    Raises ModelError.
    """
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.model import open_model

    with open_model(resolve(model)) as opened:
        tokenizer = opened.tokenizer

    def count(text: str) -> int:
        return len(tokenizer.encode(text.encode(errors="replace").decode(), special=False, continues=True))

    return count
