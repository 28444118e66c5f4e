"""Swiftsure itself: its base, the mode that promises the base's bits, and the mode that promises a tolerance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, NotOfferedError, Place, RowComparison, compare_rows

ENVIRONMENT = None  # the Python that runs the comparison
BASE = "swiftsure default"
PROMISES = {"default": None, "exact": BASE, "fast": None}  # whose text a mode promises; a mode that cannot engage says why in its line
CONTENDERS = tuple(Contender(name=f"swiftsure {mode}", variant=mode, plain=plain) for mode, plain in PROMISES.items())


def open_adapter(variant: str) -> Adapter:
    return _Swiftsure(variant)


class _Swiftsure:
    def __init__(self, mode: str) -> None:
        self._mode = mode

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        import swiftsure
        from swiftsure.errors import NotActiveError

        try:
            self._llm = swiftsure.load(place.model_path, mode=self._mode, threads=threads, context=context)
        except NotActiveError as error:
            raise NotOfferedError(f"NOT ACTIVE: {error}") from None
        return {"swiftsure": swiftsure.__version__, "active": self._llm.activation.active_line()}

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        self._llm.clear_caches()
        seen = 0
        with self._llm.stream(list(ids), max_tokens=max_tokens, temperature=0.0, ignore_eos=True) as stream:
            for _ in stream:
                # A piece of text can hold several tokens, and wait for the rest of a character.
                tokens = stream.generation.token_ids
                if len(tokens) > seen:
                    yield tokens[seen:]
                seen = len(tokens)
            tokens = stream.generation.token_ids
            if len(tokens) > seen:
                yield tokens[seen:]

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        self._llm.clear_caches()
        made = self._llm.generate([list(ids) for ids in prompts], max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        return [list(one.token_ids) for one in made]

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
