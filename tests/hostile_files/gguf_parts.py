"""A GGUF file taken apart, so that any part can be made to lie, and put together again. Independent of the reader under test."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from gguf_bytes import ARRAY, STRING, text, u32, u64

SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass
class Pair:
    """A metadata entry. ``value`` is encoded; ``raw`` replaces the whole entry where even its key lies."""

    key: bytes
    kind: int
    value: bytes
    raw: bytes | None = None

    def encoded(self) -> bytes:
        return text(self.key) + u32(self.kind) + self.value if self.raw is None else self.raw


@dataclass
class TensorLine:
    """A line of the tensor table; ``dims`` fastest first, ``offset`` from the start of the data."""

    name: bytes
    dims: list[int]
    kind: int
    offset: int
    dim_count: int | None = None
    raw: bytes | None = None

    def encoded(self) -> bytes:
        if self.raw is not None:
            return self.raw
        count = len(self.dims) if self.dim_count is None else self.dim_count
        dims = b"".join(u64(dim % 2**64) for dim in self.dims)
        return text(self.name) + u32(count) + dims + u32(self.kind) + u64(self.offset % 2**64)


@dataclass
class Parts:
    """A whole file. Counts are those of the lists unless they are stated."""

    pairs: list[Pair]
    tensors: list[TensorLine]
    data: bytes
    magic: bytes = b"GGUF"
    version: int = 3
    pair_count: int | None = None
    tensor_count: int | None = None
    alignment: int = 32
    tail: bytes = b""
    borders: list[int] = field(default_factory=list)  # where sections began in the file built last

    def build(self) -> bytes:
        counts = u64(len(self.tensors) if self.tensor_count is None else self.tensor_count)
        counts += u64(len(self.pairs) if self.pair_count is None else self.pair_count)
        pieces = [self.magic, u32(self.version), counts[:8], counts[8:]]
        pieces += [pair.encoded() for pair in self.pairs] + [line.encoded() for line in self.tensors]
        size = sum(map(len, pieces))
        pieces += [bytes(-size % self.alignment), self.data, self.tail]
        self.borders, at = [], 0
        for piece in pieces:
            at += len(piece)
            self.borders.append(at)
        return b"".join(pieces)

    def pair(self, key: str) -> Pair | None:
        return next((pair for pair in self.pairs if pair.key == key.encode()), None)

    def replace(self, key: str, kind: int, value: bytes) -> None:
        """Sets a value, at the end where the key is new."""
        found = self.pair(key)
        if found is None:
            self.pairs.append(Pair(key.encode(), kind, value))
        else:
            found.kind, found.value = kind, value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, nbytes: int) -> bytes:
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def number(self, fmt: str) -> int:
        value: int = struct.unpack(fmt, self.take(struct.calcsize(fmt)))[0]
        return value

    def value(self, kind: int) -> None:
        """Passes over one value."""
        if kind == STRING:
            self.take(self.number("<Q"))
        elif kind == ARRAY:
            inner, count = self.number("<I"), self.number("<Q")
            for _ in range(count):
                self.value(inner)
        else:
            self.take(SCALAR_BYTES[kind])


def take_apart(data: bytes) -> Parts:
    """The parts of a sound file of alignment 32."""
    reader = _Reader(data)
    magic, version = reader.take(4), reader.number("<I")
    tensor_count, pair_count = reader.number("<Q"), reader.number("<Q")
    pairs = []
    for _ in range(pair_count):
        key, kind = reader.take(reader.number("<Q")), reader.number("<I")
        start = reader.at
        reader.value(kind)
        pairs.append(Pair(key, kind, data[start : reader.at]))
    lines = []
    for _ in range(tensor_count):
        name = reader.take(reader.number("<Q"))
        dims = [reader.number("<Q") for _ in range(reader.number("<I"))]
        lines.append(TensorLine(name, dims, reader.number("<I"), reader.number("<Q")))
    return Parts(pairs, lines, data[-(-reader.at // 32) * 32 :], magic, version)


def string_array(values: list[bytes]) -> bytes:
    """An encoded array of strings."""
    return u32(STRING) + u64(len(values)) + b"".join(map(text, values))


def strings_of(pair: Pair | None) -> list[bytes]:
    """The strings of an array of strings; none of a value that is no such array, or no longer."""
    if pair is None or pair.kind != ARRAY or pair.value[:4] != u32(STRING):
        return []
    reader = _Reader(pair.value)
    reader.take(4)
    try:
        return [reader.take(reader.number("<Q")) for _ in range(reader.number("<Q"))]
    except (struct.error, MemoryError, OverflowError):  # an earlier mutation made it lie
        return []
