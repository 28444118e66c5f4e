"""Sampling within a grammar: each row loses the tokens that its prefix does not allow, then the request's own sampler draws.

The mask of a row is a function of the tokens before it, draft tokens included. So the tokens are the same whatever is drafted, batched or
cached; the raw logits are not touched.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.constraints.compiler import require_sound
from swiftsure.engine.request import TokenSampler
from swiftsure.errors import GrammarLimitError

if TYPE_CHECKING:
    from llguidance import LLMatcher

# An ambiguous grammar can take more and more time within every other limit. Usual ones take below 0.0001 s a token.
ONCE_S, PER_TOKEN_S = 0.1, 0.003


class Scratch:
    """Room for the masked rows of one pass of one request, shared by samplers that take turns."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows = np.empty((0, 0), np.float32)

    def rows(self, shape: tuple[int, int]) -> NDArray[np.float32]:
        if self._rows.shape[0] < shape[0] or self._rows.shape[1] != shape[1]:
            self._rows = np.empty(shape, np.float32)
        return self._rows[: shape[0]]


class ConstrainedSampler:
    """A sampler and a matcher that follow the same tokens. ``complete``: nothing can follow; the request is over."""

    __slots__ = ("_matcher", "_sampler", "_scratch", "_spent_s", "_tokens", "complete")

    def __init__(self, sampler: TokenSampler, matcher: LLMatcher, scratch: Scratch) -> None:
        self._sampler = sampler
        self._matcher = matcher
        self._scratch = scratch
        self._spent_s, self._tokens = 0.0, 0
        self.complete = False

    def accept(self, logits: NDArray[np.float32], draft: NDArray[np.int32]) -> NDArray[np.int32]:
        """As ``kernels.Sampler.accept``; the tokens also end where the grammar does.

        Raises GrammarLimitError where the grammar exceeds a limit, or where no token of the vocabulary continues it.
        """
        masked = self._scratch.rows((len(logits), logits.shape[1]))
        rows, followed = self._mask(logits, draft.tolist(), masked)
        tokens = self._sampler.accept(masked[:rows], draft[: rows - 1])
        self._follow(draft[:followed].tolist(), tokens.tolist())
        return tokens

    def forced(self, most: int) -> list[int]:
        """Up to ``most`` tokens that spell what the grammar leaves no choice about."""
        if self.complete or most < 1:
            return []
        began = thread_time()
        tokens = self._matcher.compute_ff_tokens()[:most]
        self._spent_s += thread_time() - began
        return tokens

    def _mask(self, logits: NDArray[np.float32], draft: list[int], out: NDArray[np.float32]) -> tuple[int, int]:
        """Masks rows as far as the draft is in the grammar and does not end it: how many rows, and how many draft tokens the matcher is
        ahead."""
        matcher = self._matcher
        for row in range(len(logits)):
            began = thread_time()
            bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            require_sound(matcher)
            self._account(began)
            allowed = np.unpackbits(bits, count=logits.shape[1], bitorder="little").view(np.bool_)
            out[row] = -np.inf
            np.copyto(out[row], logits[row], where=allowed)
            if not allowed.any():
                raise GrammarLimitError("no token of the vocabulary continues the grammar")
            if row == len(draft):
                break
            began = thread_time()
            taken = matcher.try_consume_tokens(draft[row : row + 1])
            self._spent_s += thread_time() - began
            if not taken:
                return row + 1, row
            if matcher.is_stopped():
                return row + 1, row + 1
        return len(logits), len(draft)

    def _account(self, began: float) -> None:
        """One more mask was computed. Raises GrammarLimitError when all of them took too long."""
        self._spent_s += thread_time() - began
        self._tokens += 1
        if self._spent_s > ONCE_S + PER_TOKEN_S * self._tokens:
            average = self._spent_s / self._tokens
            raise GrammarLimitError(
                f"the grammar must take at most {PER_TOKEN_S * 1e3:g} ms a token, got {average * 1e3:.1f} ms; it is ambiguous"
            )

    def _follow(self, ahead: list[int], tokens: list[int]) -> None:
        """Brings the matcher, which is ``ahead`` by so many draft tokens, to where ``tokens`` are."""
        matcher, same = self._matcher, 0
        while same < min(len(ahead), len(tokens)) and ahead[same] == tokens[same]:
            same += 1
        began = thread_time()
        if same < len(ahead):
            matcher.rollback(len(ahead) - same)
        if same < len(tokens):
            matcher.consume_tokens(tokens[same:])
        require_sound(matcher)
        self._spent_s += thread_time() - began
        self.complete = matcher.is_stopped()
