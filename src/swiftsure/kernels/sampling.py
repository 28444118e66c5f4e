"""From logits to tokens: the typed face of the compiled sampler and drafter.

The token at a position is a pure function of (settings, tokens before it, logits of it), in this order, each step on the result of the
one before:

1. ``logit_bias``: ``l += bias[t]``
2. ``repetition_penalty`` r, tokens of the prompt and of the output so far: ``l > 0 ? l / r : l * r``
3. ``frequency_penalty`` f and ``presence_penalty`` p, tokens of the output so far: ``l -= count(t) * f``, then ``l -= p``
4. ``temperature`` T: ``x = (l - max l) / T``. At T = 0 the token is the greatest l, ties to the lowest id, and nothing below applies.
5. ``top_k``: the k greatest x, ties to the lower id (0: off)
6. ``top_p``: of these, by x descending and id ascending, the fewest whose probabilities reach ``top_p`` of their sum (1: off)
7. ``min_p``: of these, the tokens with ``p >= min_p * p_max`` (0: off)
8. ``argmax x[t] + g(seed, choice, position, t)``, g = Gumbel noise from Philox4x32-10, position = tokens of prompt and output so far

Step 8 draws from softmax(x) over the tokens left. Its noise belongs to the token's id, not to its rank, so a draft compared with the token
so sampled changes nothing: speculation gives the same tokens at any temperature. The bits are the same on every instruction set.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ContractError, UsageError
from swiftsure.kernels import _core
from swiftsure.kernels.instruction_sets import resolve_isa

MAX_NGRAM = 32

Logits = NDArray[np.float32]
Ids = NDArray[np.int32]
AnyIds = Sequence[int] | NDArray[np.integer]


class Sampler:
    """Samples the tokens of one request and choice; see the module for the order of its steps.

    Not to be shared between threads. Calls release the interpreter lock.

    Raises:
        UsageError: a setting is out of the range its step allows, or an id lies outside the vocabulary.
    """

    __slots__ = ("_core",)

    def __init__(
        self,
        vocab_size: int,
        *,
        isa: str,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int = 0,
        choice: int = 0,
        repetition_penalty: float = 1.0,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        logit_bias: Mapping[int, float] | None = None,
    ) -> None:
        try:
            self._core = _core.Sampler(
                vocab_size,
                isa=isa,
                temperature=temperature,
                top_p=top_p,
                top_k=min(top_k, vocab_size),
                min_p=min_p,
                seed=seed,
                choice=choice,
                repetition_penalty=repetition_penalty,
                presence_penalty=presence_penalty,
                frequency_penalty=frequency_penalty,
                logit_bias=dict(logit_bias or {}),
            )
        except ValueError as error:
            raise UsageError(str(error)) from None

    @property
    def position(self) -> int:
        """Tokens of the prompt and the output so far: the position that the next token will have."""
        return self._core.position

    def prime(self, prompt_ids: AnyIds) -> None:
        """Adds prompt tokens to the history, before the first :meth:`accept`. They count for ``repetition_penalty`` and for positions."""
        try:
            self._core.prime(_ids(prompt_ids))
        except ValueError as error:
            raise UsageError(str(error)) from None

    def accept(self, logits: Logits, draft: AnyIds = ()) -> Ids:
        """Samples as far as the draft holds.

        Args:
            logits: (rows, vocab_size) float32; row i follows the history and ``draft[:i]``.
            draft: (rows - 1,) token ids.

        Returns:
            1 to ``rows`` token ids, appended to the history: the draft's tokens as long as they are what is sampled, then the first token
            that differs or the one behind the last row; fewer where a later row has no token to choose.

        Raises:
            ContractError: the first row has no token to choose, because its greatest logit is not finite.
        """
        try:
            return self._core.accept(logits, _ids(draft))
        except ValueError as error:
            raise UsageError(str(error)) from None
        except RuntimeError as error:
            raise ContractError(str(error)) from None

    def process(self, logits_row: Logits) -> Logits:
        """What the last step would see at the next position: x of the tokens left, -infinity for the others; at temperature 0 the logits
        after bias and penalties. ``logits_row`` is (vocab_size,); the history does not change."""
        try:
            return self._core.process(logits_row)
        except ValueError as error:
            raise UsageError(str(error)) from None
        except RuntimeError as error:
            raise ContractError(str(error)) from None


class DraftSampler:
    """Chooses the token of a draft from logits of another model: the sampler's choice, with its noise, among the likely tokens.

    No penalties and biases: a draft that leaves them out is only less often right. Raises UsageError as :class:`Sampler` does.
    """

    __slots__ = ("_core",)

    def __init__(
        self,
        vocab_size: int,
        *,
        isa: str,
        temperature: float = 0.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        seed: int = 0,
        choice: int = 0,
        shortlist: Ids | None = None,
    ) -> None:
        """``shortlist`` (S,): the token ids that the columns of the logits stand for, ascending; None: all of the vocabulary."""
        try:
            self._core = _core.DraftSampler(
                vocab_size,
                isa=isa,
                temperature=temperature,
                top_p=top_p,
                top_k=min(top_k, vocab_size),
                min_p=min_p,
                seed=seed,
                choice=choice,
                shortlist=np.empty(0, np.int32) if shortlist is None else shortlist,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None

    def choose(self, logits_row: Logits, position: int) -> tuple[int, float]:
        """The token and its chance, ``e^score`` of it over the sum of all (without noise its probability); 0: none can be chosen.

        ``logits_row``: float32 (S,) or (vocab_size,). ``position``: tokens before the one that is guessed.
        """
        return self._core.choose(logits_row, position)


class Drafter:
    """Drafts what followed the last time the sequence read as it does now.

    Finds the longest suffix of the sequence, of at most ``max_ngram`` tokens, that occurred before, and of its occurrences the most
    recent. Appending costs well under a microsecond per token and suffix length, drafting about a microsecond per token.
    """

    __slots__ = ("_core",)

    def __init__(self, *, max_ngram: int = 12, temperature: float = 0.0, seed: int = 0, choice: int = 0, isa: str | None = None) -> None:
        """``temperature``, ``seed`` and ``choice`` of the request: above temperature 0 the noise of a token, which its sampler will add,
        tells how likely it is drawn. ``isa``: None chooses as ``resolve_isa`` does; noise has the same bits on all."""
        _check_whole("max_ngram", max_ngram, 1, MAX_NGRAM)
        self._core = _core.Drafter(isa=resolve_isa(isa), max_ngram=max_ngram, temperature=temperature, seed=seed, choice=choice)

    def extend(self, ids: AnyIds) -> None:
        """Appends tokens of the prompt."""
        self._core.extend(_ids(ids))

    def observe(self, ids: AnyIds) -> None:
        """Appends tokens of the output, and learns from each how far its guess was to be trusted."""
        self._core.observe(_ids(ids))

    def draft(self, max_tokens: int) -> tuple[Ids, list[float]]:
        """Up to ``max_tokens`` tokens, none without a match, and the chance of each, given that all before it are right. A continuation
        that reaches the end of the sequence goes on into itself."""
        _check_whole("max_tokens", max_tokens, 0, 2**31 - 1)
        return self._core.draft(max_tokens)

    @property
    def match_length(self) -> int:
        """Tokens of the longest suffix that occurred before, at most ``max_ngram``."""
        return self._core.match_length

    @property
    def memory_bytes(self) -> int:
        return self._core.memory_bytes

    def __len__(self) -> int:
        return len(self._core)


def log_probs(logits_row: Logits, ids: AnyIds, *, isa: str | None = None) -> NDArray[np.float64]:
    """Natural log-probabilities of ``ids`` under softmax of the raw logits. logits_row: (vocab_size,) float32; returns (len(ids),).

    ``isa``: None chooses as ``resolve_isa`` does, ``SWIFTSURE_ISA`` included."""
    try:
        return _core.log_probs(resolve_isa(isa), logits_row, _ids(ids))
    except ValueError as error:
        raise UsageError(str(error)) from None


def top_log_probs(logits_row: Logits, n: int, *, isa: str | None = None) -> tuple[Ids, NDArray[np.float64]]:
    """The ``n`` likeliest tokens under softmax of the raw logits and their log-probabilities, greatest first, ties to the lower id.

    Fewer than ``n`` when fewer logits are finite.
    """
    _check_whole("n", n, 0, None)
    try:
        return _core.top_log_probs(resolve_isa(isa), logits_row, min(n, 2**31 - 1))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _ids(ids: AnyIds) -> Ids:
    if isinstance(ids, np.ndarray) and ids.dtype == np.int32 and ids.ndim == 1:
        return np.ascontiguousarray(ids)
    try:
        return np.frombuffer(array("i", cast("Iterable[int]", ids)), dtype=np.int32) if len(ids) else np.empty(0, dtype=np.int32)
    except (TypeError, OverflowError):
        raise UsageError(f"token ids must be a sequence of whole numbers of 32 bits, got {ids!r}") from None


def _check_whole(name: str, value: int, low: int, high: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise UsageError(f"{name} must be a whole number, got {value!r}")
    if value < low:
        raise UsageError(f"{name} must be at least {low}, got {value}")
    if high is not None and value > high:
        raise UsageError(f"{name} must be at most {high}, got {value}")


class TextStore:
    """Texts that are over: the latest ``capacity`` tokens of them, searched for what followed where they read like the end of another."""

    __slots__ = ("_core",)

    def __init__(self, capacity: int) -> None:
        _check_whole("capacity", capacity, 8, 2**30)
        self._core = _core.TextStore(capacity)

    def add(self, ids: AnyIds) -> None:
        """Adds a text; the oldest tokens give way."""
        self._core.add(_ids(ids))

    def find(self, ids: AnyIds, *, max_match: int, max_tokens: int) -> tuple[int, Ids]:
        """``(length, tokens)``: how many tokens at the end of ``ids`` were found, 0 or at least 4 and at most ``max_match``, and up to
        ``max_tokens`` that followed there. The longest match counts; of equals the latest."""
        _check_whole("max_match", max_match, 0, 2**31 - 1)
        _check_whole("max_tokens", max_tokens, 0, 2**31 - 1)
        return self._core.find(_ids(ids), max_match, max_tokens)

    def clear(self) -> None:
        self._core.clear()

    @property
    def memory_bytes(self) -> int:
        return self._core.memory_bytes

    def __len__(self) -> int:
        """Places taken: tokens, and one between texts."""
        return len(self._core)
