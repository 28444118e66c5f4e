"""Drafts from earlier requests of the same loaded model: what followed where one of them read like this. Free: no model runs."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.request import Sequence
from swiftsure.engine.speculation import USUAL_TRUST

MAX_MATCH = 48  # tokens of the end that are compared: more tells requests of one template apart, and costs
# Chance of a token after a match this long, before outcomes were seen.
_LENGTHS = (4, 6, 8, 12, 16, 24, 32)
_CHANCES = (0.45, 0.55, 0.65, 0.75, 0.82, 0.90, 0.94)
_CHANCE_OF = tuple(_CHANCES[max(0, sum(start <= length for start in _LENGTHS) - 1)] for length in range(_LENGTHS[-1] + 1))


class Texts(Protocol):
    """What this source needs of ``kernels.TextStore``."""

    def add(self, ids: NDArray[np.int32], /) -> None: ...

    def find(self, ids: NDArray[np.int32], /, *, max_match: int, max_tokens: int) -> tuple[int, NDArray[np.int32]]: ...

    def clear(self) -> None: ...


class EarlierRequests:
    """Keeps the texts of requests that are over, prompt and output."""

    name = "earlier"
    stepwise = False
    wants_hidden = False
    trust = USUAL_TRUST

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    def measure(self) -> float:
        return 0.0

    def open(self, seq: Sequence) -> None:
        """Nothing is kept of a request that runs."""

    def close(self, seq: Sequence) -> None:
        self._texts.add(seq.ids[: seq.length])

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        return [self._find(seq, length) for seq, length in zip(seqs, lengths, strict=True)]

    def _find(self, seq: Sequence, length: int) -> Draft:
        tail = seq.ids[max(0, seq.length - MAX_MATCH) : seq.length]
        match, tokens = self._texts.find(tail, max_match=MAX_MATCH, max_tokens=length)
        return Draft(tokens, [_CHANCE_OF[min(match + j, _LENGTHS[-1])] for j in range(len(tokens))])

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        """The text is kept once it is whole."""

    def clear(self) -> None:
        self._texts.clear()
