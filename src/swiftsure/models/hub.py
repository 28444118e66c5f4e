"""Models from the Hugging Face hub: a revision becomes a commit, and the bytes of a commit never change without a word.

Files lie in the hub's own cache (``HF_HOME``, ``HF_HUB_CACHE``), where other programs find them and from where theirs are used. What they
were is recorded in ``hub/<org>--<name>/<commit>.json`` of Swiftsure's cache folder, and checked at every start. A commit that is named in
full and recorded is not asked about again; a branch is followed, and stays what it was where the hub cannot be reached.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from swiftsure.errors import DigestError, ModelError, ModelNotFoundError, UnsupportedModelError
from swiftsure.models import cache
from swiftsure.models.cache import Progress
from swiftsure.models.hub_files import choose_files, refuse_pickle

_DEFAULT_BRANCH = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFiles:
    """What of a repository is here. ``path``: the GGUF file, or the folder of a model in .safetensors files."""

    repo: str
    commit: str
    path: Path
    names: tuple[str, ...]  # in the repository; of a folder, all that were fetched
    source: str
    licence: str | None  # as the repository's card says
    named: bool  # whether the user named the file
    stated: Mapping[str, str]  # SHA-256 by name, as far as the hub states it

    def check(self, found: Mapping[str, str]) -> None:
        """Holds SHA-256 by name against what the hub states and against what the files of this commit were before, then records them.

        Raises DigestError.
        """
        known = _Record.read(self.repo, self.commit)
        shown = f"hf:{self.repo}@{self.commit}"
        for name, sha256 in found.items():
            before, stated = known.sha256.get(name), self.stated.get(name)
            if before is not None and stated is not None and before != stated:
                raise DigestError(f"{shown}: the hub now states SHA-256 {stated} for {name}, which was {before} under the same commit")
            if stated is not None and sha256 != stated:
                raise DigestError(f"{shown}: {name}: SHA-256 must be {stated} as the hub states, got {sha256}")
            if before is not None and sha256 != before:
                raise DigestError(f"{shown}: {name}: SHA-256 was {before} when it was first fetched, now it is {sha256}")
        default = known.default if self.named else self.names
        _Record(sha256=known.sha256 | dict(found), default=default, licence=self.licence or known.licence).write(
            self.repo, self.commit, known
        )


def branch_note(repo: str, revision: str | None, commit: str) -> tuple[str, ...]:
    """A word on what a name without a revision came to mean, since it may mean other bytes tomorrow."""
    if revision is not None:
        return ()
    return (f"hf:{repo} names no revision: branch {_DEFAULT_BRANCH} is used, now commit {commit}; pin it with hf:{repo}@{commit}",)


def licence_to_show(repo: str, revision: str | None, file: str | None) -> str | None:
    """The licence that the repository's card names, where a fetch is due; None: everything is here, or nobody can be asked now."""
    try:
        fetch(repo, revision, file, offline=True)
        return None
    except ModelError:
        pass
    try:
        from huggingface_hub import constants
    except ImportError:  # the fetch that follows says how to get it
        return None
    if constants.HF_HUB_OFFLINE:
        return None
    from swiftsure.models.hub_fetch import UnreachableError, look_up

    try:
        listing = look_up(repo, revision, f"hf:{repo}")
    except (UnreachableError, ModelError):  # the fetch that follows says it
        return None
    return listing.licence


def fetch(repo: str, revision: str | None, file: str | None, *, offline: bool, progress: Progress | None = None) -> HubFiles:
    """Finds or fetches a GGUF file, or the files of a folder where the repository holds no GGUF file and none is named.

    ``offline`` or ``HF_HUB_OFFLINE``: from the cache alone. ``progress``: bytes done and in all, of what is fetched. An interrupted fetch
    goes on where it broke off. Raises ModelNotFoundError, UnsupportedModelError, DigestError or, for trouble with network and disk,
    ModelError.
    """
    shown = f"hf:{repo}" + (f"@{revision}" if revision else "")
    if file is not None:
        refuse_pickle(file, shown)
    try:
        from huggingface_hub import constants
    except ImportError:
        raise ModelError("hf: names need the package huggingface_hub; install it with: pip install 'swiftsure[hub]'") from None
    store = Store(Path(constants.HF_HUB_CACHE), repo)
    if offline or constants.HF_HUB_OFFLINE:
        why = "offline was asked for" if offline else "HF_HUB_OFFLINE is set"
        return _from_cache(store, revision, file, shown, why)
    if revision is not None and _COMMIT.fullmatch(revision) and _Record.read(repo, revision).settles(file):
        with contextlib.suppress(ModelNotFoundError):  # files that are gone: asked for like the first time
            return _from_cache(store, revision, file, shown, "")
    from swiftsure.models.hub_fetch import UnreachableError, fetch_chosen, look_up

    try:
        listing = look_up(repo, revision, shown)
    except UnreachableError as error:
        return _from_cache(
            store, revision, file, shown, f"the hub cannot be reached ({error})", note="hub not reached: the commit of last time"
        )
    names = fetch_chosen(store, listing, file, shown, progress)
    store.remember_ref(revision or _DEFAULT_BRANCH, listing.commit)
    return HubFiles(
        repo=repo,
        commit=listing.commit,
        path=store.path(listing.commit, names),
        names=names,
        source=f"hf:{repo}",
        licence=listing.licence,
        named=file is not None,
        stated=store.stated(listing.commit, names) | listing.stated(names),
    )


