"""Drafts from a request's grammar: what it leaves no choice about, as the tokenizer would write it. Free: no model runs.

The model may spell the same characters with other tokens, so these are drafts like any other.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.constraints.sampler import ConstrainedSampler
from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.request import Sequence
from swiftsure.engine.speculation import USUAL_TRUST

_CHANCE = 0.95
_NONE = Draft(np.zeros(0, np.int32), ())


class Forced:
    """Nothing for requests without a grammar."""

    name = "forced"
    stepwise = False
    wants_hidden = False
    trust = USUAL_TRUST

    def measure(self) -> float:
        return 0.0

    def open(self, seq: Sequence) -> None:
        """The sampler knows the grammar."""

    def close(self, seq: Sequence) -> None:
        """The sampler goes with the request."""

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        return [self._of(seq, length) for seq, length in zip(seqs, lengths, strict=True)]

    def _of(self, seq: Sequence, length: int) -> Draft:
        if not isinstance(seq.sampler, ConstrainedSampler):
            return _NONE
        tokens = seq.sampler.forced(length)
        return Draft(np.array(tokens, np.int32), [_CHANCE] * len(tokens))

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        """The sampler followed them."""

    def clear(self) -> None:
        """Nothing is kept beyond a request."""
