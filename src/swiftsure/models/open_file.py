"""A file that stays open while a model is: its bytes by offset, and whether it is still the same file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError
from swiftsure.models.files import FileStamp, file_stamp
from swiftsure.models.tensors import read_bytes


class OpenFile:
    """Read, never mapped: a mapped file that somebody cuts short ends the process with a signal, a read ends with an error. Reads may come
    from several threads."""

    def __init__(self, path: Path, fd: int) -> None:
        """Takes the descriptor over; ``path`` names the file in messages. Raises OSError, after closing it."""
        self.path = path
        self._fd: int | None = fd
        try:
            self.stamp = self.current_stamp()
        except BaseException:
            self.close()
            raise
        self.size = self.stamp[0]

    @property
    def fd(self) -> int:
        """Raises ModelFileError when the file is closed."""
        if self._fd is None:
            raise ModelFileError(f"{self.path}: the file is closed")
        return self._fd

    def read(self, offset: int, nbytes: int, what: str) -> NDArray[np.uint8]:
        """Bytes [offset, offset + nbytes). Raises ModelFileError that names the path and ``what`` when there are fewer."""
        return read_bytes(self.fd, offset, nbytes, f"{self.path}: {what}")

    def current_stamp(self) -> FileStamp:
        """As it is now; ``stamp`` is as it was when the file was opened."""
        return file_stamp(os.fstat(self.fd))

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
