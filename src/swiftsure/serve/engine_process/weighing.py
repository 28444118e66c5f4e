"""What a model makes of an answer that another gave: no token is drawn, every row is computed from the tokens that there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.llm import LLM
from swiftsure.kernels.sampling import log_probs


def weigh(llm: LLM, prompt_ids: Sequence[int], token_ids: Sequence[int], wanted: Sequence[Sequence[int]]) -> list[tuple[list[float], int]]:
    """Of each row that a token of ``token_ids`` was drawn from: log probabilities of the ids in ``wanted``, and the likeliest id.

    Raises UsageError for bad ids and ContextLengthError for more than the context holds.
    """
    ids = np.array([*prompt_ids, *token_ids], np.int32)
    first = len(prompt_ids) - 1
    found: list[tuple[list[float], int]] = []

    def take(position: int, rows: NDArray[np.float32]) -> None:
        for at, row in enumerate(rows, position):
            if at >= first:
                found.append((log_probs(row, wanted[at - first], isa=llm.backend.isa).tolist(), int(row.argmax())))

    llm.score(ids[:-1], take)
    return found
