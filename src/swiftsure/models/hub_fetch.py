"""Talks to the hub: what a repository holds at a commit, and its files.

Through huggingface_hub, which knows endpoints, logins and the cache; but large files are streamed here, because the package throws away
what a broken download had brought.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from swiftsure.errors import DigestError, ModelError, ModelFileError, ModelNotFoundError
from swiftsure.models import cache
from swiftsure.models.cache import Progress, hash_file
from swiftsure.models.hub_files import INDEX, choose_files
from swiftsure.models.json_files import read_json_object
from swiftsure.models.package_index import trust
from swiftsure.models.transfer import fetch_file

if TYPE_CHECKING:
    from swiftsure.models.hub import Store

_TIMEOUT_S = 30.0
_LISTING = "the repository"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class UnreachableError(Exception):
    """No answer from the hub: what is cached may serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A repository at one commit: size in bytes by file name, and SHA-256 of the large files."""

    repo: str
    commit: str
    sizes: dict[str, int]
    sha256: dict[str, str]
    licence: str | None

    def stated(self, names: Sequence[str]) -> dict[str, str]:
        return {name: self.sha256[name] for name in names if name in self.sha256}


def look_up(repo: str, revision: str | None, shown: str) -> Listing:
    """Asks what the revision is now. Raises UnreachableError where no answer comes, else as :func:`fetch_chosen`."""
    import huggingface_hub

    with _told(shown, _LISTING):
        info = huggingface_hub.HfApi().model_info(repo, revision=revision or "main", files_metadata=True, timeout=_TIMEOUT_S)
    commit = info.sha
    if not isinstance(commit, str) or not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ModelError(f"{shown}: the hub answered with no commit, got {commit!r}")
    if revision is not None and re.fullmatch(r"[0-9a-f]{40}", revision) and commit != revision:
        raise ModelError(f"{shown}: the hub answered with another commit, {commit}")
    siblings = [sibling for sibling in info.siblings or [] if _stays_inside(sibling.rfilename)]
    stored = {sibling.rfilename: sibling.lfs["sha256"] for sibling in siblings if sibling.lfs}
    return Listing(
        repo=repo,
        commit=commit,
        sizes={sibling.rfilename: sibling.size if isinstance(sibling.size, int) else 0 for sibling in siblings},
        sha256={name: digest for name, digest in stored.items() if isinstance(digest, str) and _SHA256.fullmatch(digest)},
        licence=_licence(info.card_data),
    )


def fetch_chosen(store: Store, listing: Listing, file: str | None, shown: str, progress: Progress | None) -> tuple[str, ...]:
    """Fetches what is not here of the chosen files, and returns their names: an index's shards are known once the index is here."""
    names = choose_files(list(listing.sizes), file, shown)
    with cache.lock(f"hub-{listing.repo.replace('/', '--')}"):
        if INDEX in names:
            _fetch_all(store, listing, (INDEX,), shown, None)
            names = (*names, *_shards(store.snapshot(listing.commit) / INDEX, listing, shown))
        _fetch_all(store, listing, names, shown, progress)
    return names


def _fetch_all(store: Store, listing: Listing, names: Sequence[str], shown: str, progress: Progress | None) -> None:
    missing = [name for name in names if not (store.snapshot(listing.commit) / name).is_file()]
    total, done = sum(listing.sizes[name] for name in missing), 0
    _require_room(store, listing, missing, shown)

    def advance(of_file: int, _: int) -> None:
        if progress is not None:
            progress(min(done + of_file, total), total)

    for name in missing:
        with _told(shown, name):
            _fetch_one(store, listing, name, advance)
        done += listing.sizes[name]
        advance(0, 0)


