"""Drafts from the text itself: what followed the last time the sequence read like this. Free: no model runs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.request import Request, Sequence
from swiftsure.engine.speculation import USUAL_TRUST


class TokenDrafter(Protocol):
    """What a look-up needs of ``kernels.Drafter``."""

    def extend(self, ids: NDArray[np.int32], /) -> None: ...

    def observe(self, ids: NDArray[np.int32], /) -> None: ...

    def draft(self, max_tokens: int, /) -> tuple[NDArray[np.int32], list[float]]: ...


class Lookup:
    """One drafter a sequence."""

    name = "lookup"
    stepwise = False
    wants_hidden = False

    def __init__(self, make_drafter: Callable[[Request], TokenDrafter], *, trust: float = USUAL_TRUST) -> None:
        self.trust = trust
        self._make_drafter = make_drafter
        self._drafters: dict[int, TokenDrafter] = {}

    def measure(self) -> float:
        return 0.0

    def open(self, seq: Sequence) -> None:
        drafter = self._drafters[seq.key] = self._make_drafter(seq.request)
        drafter.extend(seq.ids[: seq.length])

    def close(self, seq: Sequence) -> None:
        del self._drafters[seq.key]

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        return [Draft(*self._drafters[seq.key].draft(length)) for seq, length in zip(seqs, lengths, strict=True)]

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        self._drafters[seq.key].observe(tokens)

    def clear(self) -> None:
        """Nothing is kept beyond a request."""