class Store:
    """One repository in the hub's cache, whose layout is documented: blobs/<etag>, snapshots/<commit>/<file>, refs/<revision>."""

    def __init__(self, hub_cache: Path, repo: str) -> None:
        self.repo = repo
        self.folder = hub_cache / f"models--{repo.replace('/', '--')}"

    def snapshot(self, commit: str) -> Path:
        return self.folder / "snapshots" / commit

    def files(self, commit: str) -> list[str]:
        """Names of the files that are here, whole."""
        root = self.snapshot(commit)
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

    def path(self, commit: str, names: Sequence[str]) -> Path:
        """Of the one GGUF file, or of the folder."""
        return self.snapshot(commit) / names[0] if names[0].endswith(".gguf") else self.snapshot(commit)

    def stated(self, commit: str, names: Sequence[str]) -> dict[str, str]:
        """The cache names a large file's bytes by the SHA-256 that the hub stated."""
        blobs = {name: (self.snapshot(commit) / name).resolve().name for name in names}
        return {name: blob for name, blob in blobs.items() if re.fullmatch(r"[0-9a-f]{64}", blob)}

    def commit(self, revision: str) -> str | None:
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            commit = (self.folder / "refs" / revision).read_text().strip()
        except (OSError, ValueError):
            return None
        return commit if _COMMIT.fullmatch(commit) else None

    def remember_ref(self, revision: str, commit: str) -> None:
        """Best effort: a cache that is shared may be read-only, and the hub can be asked again."""
        if not _COMMIT.fullmatch(revision) and self.commit(revision) != commit:
            with contextlib.suppress(OSError):
                cache.write_whole(self.folder / "refs" / revision, commit)


def _from_cache(store: Store, revision: str | None, file: str | None, shown: str, why: str, *, note: str | None = None) -> HubFiles:
    """``why`` the hub is not asked, for the message where the cache has not got it."""
    commit = store.commit(revision or _DEFAULT_BRANCH)
    absent = ModelNotFoundError(f"{shown}: {file or 'its model'} is not in the cache ({store.folder}), and {why}")
    if commit is None:
        raise absent
    here, known = store.files(commit), _Record.read(store.repo, commit)
    if file is not None and file not in here:
        raise absent
    if file is None and known.default is not None:
        names = known.default
    else:
        try:
            names = choose_files(here, file, shown)
        except UnsupportedModelError:
            raise absent from None
    if not set(names) <= set(here):
        raise absent
    return HubFiles(
        repo=store.repo,
        commit=commit,
        path=store.path(commit, names),
        names=names,
        source=f"hf:{store.repo}" + (f" ({note})" if note else ""),
        licence=known.licence,
        named=file is not None,
        stated=store.stated(commit, names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """What the files of a commit were. ``default``: the files that its name alone means, once that was settled."""

    sha256: dict[str, str] = field(default_factory=dict)
    default: tuple[str, ...] | None = None
    licence: str | None = None

    @classmethod
    def read(cls, repo: str, commit: str) -> _Record:
        """Empty without a sound record."""
        try:
            found = json.loads(_record_path(repo, commit).read_text())
            return cls(
                sha256={str(name): str(sha256) for name, sha256 in found["sha256"].items()},
                default=tuple(map(str, found["default"])) if found["default"] else None,
                licence=str(found["licence"]) if found["licence"] else None,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls()

    def settles(self, file: str | None) -> bool:
        return file in self.sha256 if file is not None else self.default is not None

    def write(self, repo: str, commit: str, known: _Record) -> None:
        """Best effort where something is new: on a read-only cache the hub's own digests alone are checked."""
        if self == known:
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        facts = {
            "repo": repo,
            "commit": commit,
            "licence": self.licence,
            "default": self.default,
            "sha256": self.sha256,
            "recorded_at": now,
        }
        with contextlib.suppress(OSError):
            cache.write_whole(_record_path(repo, commit), json.dumps(facts, indent=2))


def _record_path(repo: str, commit: str) -> Path:
    return cache.home() / "hub" / repo.replace("/", "--") / f"{commit}.json"
