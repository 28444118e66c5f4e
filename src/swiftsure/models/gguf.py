"""A GGUF file: typed metadata, and tensors read from disk."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from swiftsure.models.files import HEAD_BYTES, stand_in
from swiftsure.models.gguf_header import StringArray, Value, parse_header
from swiftsure.models.open_file import OpenFile
from swiftsure.models.tensors import TensorInfo, byte_span

# File kinds that people pass by mistake: first bytes or suffix -> what it is.
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_REQUIRED = object()


class Metadata:
    """Key-value pairs of a header, read by type; an error names the key, the rule and what is there."""

    def __init__(self, values: dict[str, Value]) -> None:
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, key: str) -> Value | None:
        return self._values.get(key)

    def integer(self, key: str, default: int | object = _REQUIRED) -> int:
        value = self._typed(key, int, "an integer", default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelFileError(f"metadata key '{key}' must be an integer, got {value!r}")
        return value

    def count(self, key: str) -> int:
        """An integer of at least 1."""
        value = self.integer(key)
        if value < 1:
            raise ModelFileError(f"metadata key '{key}' must be at least 1, got {value}")
        return value

    def number(self, key: str, default: float | object = _REQUIRED) -> float:
        value = self._typed(key, (int, float), "a number", default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ModelFileError(f"metadata key '{key}' must be a number, got {value!r}")
        return float(value)

    def boolean(self, key: str, default: bool | object = _REQUIRED) -> bool:
        return bool(self._typed(key, bool, "a boolean", default))

    def text(self, key: str, default: str | object = _REQUIRED) -> str:
        return str(self._typed(key, str, "a string", default))

    def strings(self, key: str) -> StringArray:
        value = self._typed(key, StringArray, "an array of strings", _REQUIRED)
        if not isinstance(value, StringArray):
            raise ModelFileError(f"metadata key '{key}' must be an array of strings")
        return value

    def integers(self, key: str) -> NDArray[np.generic]:
        value = self._typed(key, np.ndarray, "an array of integers", _REQUIRED)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
            raise ModelFileError(f"metadata key '{key}' must be an array of integers")
        return value

    def numbers(self, key: str) -> NDArray[np.generic]:
        value = self._typed(key, np.ndarray, "an array of numbers", _REQUIRED)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
            raise ModelFileError(f"metadata key '{key}' must be an array of numbers")
        return value

    def _typed(self, key: str, kind: type | tuple[type, ...], article: str, default: object) -> object:
        value = self._values.get(key, default)
        if value is _REQUIRED:
            raise ModelFileError(f"metadata key '{key}' is missing")
        if not isinstance(value, kind):
            shown = f"an array of {len(value)}" if isinstance(value, StringArray | np.ndarray | list) else repr(value)
            raise ModelFileError(f"metadata key '{key}' must be {article}, got {shown}")
        return value


class GGUFFile:
    """An open GGUF file; a :class:`~swiftsure.models.model_file.ModelFile`. Context manager.

    The header is mapped while it is parsed; tensors are read, see :class:`~swiftsure.models.open_file.OpenFile`.
    """

    permuted_rope = True
    unsupported: tuple[str, ...] = ()  # the architecture judges its keys

    def __init__(self, path: str | Path) -> None:
        """Parses the header. Raises ModelNotFoundError, ModelFileError or UnsupportedModelError; each message starts with the path."""
        self.path = Path(path)
        self._file = _open_file(self.path)
        self.stamp, self.size = self._file.stamp, self._file.size
        try:
            with mmap.mmap(self._file.fd, 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                header = parse_header(view)
        except (ModelFileError, UnsupportedModelError) as error:
            self.close()
            raise type(error)(f"{self.path}: {error}") from None
        except OSError as error:
            self.close()
            raise ModelFileError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        self.version = header.version
        self.alignment = header.alignment
        self.metadata = Metadata(header.metadata)
        self._spans = header.metadata_spans
        self._tensors = header.tensors

    @property
    def format(self) -> str:
        return f"GGUF {self.version}"

    def names(self) -> Iterator[str]:
        return iter(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def metadata_entry(self, key: str) -> bytes:
        """Key, type and value as they stand in the file, to be copied: a parsed value no longer tells its type. KeyError without it."""
        start, end = self._spans[key]
        return self._file.read(start, end - start, f"metadata key '{key}'").tobytes()

    def info(self, name: str) -> TensorInfo:
        entry = self._tensors.get(name)
        if entry is None:
            raise ModelFileError(f"{self.path}: tensor '{name}' is missing")
        return TensorInfo(entry.name, entry.type, entry.shape, entry.nbytes)

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        start, nbytes = byte_span(self.info(name), rows)
        return self._file.read(self._tensors[name].offset + start, nbytes, f"tensor '{name}'")

    def check_unchanged(self) -> None:
        """Raises ModelFileError if the file was written to since it was opened, so that what was read may be of either state."""
        if self._file.current_stamp() != self.stamp:
            raise ModelFileError(f"{self.path}: the file changed while it was being loaded")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _open_file(path: Path) -> OpenFile:
    if not path.exists():
        raise ModelNotFoundError(f"{path}: no such file")
    if not path.is_file():
        raise ModelNotFoundError(f"{path}: not a file")
    if path.suffix.lower() in _PICKLE_SUFFIXES:
        raise UnsupportedModelError(
            f"{path}: '{path.suffix}' files are Python pickles, which can run code when loaded; use GGUF or .safetensors"
        )
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if head[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04"):
                raise UnsupportedModelError(f"{path}: looks like a Python pickle, which can run code when loaded; use GGUF or .safetensors")
            if path.suffix.lower() == ".safetensors":
                raise UnsupportedModelError(
                    f"{path}: a .safetensors file holds weights alone; name the folder, which must hold config.json too"
                )
            if (found := stand_in(head)) is not None:
                raise ModelFileError(f"{path}: this is {found}")
            if len(head) < 24:
                raise ModelFileError(f"{path}: header: a GGUF file has at least 24 bytes, this one {len(head)}")
            return OpenFile(path, os.dup(file.fileno()))
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
