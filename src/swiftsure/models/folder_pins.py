"""The pin of a folder of ``.safetensors`` files: a digest for each file, and one over their list."""

from __future__ import annotations

import re
from pathlib import Path

from swiftsure.errors import DigestError
from swiftsure.models import cache
from swiftsure.models.cache import Progress
from swiftsure.models.files import FileStamp, ModelFiles, folder_digest
from swiftsure.models.hf_folder import folder_files


def resolve_folder(folder: Path, progress: Progress | None = None) -> ModelFiles:
    """Takes the digests of the files that decide what the model is; of files that were hashed before and not changed since, their records.

    Raises as :func:`swiftsure.models.hf_folder.folder_files`.
    """
    folder = folder.absolute()
    digests, stamps = _digests(folder, folder_files(folder), progress, anew=False)
    return ModelFiles(
        name=re.sub(r"\s+", "_", folder.resolve().name),  # as ACTIVE lines hold no blanks
        path=folder,
        sha256=folder_digest(digests),
        source="path",
        stamp=tuple(number for stamp in stamps for number in stamp),
        file_sha256=digests,
    )


def verify_folder(files: ModelFiles, progress: Progress | None = None) -> ModelFiles:
    """Hashes every file of a resolved folder anew. Raises DigestError, with the file, when its bytes are not those recorded."""
    assert files.file_sha256 is not None, "a folder has a digest for each file"
    found, _ = _digests(files.path, list(files.file_sha256), progress, anew=True)
    for name, recorded in files.file_sha256.items():
        if found[name] != recorded:
            raise DigestError(
                f"{files.path / name}: SHA-256 was {recorded}, now it is {found[name]}, though size and time of change are the same"
            )
    return files


def _digests(folder: Path, names: list[str], progress: Progress | None, *, anew: bool) -> tuple[dict[str, str], list[FileStamp]]:
    """``progress`` runs over the bytes of all files."""
    total = sum(cache.stamp_of(folder / name)[0] for name in names)
    digests: dict[str, str] = {}
    stamps: list[FileStamp] = []
    done = 0

    def advance(of_file: int, _: int) -> None:
        if progress is not None:
            progress(done + of_file, total)

    for name in names:
        digests[name], stamp = cache.digest_of(folder / name, advance, anew=anew)
        stamps.append(stamp)
        done += stamp[0]
    return digests, stamps
