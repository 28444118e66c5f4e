"""Our logits at every position of a sequence, read in one pass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swiftsure import kernels
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from swiftsure.models.schedule import Schedule
from swiftsure.models.tensors import TensorSource


def rows_of_weights(schedule: Schedule, tensors: TensorSource, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """(tokens, vocab)."""
    count = len(tokens)
    blocks = count // 16 + 1  # a block holds more positions than that
    backend = CPUBackend(
        schedule, tensors, isa=kernels.resolve_isa(None), threads=2, kv_blocks=blocks, max_rows=count, max_logit_rows=count
    )
    every = np.arange(count, dtype=np.int32)
    tables = np.arange(blocks, dtype=np.int32)[None, :]
    batch = RowBatch(tokens=tokens, positions=every, sequences=np.zeros_like(every), block_tables=tables, logit_rows=every)
    rows = backend.run(batch).copy()
    backend.close()
    return rows


def rows_of_model(path: Path, tokens: NDArray[np.int32]) -> NDArray[np.float32]:
    """(tokens, vocab), of a file or a folder."""
    with open_model(resolve(path)) as model:
        return rows_of_weights(model.schedule(), model.tensors, tokens)
