"""Reads what a program wrote: a file, or a folder of files, into named outputs. Every size is bounded, and nothing is executed.

``.npy``, ``.npz`` (never pickled), ``.safetensors``, ``.json``, ``.jsonl``, ``.csv``, ``.txt``; a file without a suffix is known by its
content. Any other file is kept as bytes, which can be compared. Names: ``scores.npy`` in a folder is ``scores``, member ``x`` of
``all.npz`` is ``all/x``; of a single file the member is ``x`` and anything else is ``output``.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from swiftsure.verify.compare.elements import RAW
from swiftsure.verify.subjects.base import Output
from swiftsure.verify.subjects.safetensors import read_safetensors

PHASES_FILE = "phases.json"
SINGLE = "output"
_SUFFIXES = {".npy": "npy", ".npz": "npz", ".safetensors": "safetensors", ".json": "json", ".jsonl": "jsonl", ".csv": "csv", ".txt": "txt"}
_KINDS = "biufcSUmM"  # of NumPy: what a file can hold without pickle and without fields


class OutputError(Exception):
    """What a program wrote cannot be read; the message names the file and the rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLimits:
    """A program that writes more than this is refused by name: the reader must outlive what it reads."""

    files: int = 10_000
    total_bytes: int = 16 << 30
    unpacked_bytes: int = 4 << 30  # of an archive, which is read into memory
    text_bytes: int = 256 << 20  # of each file that is read as text: JSON and CSV become many times larger in memory


_DAMAGE = (
    OSError, ValueError, OverflowError, EOFError, KeyError, RuntimeError, NotImplementedError, csv.Error, zipfile.BadZipFile, zlib.error,
    lzma.LZMAError,
)  # fmt: skip

Named: TypeAlias = Iterator[tuple[str, Output]]  # names inside one file; "" where the file holds a single output


def read_outputs(path: Path, limits: OutputLimits | None = None) -> dict[str, Output]:
    """Outputs by name in the order of file names; inside a file in the file's order. ``phases.json`` is not among them.

    Arrays of ``.npy`` and ``.safetensors`` are memory-mapped: they stay readable after the file is removed. Raises OutputError.
    """
    limits = limits or OutputLimits()
    outputs: dict[str, Output] = {}
    alone = not path.is_dir()
    try:
        files = _files(path, limits)
    except (OSError, RuntimeError) as error:  # a folder that may not be read; a loop of links, which pathlib calls a RuntimeError
        raise OutputError(f"the output folder cannot be read: {getattr(error, 'strerror', None) or ascii(str(error))}") from None
    for file in files:
        relative = file.relative_to(path.parent if alone else path)
        stem = "" if alone else relative.with_suffix("").as_posix() if file.suffix.lower() in _SUFFIXES else relative.as_posix()
        for name, value in read_file(file, limits, shown=relative.as_posix()):
            full = "/".join(part for part in (stem, name) if part) or SINGLE
            if full in outputs:
                raise OutputError(f"two outputs are named {full!r}")
            outputs[full] = value
    if not outputs:
        raise OutputError("the output folder holds no file")
    return outputs


