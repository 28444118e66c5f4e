"""The long text that is pasted above a prompt: Newton's Opticks (fourth edition, 1730), in the public domain.

Beyond the book's length its sentences go on in other orders, so that no page of the text comes twice: a prefix cache, a lookup draft or
compression of repeats must not make a long prompt look cheap.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from functools import lru_cache

from swiftsure.errors import UsageError
from swiftsure.records.texts import opticks

WANTED_TOKENS = 30_000
CHARACTERS_PER_TOKEN = 4.0
"""Where the endpoint does not tell how many tokens a text of this kind has: few enough that the window is not overrun."""
_MARGIN = 0.05
_LEAST_TOKENS = 256
_SEED = 1730


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """``tokens``: about how many the text of ``characters`` has. ``scaled``: why they are fewer than wanted, or None."""

    wanted_tokens: int
    tokens: int
    characters: int
    scaled: str | None


def context_for(
    wanted_tokens: int, *, window: int | None, others_tokens: int, characters_per_token: float = CHARACTERS_PER_TOKEN
) -> Context:
    """As much context as is wanted, or as the window leaves beside ``others_tokens``: the longest prompt and its answer.

    Raises UsageError where the window leaves less than a few hundred tokens.
    """
    tokens, scaled = wanted_tokens, None
    if window is not None:
        room = int((window - others_tokens) * (1 - _MARGIN))
        if room < _LEAST_TOKENS:
            raise UsageError(
                f"the model's window of {window} tokens leaves no room for a long context beside prompts and answers of {others_tokens}; "
                "lower --max-tokens or give --context 0"
            )
        if room < wanted_tokens:
            tokens = room
            scaled = f"{wanted_tokens} tokens were wanted; the model's window of {window} leaves {room} beside the prompt and its answer"
    return Context(wanted_tokens=wanted_tokens, tokens=tokens, characters=int(tokens * characters_per_token), scaled=scaled)


def long_text(length: int) -> str:
    """Text of ``length`` characters at most, ending with a whole word; always the same for the same length."""
    text = opticks()
    rng, sentences = random.Random(_SEED), list(_sentences())
    while len(text) < length:
        rng.shuffle(sentences)
        text += "\n\n" + " ".join(sentences)
    return text[:length].rsplit(None, 1)[0] if length < len(text) else text


@lru_cache(maxsize=1)
def _sentences() -> tuple[str, ...]:
    return tuple(re.split(r"(?<=[.;:]) ", " ".join(opticks().split())))
