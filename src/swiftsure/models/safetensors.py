"""Weights in ``.safetensors`` files: one file, or several that ``model.safetensors.index.json`` names.

Tensors are read, never mapped, as those of a GGUF file are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelError, ModelFileError
from swiftsure.models.files import FileStamp
from swiftsure.models.json_files import read_json_object
from swiftsure.models.open_file import OpenFile
from swiftsure.models.safetensors_header import StoredTensor, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_MAX_NAME_BYTES = 255  # that file systems take


def weight_files(folder: Path) -> list[str]:
    """Names of the weights files of a folder, ascending, and of the index if there is one.

    ``model.safetensors`` comes before an index, as in the transformers library. Raises ModelFileError for an index that names a file
    outside the folder or one that is not there, and when the folder holds neither.
    """
    if (folder / SINGLE).is_file():
        return [SINGLE]
    if (folder / INDEX).is_file():
        return sorted({INDEX, *_weight_map(folder).values()})
    found = ", ".join(sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())[:8]) or "none"
    raise ModelFileError(f"{folder}: must hold {SINGLE} or {INDEX}; .safetensors files there: {found}")


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor -> file, as the index says."""
    path = folder / INDEX
    found: Any = read_json_object(path).get("weight_map")
    if not isinstance(found, dict) or not found or not all(isinstance(file, str) for file in found.values()):
        raise ModelFileError(f"{path}: 'weight_map' must be an object that names a file for each tensor")
    for file in sorted(set(found.values())):
        odd = Path(file).name != file or "\\" in file or not file.isprintable() or len(file.encode()) > _MAX_NAME_BYTES
        if odd or not file.endswith(".safetensors"):
            raise ModelFileError(f"{path}: shards must be .safetensors files of the folder itself, got {file!r}")
        if not (folder / file).is_file():
            raise ModelFileError(f"{path}: shard {file!r} is missing from the folder")
    return found


class SafetensorsFile:
    """One open file. Tensors may be read from several threads."""

    def __init__(self, path: Path) -> None:
        """Parses the header. Raises ModelFileError or UnsupportedModelError; each message starts with the path."""
        self.path = path
        file: OpenFile | None = None
        try:
            if not path.is_file():
                raise ModelFileError("no such file")
            file = OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self.tensors = read_header(file.fd, file.size)
        except (ModelError, OSError) as error:
            if file is not None:
                file.close()
            if isinstance(error, ModelError):
                raise type(error)(f"{path}: {error}") from None
            raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
        self._file = file
        self.stamp, self.size = file.stamp, file.size

    def read(self, name: str, start: int = 0, nbytes: int | None = None) -> NDArray[np.uint8]:
        """``nbytes`` of a tensor from its byte ``start`` on; by default the whole."""
        entry = self.tensors[name]
        return self._file.read(entry.offset + start, entry.nbytes if nbytes is None else nbytes, f"tensor '{name}'")

    def current_stamp(self) -> FileStamp:
        return self._file.current_stamp()

    def close(self) -> None:
        self._file.close()


class Shards:
    """All weights files of a folder as one."""

    def __init__(self, folder: Path) -> None:
        """Raises ModelFileError for files that do not hold what the index says, and as :class:`SafetensorsFile`."""
        self.folder = folder
        self.files: dict[str, SafetensorsFile] = {}
        self._place: dict[str, SafetensorsFile] = {}
        try:
            for file in weight_files(folder):
                if file != INDEX:
                    self._add(file)
            if SINGLE not in self.files:
                self._check_index()
        except BaseException:
            self.close()
            raise

    def _add(self, file: str) -> None:
        opened = self.files[file] = SafetensorsFile(self.folder / file)
        for name in opened.tensors:
            if name in self._place:
                raise ModelFileError(f"{self.folder}: tensor '{name}' lies in both {self._place[name].path.name} and {file}")
            self._place[name] = opened

    def _check_index(self) -> None:
        stated = _weight_map(self.folder)
        for name, file in stated.items():
            if name not in self.files[file].tensors:
                raise ModelFileError(f"{self.folder / INDEX}: says that tensor {name!r} lies in {file}, which does not hold it")
        for name, opened in self._place.items():
            if name not in stated:
                raise ModelFileError(f"{opened.path}: holds tensor '{name}', which {INDEX} does not name")

    def names(self) -> Iterator[str]:
        return iter(self._place)

    def __contains__(self, name: str) -> bool:
        return name in self._place

    def entry(self, name: str) -> StoredTensor:
        """KeyError without it."""
        return self._place[name].tensors[name]

    def read(self, name: str, start: int = 0, nbytes: int | None = None) -> NDArray[np.uint8]:
        return self._place[name].read(name, start, nbytes)

    def close(self) -> None:
        for file in self.files.values():
            file.close()
