"""Files from the Hugging Face hub, through its own package."""

from __future__ import annotations

import re
from pathlib import Path

from swiftsure.errors import ModelError, ModelNotFoundError, UnsupportedModelError


def fetch(repo: str, revision: str | None, file: str | None, *, folder: Path, offline: bool) -> tuple[Path, str | None, str | None]:
    """Path of the file, commit it came from, and its SHA-256 where the hub states one.

    Without ``file`` the repository must hold exactly one GGUF file. Raises ModelNotFoundError, UnsupportedModelError or, for trouble with
    network and disk, ModelError.
    """
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError:
        raise ModelError("hf: names need the package huggingface_hub; install it with: pip install 'swiftsure[hub]'") from None

    shown = f"hf:{repo}" + (f"@{revision}" if revision else "")
    if offline:
        path = _find_in_cache(repo, revision, file, folder, shown)
        return path, _commit(path), _stated_sha256(path)
    try:
        if file is None:
            file = _only_gguf(huggingface_hub.list_repo_files(repo, revision=revision), shown)
        path = Path(huggingface_hub.hf_hub_download(repo, file, revision=revision, cache_dir=folder))
    except errors.RepositoryNotFoundError:
        raise ModelNotFoundError(f"{shown}: no such repository on the hub, or it needs a login") from None
    except errors.RevisionNotFoundError:
        raise ModelNotFoundError(f"{shown}: the repository has no such revision") from None
    except errors.LocalEntryNotFoundError as error:
        raise ModelError(f"{shown}: {file} cannot be fetched: {_first_line(error)}") from None
    except errors.EntryNotFoundError:
        raise ModelNotFoundError(f"{shown}: the repository has no file {file}") from None
    except Exception as error:  # the transports below raise their own kinds, which differ between versions of the package
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{shown}: cannot be fetched: {_first_line(error)}") from None
    return path, _commit(path), _stated_sha256(path)


def _find_in_cache(repo: str, revision: str | None, file: str | None, folder: Path, shown: str) -> Path:
    """Reads the cache's folders alone: a download that is told to stay local still asks the hub about telemetry."""
    import huggingface_hub
    from huggingface_hub import errors

    try:
        repos = huggingface_hub.scan_cache_dir(folder).repos
    except (errors.CacheNotFound, ValueError):
        repos = frozenset()
    for cached in repos:
        for known in cached.revisions if cached.repo_id == repo else ():
            if revision == known.commit_hash or (revision or "main") in known.refs:
                files = {str(f.file_path.relative_to(known.snapshot_path)): f.file_path for f in known.files}
                name = file if file is not None else _only_gguf(list(files), shown)
                if name in files:
                    return Path(files[name])
    raise ModelNotFoundError(f"{shown}: {file or 'its GGUF file'} is not in the cache ({folder}), and offline was asked for")


def _only_gguf(files: list[str], shown: str) -> str:
    found = sorted(name for name in files if name.endswith(".gguf"))
    if not found:
        raise UnsupportedModelError(f"{shown}: the repository holds no GGUF file, the one kind this build reads")
    if len(found) > 1:
        raise ModelNotFoundError(f"{shown}: say which file, as {shown}/FILE: {', '.join(found)}")
    return found[0]


def _commit(path: Path) -> str | None:
    parts = path.parts
    return parts[parts.index("snapshots") + 1] if "snapshots" in parts else None


def _stated_sha256(path: Path) -> str | None:
    """The hub's cache names a large file's bytes by their SHA-256."""
    name = path.resolve().name
    return name if re.fullmatch(r"[0-9a-f]{64}", name) else None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
