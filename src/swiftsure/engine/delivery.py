"""From the logits of a pass to a request's tokens, text and callbacks."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.constraints.sampler import ConstrainedSampler
from swiftsure.engine.drafting.planner import DraftPlanner
from swiftsure.engine.request import FinishReason, Sequence, TokenLogprob
from swiftsure.engine.scheduler import Work

Describe: TypeAlias = Callable[[NDArray[np.float32], int, int], TokenLogprob]
"""``(logits row, token id, how many alternatives)``."""


class Delivery:
    """Samples, verifies drafts and hands over tokens one by one, whatever the pass that brought them."""

    def __init__(self, planner: DraftPlanner, end_ids: frozenset[int], describe: Describe) -> None:
        self._planner = planner
        self._end_ids = end_ids
        self._describe = describe

    def deliver(
        self, seq: Sequence, work: Work, logits: NDArray[np.float32], hidden: NDArray[np.float32] | None = None
    ) -> FinishReason | None:
        """Takes the request's logits ``(1 + draft, vocab)`` of this pass, and the hidden rows behind them where a source of drafts wants
        them. Returns the reason if the request is finished by it.

        An error that this request's own sampler or callback raises ends this request only; it is kept in ``seq.error``.
        """
        try:
            tokens = seq.sampler.accept(logits, seq.ids[seq.length : seq.length + work.draft])
            self._planner.learn(seq, work.draft, tokens, None if hidden is None else hidden[: len(tokens)])
            return self._emit(seq, tokens, logits)
        except StopIteration as error:  # as it is, it would look like the end of a stream
            seq.error = RuntimeError("on_logits raised StopIteration")
            seq.error.__cause__ = error
            return "cancelled"
        except Exception as error:
            seq.error = error
            return "cancelled"
        finally:
            seq.last_token_s = perf_counter()
            seq.computed = max(seq.length - 1, work.start + work.rows)

    def close(self, seq: Sequence, reason: FinishReason) -> None:
        """Releases the text that was held back."""
        piece = seq.assembler.finish()
        if piece:
            seq.pieces.append(piece)
        seq.finish_reason = reason
        seq.finished_s = perf_counter()

    def _emit(self, seq: Sequence, tokens: NDArray[np.int32], logits: NDArray[np.float32]) -> FinishReason | None:
        sampling, on_logits = seq.request.sampling, seq.request.on_logits
        if not seq.first_token_s:
            seq.first_token_s = perf_counter()
        complete = isinstance(seq.sampler, ConstrainedSampler) and seq.sampler.complete
        room = len(seq.ids)
        for row, token in enumerate(tokens.tolist()):
            seq.ids[seq.length] = token
            seq.length += 1
            if seq.chain is not None:
                seq.chain.extend(seq.length - 2, token, logits[row])
            if sampling.logprobs is not None:
                seq.logprobs.append(self._describe(logits[row], token, sampling.logprobs))
            if on_logits is not None:
                on_logits(seq.length - 2, logits[row])
            if token in self._end_ids and not sampling.ignore_eos:
                return "stop"
            start = perf_counter()
            piece = seq.assembler.push(token)
            seq.detokenize_s += perf_counter() - start
            if piece:
                seq.pieces.append(piece)
            if seq.assembler.stopped or (complete and row == len(tokens) - 1):
                return "stop"
            if seq.length == room:
                return "length"
            if seq.cancel_requested:  # the callback had enough: no token more, even where a draft brought several
                return "cancelled"
        return None
