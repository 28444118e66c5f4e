"""Swiftsure itself: its base, and the mode that promises the base's bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, RowComparison, Run, compare_rows

ENVIRONMENT = None  # the Python that runs the comparison
BASE = "swiftsure default"
CONTENDERS = (
    Contender(name=BASE, variant="default"),
    Contender(name="swiftsure exact", variant="exact", plain=BASE),
)


def open_adapter(variant: str) -> Adapter:
    return _Swiftsure(variant)


class _Swiftsure:
    def __init__(self, mode: str) -> None:
        self._mode = mode

    def load(self, model_path: str, *, threads: int, context: int) -> Mapping[str, Any]:
        import swiftsure

        self._llm = swiftsure.load(model_path, mode=self._mode, threads=threads, context=context)
        return {"swiftsure": swiftsure.__version__, "active": self._llm.activation.active_line()}

    def generate(self, ids: Sequence[int], max_tokens: int) -> Run:
        self._llm.clear_caches()
        started = perf_counter()
        made = self._llm.generate(list(ids), max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        total_s = perf_counter() - started
        if made.timing.ttft_s is None:
            raise RuntimeError("no token came")
        return Run(token_ids=list(made.token_ids), ttft_s=made.timing.ttft_s, decode_s=made.timing.decode_s, total_s=total_s)

    def rows(self, ids: Sequence[int]) -> RowComparison:
        """One by one means one pass of one row for every position, through the back end's own seam."""
        import numpy as np

        from swiftsure.engine.backend import RowBatch

        batch = self._llm.logits(ids)
        self._llm.clear_caches()  # no block is in use now: the first ones are free to write
        backend = self._llm.backend
        table = np.arange(-(-len(ids) // backend.kv_block_size), dtype=np.int32)[None, :]
        single = np.empty_like(batch)
        for position, token in enumerate(ids):
            single[position] = backend.run(
                RowBatch(
                    tokens=np.array([token], np.int32),
                    positions=np.array([position], np.int32),
                    sequences=np.zeros(1, np.int32),
                    block_tables=table,
                    logit_rows=np.zeros(1, np.int32),
                )
            )[0]
        return compare_rows(batch, single)
