"""The seam between the engine and whatever executes a schedule.

A back end packs weights, owns the key-value cache, runs one step and hands rows of logits back. Schedule invariance is promised per
back end: the logits of a row are a pure function of its sequence's tokens up to that row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBatch:
    """The rows of one pass. Rows of a sequence are contiguous, with ascending positions."""

    tokens: NDArray[np.int32]  # (rows,)
    positions: NDArray[np.int32]  # (rows,) from 0
    sequences: NDArray[np.int32]  # (rows,) index into block_tables
    block_tables: NDArray[np.int32]  # (sequences, table_width) key-value block of position p is [s, p // block_size]
    logit_rows: NDArray[np.int32]  # (wanted,) rows whose logits are wanted, ascending
    features: NDArray[np.float32] | None = None  # (rows, width) for a schedule that reads them


class Backend(Protocol):
    """One loaded model on one device."""

    @property
    def numerics(self) -> str:
        """Names span and group sizes, digits and polynomials; a change of any bit changes it."""

    @property
    def isa(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_rows(self) -> int:
        """Most rows that one pass takes."""

    @property
    def max_logit_rows(self) -> int:
        """Most rows whose logits one pass hands back."""

    @property
    def kv_block_size(self) -> int:
        """Positions in a key-value block."""

    @property
    def kv_blocks(self) -> int:
        """Blocks in the cache."""

    @property
    def weight_bytes(self) -> int: ...

    @property
    def kv_bytes(self) -> int: ...

    @property
    def pass_bytes(self) -> int:
        """Bytes of weights that one pass reads, as they are packed."""

    @property
    def lever_uses(self) -> Mapping[str, int]:
        """Numeric lever -> how many matrices or layers of one pass it applies to, read off what was built. Empty with full numerics."""

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        """Runs one step and returns ``(wanted, vocab_size)``: a view that the next ``run`` overwrites.

        Writes the keys and values of every row to its sequence's blocks; changes nothing else.
        """

    def hidden(self) -> NDArray[np.float32]:
        """The normed last hidden rows ``(wanted, hidden)`` that the logits of the last ``run`` come from: a view, as those are."""

    def close(self) -> None:
        """Frees weights, cache and threads. Safe to call twice."""
