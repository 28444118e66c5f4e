"""The seam between the engine and whatever guesses the next tokens.

A source may say anything: a token is sampled first and then compared with the draft, so a wrong guess costs a row and never a token of the
output. What a source does decide is speed, and for that the engine measures how often its guesses hold and how long they take.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from swiftsure.engine.request import Sequence


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may follow a sequence, and how sure the source is of each."""

    tokens: NDArray[np.int32]  # (n,)
    chances: SequenceOf[float]  # (n,) the source's estimate that token j is the sampled one, given that all before it were


class DraftSource(Protocol):
    """One way to guess.

    Sequences are read, never changed: ``seq.ids[: seq.length]`` are the tokens known, ``seq.request.sampling`` the values that they are
    drawn with. Token number ``p`` (``p`` tokens before it) of a sampled request is argmax(processed logits / temperature + noise), the
    noise a pure function of (``sampling.seed``, ``request.choice``, ``p``, token id): a source with logits of its own that adds the same
    noise guesses the sampled token far more often than its best token would.
    """

    name: str
    """As evidence names it; a word in lower case."""

    stepwise: bool
    """Each token costs time: asked for one token more only while that is expected to pay. Otherwise a draft counts as free."""

    wants_hidden: bool
    """``observe`` gets hidden rows; needs a back end that has them."""

    trust: float
    """Verified drafts that outweigh the chances it states: more of a source that learns from every token what its guesses are worth."""

    def measure(self) -> float:
        """Seconds that one more token of one sequence takes, tried out while nothing runs; 0 for a source that is not stepwise.

        From then on the engine measures ``propose`` itself, the first token of a draft (with whatever catching up it takes) and later ones.
        """

    def open(self, seq: Sequence) -> None:
        """A request has arrived; its prompt is known. It may wait long before it runs: take no scarce memory yet."""

    def close(self, seq: Sequence) -> None:
        """The request is over, or its engine starts anew. Called once for each ``open``."""

    def propose(self, seqs: SequenceOf[Sequence], lengths: SequenceOf[int]) -> list[Draft]:
        """A draft of at most ``lengths[i]`` tokens for each sequence; shorter, or empty, where the source has no guess.

        Within one pass a stepwise source is asked again with greater lengths, for fewer and fewer of the sequences: its draft must then
        begin with what it answered before. All sequences that want another token are in one call.
        """

    def observe(self, seq: Sequence, tokens: NDArray[np.int32], hidden: NDArray[np.float32] | None) -> None:
        """A pass brought ``tokens`` ``(n,)``, which are about to follow ``seq.ids[: seq.length]``.

        hidden: float32 ``(n, hidden)``, row i is the normed last hidden row that the logits of token i come from, or None when not wanted.
        A view: valid during the call. A request that was preempted or goes on after a failure is simply longer at the next ``propose``.
        """

    def clear(self) -> None:
        """Forgets what earlier requests left behind. Requests in flight keep theirs."""
