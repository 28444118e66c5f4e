"""Files of recorded logits, compared to the bit as ``elements`` says, a few rows at a time: both may be larger than memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare import elements

_ROWS_AT_ONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first logit that differs: row of the generation (0 is the first new token), token id and both values."""

    row: int
    token_id: int
    base: float
    other: float
    base_bits: int
    other_bits: int

    def describe(self) -> str:
        return (
            f"row {self.row}, token {self.token_id}: {self.base!r} (0x{self.base_bits:08x}) against "
            f"{self.other!r} (0x{self.other_bits:08x})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BitComparison:
    """``bits_compared`` counts what both files hold; rows that only one of them has are ``rows_missing``."""

    rows_compared: int
    rows_missing: int
    bits_compared: int
    bits_differing: int
    first: Difference | None

    @property
    def equal(self) -> bool:
        return self.bits_differing == 0 and self.rows_missing == 0


def compare_logit_files(base: Path, other: Path, *, vocab_size: int) -> BitComparison:
    """Compares two files of float32 rows ``(rows, vocab_size)``. Raises ``ValueError`` for a file that is not whole rows."""
    row_bytes = 4 * vocab_size
    sizes = [path.stat().st_size for path in (base, other)]
    for path, size in zip((base, other), sizes, strict=True):
        if size % row_bytes:
            raise ValueError(f"{path.name} holds {size} bytes, not whole rows of {row_bytes}")
    rows = min(sizes) // row_bytes
    differing, first = 0, None
    with base.open("rb") as base_file, other.open("rb") as other_file:
        for start in range(0, rows, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, rows - start) * vocab_size
            a, b = np.fromfile(base_file, np.uint32, count), np.fromfile(other_file, np.uint32, count)
            changed = elements.differing(a, b)
            if changed.size:
                differing += elements.bits_differing(a[changed], b[changed])
                if first is None:
                    first = _difference(a, b, int(changed[0]), start, vocab_size)
    return BitComparison(
        rows_compared=rows,
        rows_missing=abs(sizes[0] - sizes[1]) // row_bytes,
        bits_compared=rows * vocab_size * 32,
        bits_differing=differing,
        first=first,
    )


def _difference(a: NDArray[np.uint32], b: NDArray[np.uint32], index: int, start: int, vocab_size: int) -> Difference:
    return Difference(
        row=start + index // vocab_size,
        token_id=index % vocab_size,
        base=float(a.view(np.float32)[index]),
        other=float(b.view(np.float32)[index]),
        base_bits=int(a[index]),
        other_bits=int(b[index]),
    )
