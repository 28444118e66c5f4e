"""A peer for tests: counts instead of thinking, and can fail."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.peers.contract import Adapter, RowComparison, Run, compare_rows


def open_adapter(variant: str) -> Adapter:
    return _Fake(variant)


class _Fake:
    def __init__(self, variant: str) -> None:
        self._variant = variant

    def load(self, model_path: str, *, threads: int, context: int) -> Mapping[str, Any]:
        print("engines print where they like")
        return {"model": model_path, "threads": threads, "context": context}

    def generate(self, ids: Sequence[int], max_tokens: int) -> Run:
        if self._variant == "raises":
            raise ValueError("out of tokens")
        if self._variant == "dies":
            os._exit(3)
        tokens = [ids[-1] + i + 1 for i in range(max_tokens)]
        if self._variant == "wanders":
            tokens[5:] = [0] * (max_tokens - 5)
        return Run(token_ids=tokens, ttft_s=0.01 * len(ids), decode_s=0.5, total_s=1.0)

    def rows(self, ids: Sequence[int]) -> RowComparison:
        import numpy as np

        batch = np.eye(len(ids), dtype=np.float32)
        single = batch.copy()
        single[1] = [0.0, 0.25, *[0.5] * (len(ids) - 2)]
        return compare_rows(batch, single)
