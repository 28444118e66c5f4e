"""Packed weights on disk, so that a warm start reads what an earlier one packed.

One file a key under ``packed/`` of the cache folder: 4096 bytes of header (JSON), then the arena's bytes. Nothing in it is trusted: a file
counts only when its header says exactly what is wanted, its size is exact, and the checksum of all bytes read is the header's. Any other
file is refused and written anew. It is read into the arena's huge pages, not mapped: docs/decisions/0014.

Disk use is bounded: together the files hold at most ``LIMIT_BYTES``, the least recently used go first, and ``FREE_BYTES`` of the disk stay
free. Small models are not kept, packing them takes no time worth a file. A folder that cannot be written is no fault: loading goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swiftsure import kernels
from swiftsure.models import cache

LIMIT_BYTES = 8 << 30
FREE_BYTES = 1 << 30
LEAST_BYTES = 16 << 20
_HEADER_BYTES = 4096
_FORMAT = 1
_STALE_S = 3600.0  # a file on its way that is older than this was left by a process that died


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedKey:
    """What decides every packed byte."""

    weights_sha256: str
    variant: str = "file"  # how: "file" keeps the types of the file; other names say what was requantized to what
    layout: int = kernels.PACKED_LAYOUT

    @property
    def file_name(self) -> str:
        return hashlib.sha256(f"{self.weights_sha256} {self.layout} {self.variant}".encode()).hexdigest()[:40] + ".packed"


class PackedStore:
    """The file of one key. ``phases_s`` and ``notes`` say what happened: what was read, refused or kept, and why."""

    def __init__(
        self, key: PackedKey, *, folder: Path | None = None, limit_bytes: int = LIMIT_BYTES, least_bytes: int = LEAST_BYTES
    ) -> None:
        """``folder``: by default ``packed`` of the cache folder."""
        self.key = key
        self.folder = cache.home() / "packed" if folder is None else folder
        self.phases_s: dict[str, float] = {}
        self.notes: list[str] = []
        self._limit_bytes = limit_bytes
        self._least_bytes = least_bytes

    @property
    def path(self) -> Path:
        return self.folder / self.key.file_name

    @property
    def present(self) -> bool:
        """Whether there is a file of this key; only reading it tells whether it is good."""
        return self.path.is_file()

    def read(self, arena: kernels.WeightArena, contents: Iterable[str], *, threads: int) -> bool:
        """Fills an arena in which memory for ``contents`` (one text a matrix, in order) was handed out. False: the arena is zero again."""
        started = time.perf_counter()
        wanted = self._header(arena, contents)
        try:
            with self.path.open("rb") as file:
                header = _parse_header(file.read(_HEADER_BYTES))
                checksum = header.pop("checksum", None)
                if header != wanted:
                    raise ValueError("its header names other contents")
                size, due = os.fstat(file.fileno()).st_size, _HEADER_BYTES + arena.used_bytes
                if size != due:
                    raise ValueError(f"it must have {due} bytes and has {size}")
                if f"{arena.read(file.fileno(), _HEADER_BYTES, threads):016x}" != checksum:
                    raise ValueError("its checksum is wrong")
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            arena.clear()
            self.notes.append(f"packed weights in {self.path} refused: {_reason(error)}; packed anew")
            self.phases_s["packed_refused_s"] = time.perf_counter() - started
            return False
        with contextlib.suppress(OSError):
            os.utime(self.path)  # used now: the last to go
        self.phases_s["packed_read_s"] = time.perf_counter() - started
        return True

    def keep(self, arena: kernels.WeightArena, contents: Iterable[str]) -> None:
        """Writes the arena aside and renames it into place. What the system refuses is noted, no more."""
        size = _HEADER_BYTES + arena.used_bytes
        if arena.used_bytes < self._least_bytes or size > self._limit_bytes:
            return
        import shutil

        started = time.perf_counter()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(size)
            if shutil.disk_usage(self.folder).free < size + FREE_BYTES:
                raise OSError(0, f"less than {(size + FREE_BYTES) / 1e9:.1f} GB are free")
            self._write(arena, self._header(arena, contents))
        except OSError as error:
            self.notes.append(f"packed weights not kept in {self.folder}: {_reason(error)}")
        self.phases_s["packed_keep_s"] = time.perf_counter() - started

    def _header(self, arena: kernels.WeightArena, contents: Iterable[str]) -> dict[str, Any]:
        """All but the checksum."""
        return {
            "format": _FORMAT,
            "weights_sha256": self.key.weights_sha256,
            "variant": self.key.variant,
            "layout": self.key.layout,
            "contents": hashlib.sha256("\n".join(contents).encode()).hexdigest(),
            "bytes": arena.used_bytes,
            "byte_order": sys.byteorder,
        }

    def _write(self, arena: kernels.WeightArena, header: dict[str, Any]) -> None:
        aside = self.path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
        handle = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            checksum = f"{arena.write(handle, _HEADER_BYTES):016x}"
            text = json.dumps(header | {"checksum": checksum}).encode()
            os.pwrite(handle, text.ljust(_HEADER_BYTES - 1) + b"\n", 0)
            os.replace(aside, self.path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)

    def _make_room(self, size: int) -> None:
        """Removes the least recently used until ``size`` more bytes keep within the limit, and what died on its way."""
        kept: list[tuple[int, int, Path]] = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process makes room too
                status = path.stat()
                if path.suffix == ".part" and time.time() - status.st_mtime > _STALE_S:
                    path.unlink()
                elif path.suffix == ".packed" and path != self.path:
                    kept.append((status.st_mtime_ns, status.st_size, path))
        total = sum(held for _, held, _ in kept)
        for _, held, path in sorted(kept):
            if total + size <= self._limit_bytes:
                break
            path.unlink(missing_ok=True)
            total -= held


def _parse_header(raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("its header is damaged") from None
    if not isinstance(header, dict):
        raise ValueError("its header is damaged")
    return header


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
