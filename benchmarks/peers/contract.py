"""What the runner and the workers agree on. Standard library only: every peer's Python imports this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Environment:
    """What a peer needs. ``requirements`` are exact pins; ``build`` is added to the environment while they are installed."""

    requirements: tuple[str, ...]
    build: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Contender:
    """One column of the comparison.

    name: unique among all contenders. variant: handed to the adapter. plain: the contender whose greedy text this one promises.
    """

    name: str
    variant: str
    plain: str | None = None


@dataclass(frozen=True)
class Run:
    """One greedy generation of a fixed number of tokens, end-of-text ignored. Times from the call, in seconds."""

    token_ids: list[int]
    ttft_s: float  # to the first token: the prefill
    decode_s: float  # from the first token to the last
    total_s: float


@dataclass(frozen=True)
class RowComparison:
    """Logits of a prompt's positions, fed in large batches against one by one."""

    rows: int
    equal_rows: int  # every bit equal
    largest_difference: float
    different_best_tokens: int


class Adapter(Protocol):
    def load(self, model_path: str, *, threads: int, context: int) -> Mapping[str, Any]:
        """Loads the model and returns facts to record: versions, instruction sets, settings."""

    def generate(self, ids: Sequence[int], max_tokens: int) -> Run:
        """Nothing that earlier calls computed or learnt may be used."""

    def rows(self, ids: Sequence[int]) -> RowComparison: ...


def compare_rows(batch: Any, single: Any) -> RowComparison:
    """Both ``(rows, vocab)`` float32 arrays of NumPy."""
    import numpy as np

    batch, single = np.ascontiguousarray(batch, np.float32), np.ascontiguousarray(single, np.float32)
    if batch.shape != single.shape:
        raise ValueError(f"rows must have equal shapes, got {batch.shape} and {single.shape}")
    return RowComparison(
        rows=len(batch),
        equal_rows=sum(a.tobytes() == b.tobytes() for a, b in zip(batch, single, strict=True)),
        largest_difference=float(np.abs(batch - single).max()),
        different_best_tokens=int((batch.argmax(axis=1) != single.argmax(axis=1)).sum()),
    )
