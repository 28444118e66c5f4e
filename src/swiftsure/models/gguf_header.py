"""Bounded parser of a GGUF header (versions 2 and 3, little-endian).

Follows the specification at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The file is hostile until proved otherwise: every
count, length, offset and product is compared with the bytes that are really there before anything is allocated or read, and the first
fault found ends the parse with a ModelFileError that names the section, the rule and the value.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UnsupportedModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 16
MAX_DIMS = 4
MAX_NAME_BYTES = 65535  # of a metadata key or a tensor name
MAX_STRINGS = 1 << 22  # in one array; the largest vocabularies have 2**18
MAX_ARRAY_DEPTH = 3

# Memory that a parsed header may take beside the file: as much as the file's size and this. Small entries cost many times their bytes.
FREE_BYTES = 32 << 20
_ENTRY_BYTES = 512  # of a metadata entry without its key and value: dictionary entries, numbers, tuples
_ARRAY_BYTES = 256
_SPAN_BYTES = 16
_TENSOR_BYTES = 1024

# Type ids of metadata values.
_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS: dict[int, tuple[str, str]] = {  # id -> (struct format, NumPy dtype)
    0: ("<B", "<u1"),
    1: ("<b", "<i1"),
    2: ("<H", "<u2"),
    3: ("<h", "<i2"),
    4: ("<I", "<u4"),
    5: ("<i", "<i4"),
    6: ("<f", "<f4"),
    7: ("<B", "<u1"),
    10: ("<Q", "<u8"),
    11: ("<q", "<i8"),
    12: ("<d", "<f8"),
}

# Tensor types a file may hold: id -> (name, elements in a block, bytes of a block). Knowing a size is what lets the parser prove that
# tensors lie inside the file and apart; which of them can be run is for the architecture to say.
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}


class StringArray(Sequence[str]):
    """Strings of the header, decoded when asked for: a vocabulary costs one pass over its lengths at open and no more until it is used."""

    __slots__ = ("_key", "_raw", "_spans")

    def __init__(self, key: str, raw: bytes, spans: array[int]) -> None:
        self._key = key
        self._raw = raw
        self._spans = spans  # start and end of each string in raw, alternating

    def __len__(self) -> int:
        return len(self._spans) // 2

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        i = 2 * (index % len(self))
        return self._decode([self._raw[self._spans[i] : self._spans[i + 1]]])[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """All strings. Raises ModelFileError when one is not UTF-8."""
        raw, spans = self._raw, self._spans
        return self._decode([raw[start:end] for start, end in zip(spans[::2], spans[1::2], strict=True)])

    def _decode(self, strings: list[bytes]) -> list[str]:
        try:
            return [s.decode() for s in strings]
        except UnicodeDecodeError as error:
            raise ModelFileError(f"metadata key '{self._key}': a string is not UTF-8: {error.object!r}") from None


Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | StringArray | NDArray[np.generic] | list["Value"]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One line of the tensor table. ``offset`` counts from the start of the file; ``shape`` is row-major."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    version: int
    metadata: dict[str, Value]
    metadata_spans: dict[str, tuple[int, int]]  # where each entry, its key included, begins and ends in the file
    tensors: dict[str, TensorEntry]
    alignment: int
    data_offset: int


class _Cursor:
    """A position in the file that cannot leave it."""

    __slots__ = ("budget", "data", "end", "pos", "section")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = len(data)
        self.pos = 0
        self.section = "header"
        self.budget = self.end + FREE_BYTES

    def charge(self, nbytes: int) -> None:
        """Accounts for memory before it is taken."""
        self.budget -= nbytes
        if self.budget < 0:
            raise self.fail(f"what the header lists would take more than {self.end + FREE_BYTES} bytes of memory, in a file of {self.end}")

    def fail(self, fault: str) -> ModelFileError:
        return ModelFileError(f"{self.section}: {fault}")

    def need(self, nbytes: int, what: str) -> None:
        if nbytes > self.end - self.pos:
            raise self.fail(f"{what} needs {nbytes} bytes at offset {self.pos}, but the file ends at {self.end}")

    def scalar(self, fmt: str, what: str) -> int | float:
        size = struct.calcsize(fmt)
        self.need(size, what)
        value: int | float = struct.unpack_from(fmt, self.data, self.pos)[0]
        self.pos += size
        return value

    def u32(self, what: str) -> int:
        return int(self.scalar("<I", what))

    def u64(self, what: str) -> int:
        return int(self.scalar("<Q", what))

    def text(self, what: str, limit: int | None = None) -> str:
        length = self.u64(f"length of {what}")
        if limit is not None and not 1 <= length <= limit:
            raise self.fail(f"{what} must be 1 to {limit} bytes long, got {length}")
        self.need(length, what)
        with self.data[self.pos : self.pos + length] as raw:
            # One character beyond Latin-1 makes all of a string's characters wide.
            self.charge(length if length > _ENTRY_BYTES and np.frombuffer(raw, np.uint8).max() < 0x80 else 4 * length)
            self.pos += length
            try:
                return str(raw, "utf-8")
            except UnicodeDecodeError:
                raise self.fail(f"{what} is not UTF-8: {bytes(raw[:80])!r}") from None


def parse_header(data: memoryview) -> Header:
    """Parses everything before the tensor data. Raises ModelFileError, or UnsupportedModelError for a sound file of another kind."""
    at = _Cursor(data)
    version = _read_preamble(at)
    tensor_count = at.u64("tensor count")
    metadata_count = at.u64("metadata count")
    # The smallest entry: a length and a one-byte key, a type id and a one-byte value; a name, its dimensions, type and offset.
    for what, count, smallest in (("metadata count", metadata_count, 14), ("tensor count", tensor_count, 33)):
        if count * smallest > at.end - at.pos:
            raise at.fail(f"{what} is {count}, more than a file of {at.end} bytes can hold")
    metadata, spans = _read_metadata(at, metadata_count)
    alignment = _alignment(metadata)
    entries = _read_tensor_table(at, tensor_count)
    data_offset = -(-at.pos // alignment) * alignment
    return Header(version, metadata, spans, _place_tensors(entries, data_offset, alignment, at.end), alignment, data_offset)


def _read_preamble(at: _Cursor) -> int:
    at.need(24, "a GGUF preamble")
    magic = bytes(at.data[:4])
    if magic != MAGIC:
        raise at.fail(f"magic bytes must be {MAGIC!r}, got {magic!r}; this is no GGUF file")
    at.pos = 4
    version = at.u32("version")
    if version not in VERSIONS:
        if version and version & 0xFFFF == 0:
            raise UnsupportedModelError("header: the file is big-endian; only little-endian GGUF is supported")
        raise UnsupportedModelError(f"header: GGUF version {version} is not supported; supported: {', '.join(map(str, VERSIONS))}")
    return version


def _read_metadata(at: _Cursor, count: int) -> tuple[dict[str, Value], dict[str, tuple[int, int]]]:
    metadata: dict[str, Value] = {}
    spans: dict[str, tuple[int, int]] = {}
    for index in range(count):
        at.charge(_ENTRY_BYTES)
        start = at.pos
        at.section = f"metadata entry {index + 1} of {count}"
        key = at.text("key", MAX_NAME_BYTES)
        at.section = f"metadata key '{key}'"
        if key in metadata:
            raise at.fail("the key appears twice")
        metadata[key] = _read_value(at, key, at.u32("value type"), 0)
        spans[key] = (start, at.pos)
    return metadata, spans


def _read_value(at: _Cursor, key: str, kind: int, depth: int) -> Value:
    if kind == _STRING:
        return at.text("string")
    if kind == _ARRAY:
        return _read_array(at, key, depth + 1)
    if kind not in _SCALARS:
        raise at.fail(f"value type {kind} is none of GGUF's")
    value = at.scalar(_SCALARS[kind][0], "value")
    if kind == _BOOL:
        if value not in (0, 1):
            raise at.fail(f"a boolean must be 0 or 1, got {value}")
        return bool(value)
    return value


def _read_array(at: _Cursor, key: str, depth: int) -> Value:
    if depth > MAX_ARRAY_DEPTH:
        raise at.fail(f"arrays are nested more than {MAX_ARRAY_DEPTH} deep")
    at.charge(_ARRAY_BYTES)
    kind = at.u32("array type")
    count = at.u64("array length")
    if kind == _STRING:
        return _read_strings(at, key, count)
    if kind == _ARRAY:
        if count * 12 > at.end - at.pos or count > MAX_STRINGS:
            raise at.fail(f"an array of {count} arrays is more than the file can hold")
        return [_read_value(at, key, _ARRAY, depth) for _ in range(count)]
    if kind not in _SCALARS:
        raise at.fail(f"array type {kind} is none of GGUF's")
    dtype = np.dtype(_SCALARS[kind][1])
    at.need(count * dtype.itemsize, f"an array of {count} values")
    at.charge(count * dtype.itemsize)
    values = np.frombuffer(at.data, dtype, count, at.pos).copy()
    at.pos += values.nbytes
    if kind == _BOOL:
        if values.size and values.max() > 1:
            raise at.fail(f"a boolean must be 0 or 1, got {values.max()}")
        return values.view(np.bool_)
    return values


def _read_strings(at: _Cursor, key: str, count: int) -> StringArray:
    """Walks the lengths only: the one loop over a vocabulary that opening a model pays for."""
    if count * 8 > at.end - at.pos or count > MAX_STRINGS:
        raise at.fail(f"an array of {count} strings is more than the file can hold or this reader takes ({MAX_STRINGS})")
    at.charge(count * _SPAN_BYTES)
    data, end, first = at.data, at.end, at.pos
    pos = first
    read_length = struct.Struct("<Q").unpack_from
    spans = array("Q")
    note = spans.append
    last_length = end - 8
    for index in range(count):
        if pos > last_length:
            raise at.fail(f"string {index} of {count} starts at offset {pos}, but the file ends at {end}")
        (length,) = read_length(data, pos)
        pos += 8
        if length > end - pos:
            raise at.fail(f"string {index} of {count} is {length} bytes long, but the file ends {end - pos} bytes on")
        note(pos - first)
        pos += length
        note(pos - first)
    at.pos = pos
    at.charge(pos - first)
    return StringArray(key, bytes(data[first:pos]), spans)


def _alignment(metadata: dict[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or isinstance(alignment, bool) or not 8 <= alignment <= MAX_ALIGNMENT or alignment % 8:
        raise ModelFileError(f"metadata key 'general.alignment': must be a multiple of 8 from 8 to {MAX_ALIGNMENT}, got {alignment!r}")
    return alignment


def _read_tensor_table(at: _Cursor, count: int) -> list[TensorEntry]:
    """Offsets still count from the start of the data."""
    entries: dict[str, TensorEntry] = {}
    for index in range(count):
        at.charge(_TENSOR_BYTES)
        at.section = f"tensor {index + 1} of {count}"
        name = at.text("name", MAX_NAME_BYTES)
        at.section = f"tensor '{name}'"
        if name in entries:
            raise at.fail("the name appears twice")
        dims = at.u32("dimension count")
        if not 1 <= dims <= MAX_DIMS:
            raise at.fail(f"must have 1 to {MAX_DIMS} dimensions, got {dims}")
        shape = tuple(at.u64("dimension") for _ in range(dims))  # fastest first, as GGUF writes it
        type_id = at.u32("type")
        if type_id not in TENSOR_TYPES:
            raise UnsupportedModelError(f"{at.section}: has type id {type_id}, which this build does not know")
        type_name, block, block_bytes = TENSOR_TYPES[type_id]
        if 0 in shape or shape[0] % block:
            raise at.fail(f"shape {list(shape[::-1])} is impossible: {type_name} needs rows of a positive multiple of {block}")
        nbytes = block_bytes
        for factor in (shape[0] // block, *shape[1:]):
            nbytes *= factor
            if nbytes > at.end:
                raise at.fail(f"shape {list(shape[::-1])} is impossible: more than the {at.end} bytes of the file")
        entries[name] = TensorEntry(name, type_name, shape[::-1], at.u64("offset"), nbytes)
    at.section = "tensor table"
    return list(entries.values())


def _place_tensors(entries: list[TensorEntry], data_offset: int, alignment: int, end: int) -> dict[str, TensorEntry]:
    """Turns offsets into file positions and proves that tensors lie inside the file and do not overlap."""
    placed: dict[str, TensorEntry] = {}
    for entry in entries:
        if entry.offset % alignment:
            raise ModelFileError(f"tensor '{entry.name}': offset {entry.offset} is not a multiple of the alignment {alignment}")
        start = data_offset + entry.offset
        if start + entry.nbytes > end:
            raise ModelFileError(f"tensor '{entry.name}': {entry.nbytes} bytes at offset {start} end past the file's {end} bytes")
        placed[entry.name] = TensorEntry(entry.name, entry.type, entry.shape, start, entry.nbytes)
    in_order = sorted(placed.values(), key=lambda e: e.offset)
    for before, after in itertools.pairwise(in_order):
        if before.offset + before.nbytes > after.offset:
            raise ModelFileError(f"tensors '{before.name}' and '{after.name}' overlap at offset {after.offset}")
    return placed
