"""What the runner and the workers agree on. Standard library only: every peer's Python imports this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class NotOfferedError(Exception):
    """The engine has no such ability; the message says so and stands in the report where the result would."""


@dataclass(frozen=True)
class Environment:
    """What a peer needs.

    requirements: exact pins. build: added to the environment while they are installed. remove: what they bring along and must go again.
    variables: added to the environment of the peer's process.
    """

    requirements: tuple[str, ...]
    build: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Contender:
    """One line of the comparison.

    name: unique among all contenders. variant: handed to the adapter. plain: the contender whose greedy text this one promises.
    choices: draft lengths that the adapter's ``choose`` takes; each is tried on every prompt, and the one that decodes fastest is measured.
    shares_passes: why sizes and identity are those of ``plain``; such a contender is measured on prompts only.
    """

    name: str
    variant: str
    plain: str | None = None
    choices: tuple[int, ...] = ()
    shares_passes: str | None = None


@dataclass(frozen=True)
class Place:
    """Where the model lies: the GGUF file, its weights as a float32 safetensors folder, and a folder for what the peer makes of them."""

    model_path: str
    folder: str
    cache: str


@dataclass(frozen=True)
class Run:
    """One greedy generation of a fixed number of tokens, end-of-text ignored. Times from the call, in seconds."""

    token_ids: list[int]
    first_tokens: int  # how many came at once as the first
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
    """An engine at work. Every generation is greedy, ignores end-of-text and uses nothing that earlier calls computed or learnt."""

    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        """Loads the model and returns facts to record: versions, instruction sets, settings."""

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        """New tokens as they come, in groups of at least one. Works only while the next is asked for; a caller may leave early."""

    def rows(self, ids: Sequence[int]) -> RowComparison:
        """Raises NotOfferedError when the engine hands out no logits."""

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        """The texts of all prompts generated in one batch. Raises NotOfferedError when the engine has none."""


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
