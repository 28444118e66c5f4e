"""Small JSON files that come with a model, read as what they are: foreign input."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from swiftsure.errors import ModelFileError
from swiftsure.models.files import HEAD_BYTES, stand_in

MAX_JSON_BYTES = 1 << 20  # of a configuration, or of an index of some ten thousand tensors
MEMORY_FREE_BYTES = 32 << 20  # beyond twice the file
_LARGEST = 1 << 62
# An escape of a string; in the group where it is half of a surrogate pair without the other, which no UTF-8 can say.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def read_json_object(path: Path, *, max_bytes: int = MAX_JSON_BYTES, memory_bytes: int = 0) -> dict[str, Any]:
    """The object that a file holds.

    Its values may take twice the file and 32 MB of memory, or ``memory_bytes`` where that is more: `[],` repeated would take twenty times
    its bytes. Raises ModelFileError, with the path, for more than that, for any other content, a key given twice, NaN and infinity.
    """
    data = _read(path, max_bytes)
    needed, allowed = _memory_of(data), max(2 * len(data) + MEMORY_FREE_BYTES, memory_bytes)
    if needed > allowed:
        raise ModelFileError(
            f"{path}: its {len(data):,} bytes would take up to {needed:,} bytes of memory as values; at most {allowed:,} are taken for it"
        )
    if (found := stand_in(data[:HEAD_BYTES])) is not None:
        raise ModelFileError(f"{path}: this is {found}")
    text = _decoded(path, data)
    lone = b"\\u" in data and next((mark[1] for mark in _ESCAPE.finditer(text) if mark[1]), None)
    if lone:
        raise ModelFileError(f"{path}: the escape \\{lone} is half of a character")
    del data
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ModelFileError(f"{path}: nested deeper than can be read") from None
    except ValueError as error:
        fault = "a number has more digits than can be read" if "int_max_str_digits" in str(error) else error
        raise ModelFileError(f"{path}: not sound JSON: {fault}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: must hold a JSON object, got {kind_of(value)}")
    return value


def kind_of(value: object) -> str:
    """What JSON calls it, for a message."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")


def read_text(path: Path, *, max_bytes: int = MAX_JSON_BYTES) -> str:
    """Raises ModelFileError, with the path, for more bytes than that and for what is not UTF-8."""
    return _decoded(path, _read(path, max_bytes))


def _read(path: Path, max_bytes: int) -> bytes:
    """Takes memory for the file's size, not for the limit."""
    try:
        if not path.is_file():
            raise ModelFileError(f"{path}: no such file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = b"" if size > max_bytes else file.read(size + 1)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    if size > max_bytes:
        raise ModelFileError(f"{path}: must be at most {max_bytes:,} bytes")
    if len(data) != size:
        raise ModelFileError(f"{path}: the file changed while it was being read")
    return data


def _decoded(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None


# Bytes of CPython's objects in the parser's hands: a pair of an object (tuple, and its places in a list and a dict), an element's place
# with a number, an empty string, a list of one element, a dict of one entry.
_PAIR, _ELEMENT, _STRING, _LIST, _DICT = 130, 40, 60, 90, 240


def _memory_of(data: bytes) -> int:
    """At most how many bytes the text and its values take; marks within strings are counted as if they were structure."""
    widest = int(np.frombuffer(data, np.uint8).max(initial=0))
    width = 4 if widest >= 0xF0 else 2 if widest >= 0xC4 else 1  # of each character of a str that holds the widest
    contents = len(data) * (4 if b"\\u" in data else width)
    values = _PAIR * data.count(b":") + _ELEMENT * data.count(b",") + _STRING * (data.count(b'"') // 2)
    values += _LIST * data.count(b"[") + _DICT * data.count(b"{")
    return len(data) * width + max(len(data), contents + values)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} appears twice")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


class Fields:
    """Fields of an object, each noted when it is read; an error names the file, the field and the value. Null counts as absent.

    What is sound and not supported is no error: it is collected in ``refused``, so that a reader names all of it at once.
    """

    def __init__(self, values: Mapping[str, Any], file: str, *, prefix: str = "", refused: list[str] | None = None) -> None:
        """``file`` names it in messages; ``prefix`` is where the object lies within, ``refused`` the list of the object around it."""
        self._values = {key: value for key, value in values.items() if value is not None}
        self._null = values.keys() - self._values.keys()
        self._file = file
        self._prefix = prefix
        self._read: set[str] = set()
        self.refused = [] if refused is None else refused

    @property
    def given(self) -> bool:
        return bool(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def where(self, key: str) -> str:
        """File and field, for a message."""
        return f"{self._file}: {self._prefix}{key}"

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
            raise ModelFileError(f"{self.where(key)} must be a whole number of at least 0, got {_shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _LARGEST:
            raise ModelFileError(f"{self.where(key)} must be a number, got {_shown(value)}")
        return float(value)

    def positive(self, key: str) -> float:
        value = self.number(key)
        if not value > 0:
            raise ModelFileError(f"{self.where(key)} must be above 0, got {value}")
        return value

    def is_null(self, key: str) -> bool:
        """Whether it is there and null, where that says more than absence."""
        return key in self._null

    def boolean(self, key: str, default: bool) -> bool:
        value = None if key in self._null else self._take(key, default)
        if not isinstance(value, bool):
            raise ModelFileError(f"{self.where(key)} must be true or false, got {_shown(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise ModelFileError(f"{self.where(key)} must be a text, got {_shown(value)}")
        return value

    def texts(self, key: str) -> list[str]:
        """A list of texts; empty when absent."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ModelFileError(f"{self.where(key)} must be a list of texts, got {_shown(value)}")
        return value

    def section(self, key: str) -> Fields:
        """An object within; empty when absent."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise ModelFileError(f"{self.where(key)} must be an object, got {_shown(value)}")
        return Fields(value, self._file, prefix=f"{self._prefix}{key}.", refused=self.refused)

    def refuse(self, key: str, why: str) -> None:
        """``why`` goes on after the name of the field: "may name full_attention alone"."""
        self.refused.append(f"{self.where(key)} {why}")

    def refuse_unless(self, key: str, known: tuple[object, ...]) -> None:
        """Refuses a stated value that is none of ``known``."""
        self._read.add(key)
        if key in self._values and not _is_one_of(self._values[key], known):
            self._refuse_value(key)

    def refuse_unread(self, neutral: Mapping[str, tuple[object, ...]], *, harmless: Collection[str] = ()) -> None:
        """Refuses, by name, what nobody read, unless it is harmless or has a neutral value."""
        for key, value in self._values.items():
            if key in self._read or key in harmless or (key in neutral and _is_one_of(value, neutral[key])):
                continue
            self._refuse_value(key)

    def _refuse_value(self, key: str) -> None:
        self.refuse(key, f"= {_shown(self._values[key])} is not supported, and ignoring it would run another model")

    def _take(self, key: str, default: object) -> object:
        self._read.add(key)
        value = self._values.get(key, default)
        if value is None:
            raise ModelFileError(f"{self.where(key)} is missing")
        return value


def _is_one_of(value: object, known: tuple[object, ...]) -> bool:
    """By value and kind: 1 is neither true nor the other way around, but 1 and 1.0 are the same."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in known)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
