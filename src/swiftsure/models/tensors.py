"""What the rest of Swiftsure sees of a weights file: named tensors in the file's own encoding."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
"""Every architecture names these two alike; without a head, the embedding is the head."""

BLOCK_TYPES = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
MATRIX_TYPES = ("F32", "F16", "BF16", *BLOCK_TYPES)
"""Types whose matrices run, as GGUF spells them."""

PIECE_BYTES = 4 << 20
"""Of a tensor that are in memory at a time and thread while they are packed or copied."""


def block_columns(tensor_type: str) -> int:
    """Neighbouring columns of a row that one of ``MATRIX_TYPES`` writes down together; rows are whole blocks."""
    if tensor_type not in BLOCK_TYPES:
        return 1
    return 256 if tensor_type.endswith("_K") else 32


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """``shape`` is row-major: a matrix that maps k inputs to n outputs is ``(n, k)``. ``nbytes`` is its size in the file."""

    name: str
    type: str  # as GGUF spells it: "Q4_1"
    shape: tuple[int, ...]
    nbytes: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


class TensorSource(Protocol):
    """Tensors of one model, read lazily."""

    def names(self) -> Iterable[str]:
        """All tensor names, in the order of the file."""

    def info(self, name: str) -> TensorInfo:
        """Raises ModelFileError when the file holds no such tensor."""

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        """The file's own bytes, one dimension: of a whole tensor, or of neighbouring ``rows`` of a matrix. May be called from several
        threads. Raises ModelFileError."""

    def close(self) -> None:
        """Safe to call twice."""


def byte_span(info: TensorInfo, rows: range | None) -> tuple[int, int]:
    """Where ``rows`` of a tensor lie within its bytes, and how many bytes they take; None: the whole."""
    if rows is None:
        return 0, info.nbytes
    row_bytes = info.nbytes // info.shape[0]
    return rows.start * row_bytes, len(rows) * row_bytes


def row_pieces(info: TensorInfo, *, multiple: int = 1) -> list[range | None]:
    """A matrix cut into rows of about ``PIECE_BYTES``, a multiple of ``multiple`` each but the last; a vector is one piece: None."""
    if len(info.shape) < 2:
        return [None]
    rows = range(info.shape[0])
    step = max(1, PIECE_BYTES * len(rows) // max(1, info.nbytes * multiple)) * multiple
    return [rows[at : at + step] for at in range(0, len(rows), step)]


def read_bytes(fd: int, offset: int, nbytes: int, what: str) -> NDArray[np.uint8]:
    """Exactly these bytes of an open file. Raises ModelFileError, which calls them ``what``. May be called from several threads."""
    out = np.empty(nbytes, np.uint8)
    done = 0
    while done < nbytes:
        try:
            now = os.preadv(fd, [out[done:]], offset + done)  # type: ignore[list-item]  # any writable buffer does
        except OSError as error:
            raise ModelFileError(f"{what} cannot be read: {error.strerror or error}") from None
        if now == 0:
            raise ModelFileError(
                f"{what} ends at byte {offset + nbytes}, but the file now at {offset + done}: it was cut short after it was opened"
            )
        done += now
    return out