def _require_room(store: Store, listing: Listing, missing: Sequence[str], shown: str) -> None:
    """Before a disk is filled with half a model."""
    parts = [store.folder / "blobs" / f"{listing.sha256.get(name)}.part" for name in missing]
    due = sum(listing.sizes[name] for name in missing) - sum(part.stat().st_size for part in parts if part.is_file())
    place = next(path for path in (store.folder, *store.folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    if due > free:
        raise ModelError(
            f"{shown}: {due / 1e6:,.1f} MB are still to be fetched, and {free / 1e6:,.1f} MB are free in {place}; "
            "HF_HOME or HF_HUB_CACHE names a cache elsewhere"
        )


def _fetch_one(store: Store, listing: Listing, name: str, progress: Progress) -> None:
    import huggingface_hub

    url = huggingface_hub.hf_hub_url(listing.repo, name, revision=listing.commit)
    metadata = huggingface_hub.get_hf_file_metadata(url, timeout=_TIMEOUT_S)
    etag = metadata.etag or ""
    blob = store.folder / "blobs" / etag
    if _SHA256.fullmatch(etag) and not blob.exists():
        stated = listing.sha256.get(name, etag)
        if stated != etag:
            raise DigestError(f"the hub states SHA-256 {stated} in its list, and {etag} beside the file")
        blob.parent.mkdir(parents=True, exist_ok=True)
        _stream_blob(metadata.location, blob, _login(metadata.location, url), progress, listing.sizes[name] or None)
    with _quiet():  # finds the blob, or fetches a small file, and puts it into the snapshot
        path = Path(huggingface_hub.hf_hub_download(listing.repo, name, revision=listing.commit))
    if re.fullmatch(r"[0-9a-f]{40}", etag) and _git_digest(path) != etag:
        path.unlink()
        blob.unlink(missing_ok=True)
        raise DigestError(f"the bytes that the hub sent are not those of its git object {etag}")


def _login(location: str, url: str) -> dict[str, str]:
    """The hub's token, for the hub's own host alone: elsewhere an address bears its own signature."""
    from huggingface_hub import constants, get_token

    if urlsplit(location).netloc != urlsplit(url).netloc or constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return {}
    token = get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def _stream_blob(url: str, blob: Path, headers: dict[str, str], progress: Progress, size_bytes: int | None) -> None:
    """The blob's name is its SHA-256."""
    import httpx

    def check(whole: Path) -> str | None:
        got = hash_file(whole)
        return None if got == blob.name else f"SHA-256 must be {blob.name} as the hub states, got {got}"

    with httpx.Client(verify=trust(), follow_redirects=True, timeout=60.0) as client:
        fetch_file(client, url, blob, check=check, headers=headers, progress=progress, size_bytes=size_bytes)
    cache.remember_digest(blob, blob.name, cache.stamp_of(blob))


def _shards(index: Path, listing: Listing, shown: str) -> tuple[str, ...]:
    found: Any = read_json_object(index).get("weight_map")
    shards = sorted({str(shard) for shard in found.values()}) if isinstance(found, dict) else []
    if not shards:
        raise ModelFileError(f"{shown}: {INDEX}: 'weight_map' must be an object that names a file for each tensor")
    for shard in shards:
        if shard not in listing.sizes or "/" in shard or not shard.endswith(".safetensors"):
            raise ModelFileError(f"{shown}: {INDEX} names {shard!r}, which is no .safetensors file of the repository")
    return tuple(shards)


def _git_digest(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _stays_inside(name: str) -> bool:
    return isinstance(name, str) and not name.startswith("/") and ".." not in name.split("/") and "\\" not in name and name.isprintable()


def _licence(card: Any) -> str | None:
    stated = getattr(card, "license", None)
    return ", ".join(stated) if isinstance(stated, list) else stated if isinstance(stated, str) else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the package's own bars off the terminal: small files need none, and ours is there."""
    utils: Any = import_module("huggingface_hub.utils")
    if utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


@contextlib.contextmanager
def _told(shown: str, what: str) -> Iterator[None]:
    """The package's errors as ours, with the hub's own words."""
    from huggingface_hub import errors

    try:
        yield
    except DigestError as error:
        raise DigestError(f"{shown}: {what}: {error}") from None
    except ModelError:
        raise
    except errors.GatedRepoError as error:
        raise ModelError(f"{shown}: the hub refuses it: {_words(error)} (log in with 'hf auth login', or set HF_TOKEN)") from None
    except errors.RepositoryNotFoundError as error:
        raise ModelNotFoundError(f"{shown}: no such repository on the hub, or it needs a login: {_words(error)}") from None
    except errors.RevisionNotFoundError:
        raise ModelNotFoundError(f"{shown}: the repository has no such revision") from None
    except errors.LocalEntryNotFoundError as error:
        raise ModelError(f"{shown}: {what} cannot be fetched: {_words(error)}") from None
    except errors.EntryNotFoundError:
        raise ModelNotFoundError(f"{shown}: the repository has no file {what}") from None
    except Exception as error:  # the transports below raise their own kinds, which differ between versions of the package
        status = getattr(getattr(error, "response", None), "status_code", None)
        if what == _LISTING and status in (401, 404):  # what the hub says to strangers, whether a repository is private or not there
            raise ModelNotFoundError(f"{shown}: no such repository on the hub, or it needs a login: {_words(error)}") from None
        if what == _LISTING and (_no_connection(error) if status is None else int(status) >= 500):
            raise UnreachableError(_words(error)) from None
        raise ModelError(f"{shown}: {what} cannot be fetched: {_words(error)}") from None


def _no_connection(error: Exception) -> bool:
    """Whether there was no connection or no reply in time, whichever transport says so."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"TransportError", "ConnectionError", "ConnectError", "Timeout", "TimeoutException"})


def _words(error: Exception) -> str:
    """What the hub said, what the system says, else the first line of the error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    said = getattr(error, "server_message", None)
    lines = (said or str(error)).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
