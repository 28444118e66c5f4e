"""A peer for tests: counts instead of thinking, and can fail."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Adapter, NotOfferedError, Place, RowComparison, compare_rows


def prepare(place: Place) -> None:
    (Path(place.cache) / "prepared").touch()


def open_adapter(variant: str) -> Adapter:
    return _Fake(variant)


class _Fake:
    def __init__(self, variant: str) -> None:
        self._variant = variant
        self._draft = 1

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        print("engines print where they like")
        if self._variant == "refuses":
            raise RuntimeError("mode fast is not active")
        return {"model": place.model_path, "threads": threads, "context": context}

    def choose(self, value: int) -> None:
        self._draft = value

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        if self._variant == "raises":
            raise ValueError("out of tokens")
        if self._variant == "dies" or (self._variant == "dies-late" and len(ids) > 8):
            os._exit(3)
        if self._variant == "hangs":
            import time

            time.sleep(60)
        tokens = [ids[-1] + i + 1 for i in range(max_tokens)]
        if self._variant == "wanders":
            tokens[5:] = [0] * (max_tokens - 5)
        yield tokens[:1]
        for at in range(1, max_tokens, self._draft):
            yield tokens[at : at + self._draft]

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """The last text of a batch leaves what the prompt gets alone, at its token 2."""
        if self._variant == "wanders":
            raise NotOfferedError("one sequence at a time")
        texts = [[ids[-1] + i + 1 for i in range(max_tokens)] for ids in prompts]
        texts[-1][2] = 0
        return texts

    def rows(self, ids: Sequence[int]) -> RowComparison:
        import numpy as np

        batch = np.eye(len(ids), dtype=np.float32)
        single = batch.copy()
        single[1] = [0.0, 0.25, *[0.5] * (len(ids) - 2)]
        return compare_rows(batch, single)
