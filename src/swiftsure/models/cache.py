"""The cache folder: where model files live, which digests were computed, and who may write.

Layout under ``SWIFTSURE_HOME`` (default ``~/.cache/swiftsure``)::

    models/<name>/<file>       catalogue models, complete and checked
    downloads/                 what is on its way, kept for resumption
    digests/<key>.json         SHA-256 by path and file stamp (size, times, number), so that a warm start hashes nothing
    calibration/<key>.json     costs of rows by model and machine (see engine/calibration.py)
    packed/                    weights as the kernels stream them, bounded in size (see engine/packed_store.py)
    licences/<name>.json       which terms were agreed to, and when (see models/licences.py)
    hub/<org>--<name>/         what files of the Hugging Face hub were, by commit; they lie in the hub's own cache (see models/hub.py)
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from swiftsure.errors import ModelError, ModelFileError, UsageError
from swiftsure.models.files import FileStamp, file_stamp

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_CHUNK_BYTES = 1 << 22


def home() -> Path:
    """The cache folder; not created here."""
    try:
        return Path(os.environ.get("SWIFTSURE_HOME") or Path.home() / ".cache" / "swiftsure").expanduser().absolute()
    except RuntimeError:  # "~name" of a user that does not exist
        raise UsageError(f"SWIFTSURE_HOME must name a folder, got {os.environ.get('SWIFTSURE_HOME')!r}, whose user is unknown") from None


def hash_file(path: Path, progress: Progress | None = None) -> str:
    """SHA-256 of a file, lower-case hexadecimal."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            total, done = os.fstat(file.fileno()).st_size, 0
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None
    return digest.hexdigest()


def known_digest(path: Path) -> str | None:
    """The recorded SHA-256, if the file still has the stamp it was recorded with."""
    try:
        record = json.loads(_record_path(path).read_text())
        return str(record["sha256"]) if record["stamp"] == list(file_stamp(path.stat())) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent or unreadable: the digest is computed anew


def remember_digest(path: Path, sha256: str, stamp: FileStamp) -> None:
    """``stamp``: the file before its bytes were hashed. Best effort: on a read-only cache the next start hashes again."""
    record = {"path": str(path.resolve()), "stamp": stamp, "sha256": sha256}
    with contextlib.suppress(OSError):
        write_whole(_record_path(path), json.dumps(record))


def digest_of(path: Path, progress: Progress | None = None, *, anew: bool = False) -> tuple[str, FileStamp]:
    """SHA-256 of a file, and the file's stamp when it had it; from the record where that is still good, unless ``anew``.

    Raises ModelFileError when the file cannot be read or is being written to.
    """
    stamp = stamp_of(path)
    known = None if anew else known_digest(path)
    if known is not None:
        return known, stamp
    sha256 = hash_file(path, progress)
    if stamp_of(path) != stamp:
        raise ModelFileError(f"{path}: the file changed while its SHA-256 was taken")
    remember_digest(path, sha256, stamp)
    return sha256, stamp


def stamp_of(path: Path) -> FileStamp:
    """Raises ModelFileError when the file is gone."""
    try:
        return file_stamp(path.stat())
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror or error}") from None


def write_whole(path: Path, text: str) -> None:
    """Replaces a small file at once: a reader sees the old or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    aside.write_text(text)
    os.replace(aside, path)


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """One process at a time fetches a model; the others wait, and then find it there."""
    import fcntl

    folder = home() / "downloads"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / f"{name}.lock").open("w")
    except OSError as error:
        raise ModelError(f"the cache folder {home()} cannot be written ({error.strerror or error}); set SWIFTSURE_HOME") from None
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.1)  # instead of a blocking call, so that Ctrl-C ends the wait
        yield


def _record_path(path: Path) -> Path:
    return home() / "digests" / (hashlib.sha256(str(path.resolve()).encode(errors="surrogateescape")).hexdigest()[:32] + ".json")
