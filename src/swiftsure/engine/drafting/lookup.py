"""Drafts from the text itself: what followed the last time the sequence read like this. Free: no model runs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.request import Sequence

# Chance that the token after a match this long is the sampled one: a first guess that a few drafts' outcomes outweigh.
_MATCH_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
_CHANCES = (0.20, 0.35, 0.50, 0.60, 0.70, 0.80, 0.88, 0.93)
_CHANCE_OF = tuple(
    _CHANCES[max(0, sum(start <= length for start in _MATCH_LENGTHS) - 1)] for length in range(_MATCH_LENGTHS[-1] + 1)
)  # by match length


class TokenDrafter(Protocol):
    """What a look-up needs of ``kernels.Drafter``."""

    @property
    def match_length(self) -> int: ...

    def extend(self, ids: NDArray[np.int32], /) -> None: ...

    def draft(self, max_tokens: int, /) -> NDArray[np.int32]: ...


class Lookup:
    """One drafter a sequence; offers by match length."""

    name = "lookup"
    stepwise = False
    wants_hidden = False

    def __init__(self, make_drafter: Callable[[], TokenDrafter]) -> None:
        self._make_drafter = make_drafter
        self._drafters: dict[int, TokenDrafter] = {}

    def measure(self) -> float:
        return 0.0

    def open(self, seq: Sequence) -> None:
        drafter = self._drafters[seq.key] = self._make_drafter()
        drafter.extend(seq.ids[: seq.length])

    def close(self, seq: Sequence) -> None:
        del self._drafters[seq.key]

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        drafts = []
        for seq, length in zip(seqs, lengths, strict=True):
            drafter = self._drafters[seq.key]
            tokens, match, longest = drafter.draft(length), drafter.match_length, _MATCH_LENGTHS[-1]
            drafts.append(Draft(tokens, [_CHANCE_OF[min(match + j, longest)] for j in range(len(tokens))]))
        return drafts

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        self._drafters[seq.key].extend(tokens)

    def clear(self) -> None:
        """Nothing is kept beyond a request."""
