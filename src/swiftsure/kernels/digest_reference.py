"""The twin of the fingerprint of a row, word by word in Python's integers and NumPy's; ``csrc/kernels/digest.cpp`` is the fast one.

One round of Philox4x32 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) on words a, b, c, d of 32 bits
under the key k, l::

    a, b, c, d = high(M1 * c) ^ b ^ k, low(M1 * c), high(M0 * a) ^ d ^ l, low(M0 * a)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_STEP0, _STEP1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_DOMAIN = 0x53573152
_LANES, _STRIPE, _CLOSING_ROUNDS = 16, 32, 8


def hash_row(row: NDArray[np.float32]) -> bytes:
    """16 bytes of all bits of ``row``, float32 ``(n,)``."""
    bits = np.ascontiguousarray(row, np.float32).view(np.uint32).astype(np.uint64)
    stripes = np.concatenate([bits, np.zeros(-len(bits) % _STRIPE, np.uint64)]).reshape(-1, 2, _LANES)
    lanes = np.zeros((4, _LANES), np.uint64)
    lanes[0], lanes[1], lanes[2], lanes[3] = np.arange(_LANES), len(bits) & _LOW, _DOMAIN, len(bits) >> 32
    for index, (first, second) in enumerate(stripes):
        lanes = np.array(_round(lanes[0] ^ first, lanes[1], lanes[2] ^ second, lanes[3], index))
    block: tuple[Any, ...] = (0, 0, 0, 0)
    taken = [pair for a, b, c, d in lanes.T.tolist() for pair in ((a, c), (b, d))]
    for index, (into0, into2) in enumerate([*taken, *[(0, 0)] * _CLOSING_ROUNDS]):
        block = _round(block[0] ^ into0, block[1], block[2] ^ into2, block[3], index)
    return b"".join(word.to_bytes(4, "little") for word in block)


def _round(a: Any, b: Any, c: Any, d: Any, index: int) -> tuple[Any, Any, Any, Any]:
    """The round number ``index`` of each block; words are whole numbers or arrays of uint64 below 2^32."""
    left, right = a * _M0, c * _M1
    return right >> 32 ^ b ^ (index * _STEP0 & _LOW), right & _LOW, left >> 32 ^ d ^ (index * _STEP1 & _LOW), left & _LOW
