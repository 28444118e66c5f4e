"""How far two sets of next-token distributions are apart, position by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare import elements

_ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Of the other distributions from the base's, over a range of positions. KL(base || other) in nats.

    ``perplexity_ratio``: other / base of the perplexity of the tokens that really follow. ``worst_position`` is where the KL is largest.
    """

    positions: int
    kl_mean: float
    kl_p99: float
    kl_max: float
    worst_position: int
    top1_agreement: float
    perplexity_ratio: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RowDivergences:
    """One entry per position."""

    kl: NDArray[np.float64]  # (positions,)
    same_top1: NDArray[np.bool_]  # (positions,)
    extra_nats: NDArray[np.float64]  # (positions - 1,) other - base, negative log-likelihood of the token that follows

    def over(self, begin: int, end: int) -> Divergence:
        """Figures of positions [begin, end), at least one."""
        kl, extra = self.kl[begin:end], self.extra_nats[begin:end]
        return Divergence(
            positions=len(kl),
            kl_mean=float(kl.mean()),
            kl_p99=float(np.quantile(kl, 0.99)),
            kl_max=float(kl.max()),
            worst_position=begin + int(kl.argmax()),
            top1_agreement=float(self.same_top1[begin:end].mean()),
            perplexity_ratio=float(np.exp(extra.mean())) if len(extra) else 1.0,
        )


def compare_distributions(base: Path, other: Path, token_ids: Sequence[int], *, vocab_size: int) -> RowDivergences:
    """Compares two files of float32 logits ``(len(token_ids), vocab_size)``, a few rows at a time.

    Raises ValueError when a file has another size. A logit that is not finite gives NaN, which is within no limit.
    """
    count = len(token_ids)
    for path in (base, other):
        if path.stat().st_size != 4 * vocab_size * count:
            raise ValueError(f"{path.name} holds {path.stat().st_size} bytes, expected {count} rows of {4 * vocab_size}")
    with base.open("rb") as base_file, other.open("rb") as other_file:

        def rows(begin: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            a, b = (np.fromfile(f, "<f4", (end - begin) * vocab_size).reshape(-1, vocab_size) for f in (base_file, other_file))
            return a, b

        return _compare_rows(rows, np.asarray(token_ids, np.int64))


def compare_logits(base: NDArray[Any], other: NDArray[Any], token_ids: Sequence[int] | NDArray[Any]) -> RowDivergences:
    """The same for two arrays of logits ``(len(token_ids), vocab_size)`` of any float type; they may be memory-mapped.

    Row i is what is said of the token after ``token_ids[i]``. Raises ValueError for other shapes.
    """
    ids = np.asarray(token_ids, np.int64)
    if base.ndim != 2 or base.shape != other.shape or len(base) != len(ids):
        raise ValueError(f"logits must be two arrays of {len(ids)} rows, got shapes {base.shape} and {other.shape}")

    def rows(begin: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return _as_float32(base[begin:end]), _as_float32(other[begin:end])

    return _compare_rows(rows, ids)


def _as_float32(rows: NDArray[Any]) -> NDArray[np.float32]:
    if rows.dtype == elements.BFLOAT16:
        return elements.as_float64(rows).reshape(rows.shape).astype(np.float32)
    return np.asarray(rows, np.float32)


def _compare_rows(rows: Callable[[int, int], tuple[NDArray[np.float32], NDArray[np.float32]]], ids: NDArray[np.int64]) -> RowDivergences:
    """Over all positions, in order; ``rows`` gives those of both sides from one position to another."""
    count = len(ids)
    kl, same, extra = np.empty(count), np.empty(count, np.bool_), np.empty(max(count - 1, 0))
    for begin in range(0, count, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, count)
        a, b = rows(begin, end)
        kl[begin:end], same[begin:end] = _kl(a, b), a.argmax(1) == b.argmax(1)
        following = ids[begin + 1 : end + 1]
        numbers = np.arange(len(following))
        extra[begin : begin + len(following)] = _nats(a[numbers], following) - _nats(b[numbers], following)
    return RowDivergences(kl, same, extra)


def _kl(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Sum of p (a - b) minus the difference of the logarithms of the sums, p = softmax(a): the plain formula without its logarithms."""
    weights, total_a = _exponentials(a)
    _, total_b = _exponentials(b)
    moved = np.einsum("ij,ij->i", weights, a - b, dtype=np.float64) / total_a
    shift = a.max(1).astype(np.float64) - b.max(1) + np.log(total_a / total_b)
    kl: NDArray[np.float64] = np.maximum(moved - shift, 0.0)
    return kl


def _exponentials(logits: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    weights: NDArray[np.float32] = np.exp(logits - logits.max(1, keepdims=True))
    return weights, weights.sum(1, dtype=np.float64)


def _nats(logits: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Log-likelihood of one token per row."""
    _, total = _exponentials(logits)
    chosen: NDArray[np.float64] = logits[np.arange(len(ids)), ids].astype(np.float64) - logits.max(1) - np.log(total)
    return chosen