def _files(path: Path, limits: OutputLimits) -> list[Path]:
    """Regular files at or below ``path``, none of them by a link that leads out of it."""
    root = path.resolve()
    found: list[Path] = []
    total = 0
    for file in [path] if not path.is_dir() else _walk(path):
        if path.is_dir() and file.name == PHASES_FILE and file.parent == path:
            continue
        if not file.name.isprintable():  # bytes that are not UTF-8 come as surrogates
            raise OutputError(f"the name of an output must be printable UTF-8, got {file.name!a}")
        target = file.resolve()
        if target != root and root not in target.parents:
            raise OutputError(f"{file.name} leads out of the output folder")
        if path.is_symlink():
            raise OutputError(f"{file.name} is a link; an output must be a file or a folder of its own")
        try:
            facts = target.stat()
        except OSError as error:
            raise OutputError(f"{file.name} cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(facts.st_mode):
            raise OutputError(f"{file.name} is not a regular file")
        found.append(file)
        total += facts.st_size
        if len(found) > limits.files:
            raise OutputError(f"outputs must be at most {limits.files:,} files")
        if total > limits.total_bytes:
            raise OutputError(f"outputs must be at most {limits.total_bytes:,} bytes in all")
    return found


def _walk(folder: Path) -> Iterator[Path]:
    """Files below a folder in the order of their names. A link to a folder is not followed; it is handed on, to be refused or read."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        else:
            yield Path(entry.path)


def read_file(file: Path, limits: OutputLimits, *, shown: str) -> Named:
    """The outputs that one file holds."""
    readers: dict[str, Callable[[Path, OutputLimits], Named]] = {
        "npy": _npy,
        "npz": _npz,
        "safetensors": lambda path, _: iter(read_safetensors(path).items()),
        "json": _json,
        "jsonl": _jsonl,
        "csv": _csv,
        "txt": _txt,
        "bytes": _bytes,
    }
    try:
        yield from readers[_format(file)](file, limits)
    except OutputError as error:
        raise OutputError(f"{shown}: {error}") from None
    except UnicodeDecodeError as error:
        raise OutputError(f"{shown}: not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise OutputError(f"{shown}: nested deeper than can be read") from None
    except _DAMAGE as error:
        raise OutputError(f"{shown}: damaged: {error}") from None


def _format(file: Path) -> str:
    if file.suffix:
        return _SUFFIXES.get(file.suffix.lower(), "bytes")
    with file.open("rb") as handle:
        head = handle.read(16)
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK\x03\x04"):
        return "npz"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < file.stat().st_size:
        return "safetensors"
    if head.lstrip()[:1] in (b"{", b"["):
        return "json"
    return "bytes" if b"\0" in head else "txt"


def _npy(file: Path, _: OutputLimits) -> Named:
    with file.open("rb") as handle:
        shape, order, dtype = _npy_header(handle)
        offset = handle.tell()
    count = math.prod(shape)
    held = file.stat().st_size - offset
    if held != count * dtype.itemsize:
        raise OutputError(f"its header states {count * dtype.itemsize:,} bytes of data and it holds {held:,}")
    if count == 0 or dtype.itemsize == 0:
        yield "", np.zeros(shape, dtype)
    else:
        yield "", np.asarray(np.memmap(file, dtype, "r", offset, shape, order=order))


def _npz(file: Path, limits: OutputLimits) -> Named:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len(members) > limits.files:
            raise OutputError(f"an archive must have at most {limits.files:,} members, it has {len(members):,}")
        unpacked = sum(member.file_size for member in members)
        if unpacked > limits.unpacked_bytes:
            raise OutputError(f"an archive must be at most {limits.unpacked_bytes:,} bytes when unpacked, it is {unpacked:,}")
        for member in members:
            if not member.filename.endswith(".npy"):
                raise OutputError(f"member {member.filename!r} is not an array")
            with archive.open(member) as handle:  # gives no more than the size stated, and checks it
                shape, order, dtype = _npy_header(handle)
                data = handle.read()
            count = math.prod(shape)
            if len(data) != count * dtype.itemsize:
                raise OutputError(f"member {member.filename!r} states {count * dtype.itemsize:,} bytes of data and holds {len(data):,}")
            array = np.frombuffer(data, dtype) if count and dtype.itemsize else np.zeros(count, dtype)
            yield member.filename.removesuffix(".npy"), array.reshape(shape, order=order)


def _npy_header(handle: Any) -> tuple[tuple[int, ...], Any, np.dtype[Any]]:
    """Shape, order and type; the file is then at its data."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers that Python 2 wrote
            version = np.lib.format.read_magic(handle)
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"unknown version {version} of the format")
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = reader(handle)
    except Exception as error:  # NumPy evaluates the header as a literal; a damaged one raises whatever Python's parser does
        raise OutputError(f"its header cannot be read: {error}") from None
    if dtype.hasobject:
        raise OutputError("it holds Python objects, which only pickle could read; pickle is never read")
    if dtype.kind not in _KINDS or (dtype.kind in "fc" and dtype.itemsize > 16) or dtype.str[1:] == "f16":
        raise OutputError(f"elements of type {dtype} are not read")
    if any(length < 0 for length in shape):
        raise OutputError(f"lengths must be at least 0, got shape {shape}")
    return shape, "F" if fortran else "C", dtype


def _text(file: Path, limits: OutputLimits) -> str:
    size = file.stat().st_size
    if size > limits.text_bytes:
        raise OutputError(f"a text must be at most {limits.text_bytes:,} bytes, it is {size:,}")
    return file.read_bytes().decode("utf-8-sig")


def _txt(file: Path, limits: OutputLimits) -> Named:
    yield "", _text(file, limits)


def _json(file: Path, limits: OutputLimits) -> Named:
    value = json.loads(_text(file, limits))
    yield "", value if isinstance(value, (dict, list, str)) else [value]


def _jsonl(file: Path, limits: OutputLimits) -> Named:
    yield "", [json.loads(line) for line in _text(file, limits).splitlines() if line.strip()]


def _csv(file: Path, limits: OutputLimits) -> Named:
    """One output a column: int64 or float64 where every field is such a number, else the fields as texts. The first row names them."""
    rows = list(csv.reader(io.StringIO(_text(file, limits), newline=""), strict=True))
    if not rows:
        raise OutputError("it has no row; the first must name the columns")
    names = rows[0]
    if len(set(names)) != len(names) or not all(names):
        raise OutputError(f"its first row must name every column once, got {names}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise OutputError(f"row {number} has {len(row)} fields, the first row names {len(names)}")
    for name, fields in zip(names, zip(*rows[1:], strict=True) if len(rows) > 1 else ((),) * len(names), strict=True):
        yield name, _column(list(fields))


def _column(fields: list[str]) -> Output:
    for kind in (np.int64, np.float64):
        try:
            numbers: NDArray[Any] = np.array([(int if kind is np.int64 else float)(field) for field in fields], kind)
        except (ValueError, OverflowError):
            continue
        return numbers
    return fields


def _bytes(file: Path, _: OutputLimits) -> Named:
    yield "", np.memmap(file, RAW, "r") if file.stat().st_size else np.zeros(0, RAW)
