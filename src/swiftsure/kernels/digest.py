"""The fingerprint of a row of logits: 128 bits that any changed bit of the row changes.

The same bytes on every instruction set. ``digest_reference`` is its slow, readable twin; docs/decisions/0021-token-chains.md says how it is
made and what it does not promise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import UsageError
from swiftsure.kernels import _core
from swiftsure.kernels.instruction_sets import resolve_isa

ROW_HASH_BYTES = 16


def hash_row(row: NDArray[np.float32], *, isa: str | None = None) -> bytes:
    """``ROW_HASH_BYTES`` bytes of all bits of ``row``, float32 ``(n,)`` and contiguous: -0.0 is not 0.0, and NaNs have their bits.

    ``isa``: None chooses as ``resolve_isa`` does. The interpreter lock is released.
    """
    try:
        return _core.hash_row(resolve_isa(isa), row)
    except TypeError:
        raise UsageError(f"a row must be a contiguous float32 array of one dimension, got {_kind(row)}") from None


def _kind(row: object) -> str:
    return f"{row.ndim} dimensions of {row.dtype}" if isinstance(row, np.ndarray) else type(row).__name__
