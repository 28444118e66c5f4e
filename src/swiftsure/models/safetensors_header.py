"""The header of a ``.safetensors`` file, read with bounds on everything: https://github.com/huggingface/safetensors#format.

A length of eight bytes, a JSON object, then the tensors' bytes. The object is walked entry by entry, never parsed as a whole: a hundred
megabytes of nested brackets or small numbers would take a gigabyte as Python objects before anything could be refused.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.files import HEAD_BYTES, stand_in
from swiftsure.models.tensors import read_bytes

MAX_HEADER_BYTES = 100_000_000  # the reference library's own limit
MAX_TENSORS = 1 << 17
MAX_NAME_BYTES = 4096
MAX_METADATA = 4096
MAX_DIMS = 32
_MAX_ENTRY_BYTES = 4096
_FIELDS = {"dtype", "shape", "data_offsets"}
_METADATA = "__metadata__"

ELEMENT_BYTES: dict[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""Types of the format whose elements are whole bytes."""

_DECODER = json.JSONDecoder(object_pairs_hook=list)  # pairs tell a field that is given twice
_BLANKS = re.compile(rb"[ \t\r\n]*")
# A JSON string. Possessive, so that it takes no memory, however long the string.
_STRING = re.compile(rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+"')
_ENTRY = re.compile(rb"\{[^{}]{0,%d}\}" % _MAX_ENTRY_BYTES)


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file. ``dtype`` as the format spells it, ``offset`` from the start of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def read_header(fd: int, size: int, *, element_bytes: Mapping[str, int] = ELEMENT_BYTES) -> dict[str, StoredTensor]:
    """Tensors by name, in the order of their bytes, of an open file of ``size`` bytes.

    Raises ModelFileError that states the rule: a header within the file, unique names, offsets that follow each other without gap or
    overlap and fill the file; UnsupportedModelError for a type that ``element_bytes`` does not name.
    """
    head = read_bytes(fd, 0, min(size, HEAD_BYTES), "the header's length").tobytes()
    if (found := stand_in(head)) is not None:
        raise ModelFileError(f"this is {found}")
    length = int.from_bytes(head[:8], "little")
    if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
        raise ModelFileError(f"the header's length is {length:,} bytes in a file of {size:,}; it must lie within, and be at most 100 MB")
    header = read_bytes(fd, 8, length, "the header").tobytes()
    return _place(_Walk(header, element_bytes).entries(), 8 + length, size)


class _Walk:
    """Walks the header's object; ``at`` is the next byte."""

    def __init__(self, data: bytes, element_bytes: Mapping[str, int]) -> None:
        self._data = data
        self._element_bytes = element_bytes
        self._at = 0

    def entries(self) -> list[StoredTensor]:
        """Offsets still count from the start of the data."""
        self._check_utf8()
        if self._data[:1] != b"{":
            raise ModelFileError("the header is not a JSON object")
        self._at = 1
        found: dict[str, StoredTensor] = {}
        seen_metadata = False
        if self._next() != b"}":
            while True:
                name = self._name()
                self._expect(b":")
                if name in found or (name == _METADATA and seen_metadata):
                    raise ModelFileError(f"the header names {name!r} twice")
                if name == _METADATA:
                    seen_metadata = True
                    self._skip_metadata()
                elif len(found) == MAX_TENSORS:
                    raise ModelFileError(f"the header holds more than {MAX_TENSORS:,} tensors")
                else:
                    found[name] = self._entry(name)
                if self._next() != b",":
                    break
                self._at += 1
        self._expect(b"}")
        if self._next():
            self._fail("only blanks may follow the object")
        return list(found.values())

    def _check_utf8(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for start in range(0, len(self._data), 1 << 20):
                decoder.decode(self._data[start : start + (1 << 20)])
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise ModelFileError(f"the header is not UTF-8: {error.reason}") from None

    def _next(self) -> bytes:
        """The next byte that is no blank, not taken yet; empty at the end."""
        match = _BLANKS.match(self._data, self._at)
        assert match is not None
        self._at = match.end()
        return self._data[self._at : self._at + 1]

    def _expect(self, byte: bytes) -> None:
        if self._next() != byte:
            self._fail(f"expected {byte.decode()!r}")
        self._at += 1

    def _fail(self, rule: str) -> NoReturn:
        found = self._data[self._at : self._at + 12]
        raise ModelFileError(f"the header is damaged at byte {self._at:,}: {rule}, found {found!r}")

    def _string_end(self) -> int:
        """Index after the string that begins here."""
        if self._next() != b'"':
            self._fail("expected a string")
        match = _STRING.match(self._data, self._at)
        if match is None:
            self._fail("a string is damaged or has no end")
        return match.end()

    def _name(self) -> str:
        end = self._string_end()
        if end - self._at > MAX_NAME_BYTES:
            raise ModelFileError(f"the header holds a name of {end - self._at:,} bytes; names have at most {MAX_NAME_BYTES:,}")
        try:
            name = str(json.loads(self._data[self._at : end]))
            name.encode()
        except ValueError:
            self._fail("expected a name in Unicode")
        self._at = end
        return name

    def _skip_metadata(self) -> None:
        """An object of texts, which say nothing about the tensors."""
        self._expect(b"{")
        if self._next() != b"}":
            for _ in range(MAX_METADATA):
                self._at = self._string_end()
                self._expect(b":")
                self._at = self._string_end()
                if self._next() != b",":
                    break
                self._at += 1
            else:
                raise ModelFileError(f"the header's {_METADATA} holds more than {MAX_METADATA:,} texts")
        self._expect(b"}")

    def _entry(self, name: str) -> StoredTensor:
        self._next()
        match = _ENTRY.match(self._data, self._at)
        if match is None:
            raise ModelFileError(f"tensor {name!r} must state dtype, shape and data_offsets in one flat object")
        try:
            pairs: list[tuple[str, Any]] = _DECODER.decode(match.group().decode())
        except (ValueError, RecursionError):
            raise ModelFileError(f"tensor {name!r}: its entry is damaged") from None
        self._at = match.end()
        facts = dict(pairs)
        if len(pairs) != len(_FIELDS) or facts.keys() != _FIELDS:
            raise ModelFileError(f"tensor {name!r} must state dtype, shape and data_offsets, once each and nothing else")
        dtype, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
        if not isinstance(dtype, str) or dtype not in self._element_bytes:
            raise UnsupportedModelError(f"tensor {name!r} has type {dtype!r}; read are {', '.join(self._element_bytes)}")
        if not (_counts(shape) and _counts(offsets) and len(offsets) == 2):
            raise ModelFileError(f"tensor {name!r}: shape and data_offsets must be whole numbers of at least 0 and below 2^63, offsets two")
        if len(shape) > MAX_DIMS:
            raise ModelFileError(f"tensor {name!r} has {len(shape)} dimensions; at most {MAX_DIMS} are read")
        begin, end = offsets
        needed = prod(shape) * self._element_bytes[dtype]  # exact: Python's integers do not wrap
        if end - begin != needed:
            raise ModelFileError(f"tensor {name!r} of type {dtype} and shape {_short(shape)} cannot lie at bytes {begin:,} to {end:,}")
        return StoredTensor(name, dtype, tuple(shape), begin, needed)


def _counts(value: object) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _short(numbers: list[int]) -> str:
    """Numbers of a message, of which a file may hold many."""
    text = str(numbers)
    return text if len(text) <= 100 else text[:100] + "..."


def _place(entries: list[StoredTensor], start: int, size: int) -> dict[str, StoredTensor]:
    """Turns offsets into file positions and proves that the tensors fill the rest of the file, one after the other."""
    placed: dict[str, StoredTensor] = {}
    at, before = 0, "the header"
    for entry in sorted(entries, key=lambda entry: (entry.offset, entry.nbytes)):
        if entry.offset < at:
            raise ModelFileError(f"tensor {entry.name!r} begins at byte {entry.offset:,} of the data, before {before} ends: they overlap")
        if entry.offset > at:
            raise ModelFileError(f"bytes {at:,} to {entry.offset:,} of the data, between {before} and {entry.name!r}, belong to no tensor")
        at, before = entry.offset + entry.nbytes, repr(entry.name)
        if start + at > size:
            raise ModelFileError(f"tensor {entry.name!r} ends at byte {start + at:,} of a file of {size:,}")
        placed[entry.name] = StoredTensor(entry.name, entry.dtype, entry.shape, start + entry.offset, entry.nbytes)
    if start + at != size:
        raise ModelFileError(f"the tensors end at byte {start + at:,} of a file of {size:,}")
    return placed
