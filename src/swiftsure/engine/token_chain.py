"""The digest of an answer: a chain of hashes over the raw logits that its tokens were chosen from.

    state = SHA-256(scheme, numerics id, SHA-256 of the weights, token ids of the prompt)
    for each token:  state = SHA-256(state, hash of the row of logits, position of the row, token id)

Two answers have one digest only if numerics, weights, prompt, tokens and every bit of every row agree. What precedes a state decides it, so
chains of two replays differ from the first differing row on. See docs/decisions/0021-token-chains.md.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from struct import Struct
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SCHEME = "sw1"
TRACE_BYTES = 4
_LINK = Struct("<QI")  # position, token id
_COUNT = Struct("<Q")

HashRow: TypeAlias = Callable[[NDArray[np.float32]], bytes]
StartChain: TypeAlias = "Callable[[NDArray[np.int32]], TokenChain]"
"""The chain of a request of one model, from the token ids of its prompt ``(n,)``."""


class TokenChain:
    """The running digest of one request. Costs one compiled hash of a row and one SHA-256 of 60 bytes a token."""

    __slots__ = ("_hash_row", "_state", "_trace")

    def __init__(self, *, numerics: str, weights_sha256: str, prompt_ids: NDArray[np.int32], hash_row: HashRow) -> None:
        """``prompt_ids`` (n,). ``numerics`` and ``weights_sha256`` say which function of them the logits are."""
        names = "\0".join((SCHEME, numerics, weights_sha256, "")).encode()
        ids = np.asarray(prompt_ids).astype("<i4")
        self._state = sha256(names + _COUNT.pack(len(ids)) + ids.tobytes()).digest()
        self._hash_row = hash_row
        self._trace = bytearray()

    def extend(self, position: int, token_id: int, row: NDArray[np.float32]) -> None:
        """Takes in the token chosen from ``row`` (vocab,), the raw logits computed at ``position``."""
        self._state = sha256(self._state + self._hash_row(row) + _LINK.pack(position, token_id)).digest()
        self._trace += self._state[:TRACE_BYTES]

    @property
    def digest(self) -> str:
        """The scheme and the state so far, as ``sw1:`` and 64 hexadecimal digits."""
        return f"{SCHEME}:{self._state.hex()}"

    @property
    def trace(self) -> bytes:
        """The first ``TRACE_BYTES`` of the state after each token: two chains that differ part at the first of them that does."""
        return bytes(self._trace)
