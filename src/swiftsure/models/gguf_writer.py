"""Writes GGUF files (version 3, little-endian), tensor by tensor, whole or not at all.

Follows the specification at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import CapacityError, UsageError
from swiftsure.models.gguf_header import DEFAULT_ALIGNMENT, MAGIC, TENSOR_TYPES
from swiftsure.models.tensors import TensorInfo

_TYPE_IDS = {name: number for number, (name, _, _) in TENSOR_TYPES.items()}
_U32, _F32, _BOOL, _STRING, _U64 = 4, 6, 7, 8, 10

Content = Callable[[TensorInfo], Iterable[NDArray[np.uint8]]]
"""Gives a tensor's bytes in order, in pieces of any shape."""


def metadata_entry(key: str, value: bool | int | float | str) -> bytes:
    """A metadata entry as a header holds it: a whole number as uint32 (uint64 where it must be), a float as float32."""
    if isinstance(value, bool):
        kind, raw = _BOOL, struct.pack("<?", value)
    elif isinstance(value, int):
        if not 0 <= value < 1 << 64:
            raise UsageError(f"metadata key '{key}' must be from 0 to 2**64 - 1, got {value}")
        kind, raw = (_U32, struct.pack("<I", value)) if value < 1 << 32 else (_U64, struct.pack("<Q", value))
    elif isinstance(value, float):
        kind, raw = _F32, struct.pack("<f", value)
    else:
        kind, raw = _STRING, _text(value)
    return _text(key) + struct.pack("<I", kind) + raw


def require_new(path: Path, *, force: bool) -> None:
    """Raises UsageError when ``path`` cannot be a model's new file: a folder, no place for a file, or, without ``force``, a file there."""
    if path.suffix.lower() != ".gguf":
        raise UsageError(f"the output must be called *.gguf, got '{path}'")
    if not path.parent.is_dir():
        raise UsageError(f"the output's folder must exist, and '{path.parent}' is none")
    if path.is_dir():
        raise UsageError(f"the output must be a file, and '{path}' is a folder")
    if path.exists() and not force:
        raise UsageError(f"the output '{path}' exists; --force replaces it")


def write_gguf(
    path: Path,
    entries: Sequence[bytes],
    tensors: Sequence[TensorInfo],
    content: Content,
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    force: bool = False,
) -> int:
    """Writes a file beside ``path`` and renames it when it is whole and on the disk; whatever goes wrong, ``path`` stays as it was.

    Args:
        path: ends in .gguf; replaced only with ``force``.
        entries: of the metadata, as :func:`metadata_entry` or :meth:`swiftsure.models.gguf.GGUFFile.metadata_entry` give them. An alignment
            other than 32 needs its own entry, ``general.alignment``, among them.
        tensors: in the order of the file.
        content: called once a tensor, in that order; one piece is in memory at a time.
        alignment: of each tensor's first byte.

    Returns:
        Bytes of the file.

    Raises:
        UsageError: ``path`` breaks a rule of :func:`require_new`.
        CapacityError: the file system has less room than the file needs.
        OSError: it cannot be written.
    """
    require_new(path, force=force)
    header = _header(entries, tensors, alignment)
    total = len(header) + sum(info.nbytes + -info.nbytes % alignment for info in tensors)
    free = shutil.disk_usage(path.parent).free
    if total > free:
        raise CapacityError(f"'{path}' needs {total} bytes, but its file system has {free} free")
    aside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(header)
            for info in tensors:
                _write_tensor(file, info, content(info), alignment)
            file.flush()
            os.fsync(file.fileno())
        require_new(path, force=force)  # again: it may have come to be meanwhile
        os.replace(aside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()
    return total


def _write_tensor(file: BinaryIO, info: TensorInfo, pieces: Iterable[NDArray[np.uint8]], alignment: int) -> None:
    written = 0
    for piece in pieces:
        file.write(np.ascontiguousarray(piece).data)
        written += piece.nbytes
    assert written == info.nbytes, f"tensor '{info.name}' was promised with {info.nbytes} bytes and given with {written}"
    file.write(bytes(-written % alignment))


def _header(entries: Sequence[bytes], tensors: Sequence[TensorInfo], alignment: int) -> bytes:
    parts = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(entries)), *entries]
    offset = 0
    for info in tensors:
        dims = info.shape[::-1]  # fastest first
        parts.append(_text(info.name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, _TYPE_IDS[info.type], offset))
        offset += info.nbytes + -info.nbytes % alignment
    header = b"".join(parts)
    return header + bytes(-len(header) % alignment)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw
