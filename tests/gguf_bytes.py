"""Writes GGUF files byte by byte, lies included: every count, length, offset and type can be stated falsely.

Independent of both readers under test, so that a hostile file is exactly what its test says.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

STRING, ARRAY, U32, F32, BOOL = 8, 9, 4, 6, 7


def text(value: str | bytes, *, length: int | None = None) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if length is None else length) + raw


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + u32(kind) + value


def strings(key: str, values: Sequence[str | bytes], *, count: int | None = None) -> bytes:
    return pair(key, ARRAY, u32(STRING) + u64(len(values) if count is None else count) + b"".join(map(text, values)))


def tensor(name: str | bytes, dims: Sequence[int], *, kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    """``dims`` fastest first, as the format writes them."""
    return text(name) + u32(len(dims) if n_dims is None else n_dims) + b"".join(map(u64, dims)) + u32(kind) + u64(offset)


@dataclass(kw_only=True)
class GGUFBytes:
    """A file in parts. With the defaults it is sound: one F32 tensor ``t`` of 2 x 8."""

    magic: bytes = b"GGUF"
    version: int = 3
    pairs: list[bytes] = field(default_factory=lambda: [pair("general.architecture", STRING, text("none")), pair("n", U32, u32(7))])
    tensors: list[bytes] = field(default_factory=lambda: [tensor("t", (8, 2))])
    pair_count: int | None = None
    tensor_count: int | None = None
    alignment: int = 32
    data: bytes = bytes(range(64))

    def header(self) -> bytes:
        counts = u64(len(self.tensors) if self.tensor_count is None else self.tensor_count)
        counts += u64(len(self.pairs) if self.pair_count is None else self.pair_count)
        return self.magic + u32(self.version) + counts + b"".join(self.pairs) + b"".join(self.tensors)

    def build(self) -> bytes:
        head = self.header()
        return head + bytes(-len(head) % self.alignment) + self.data
