"""One file over HTTP: resumed where an earlier attempt broke off, checked, then put in its place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from swiftsure.errors import DigestError
from swiftsure.models.cache import Progress

if TYPE_CHECKING:
    import httpx

_ATTEMPTS = 4
_TRY_AGAIN = (408, 425, 429)  # of the answers that blame the client, those that pass


def fetch_file(
    client: httpx.Client,
    url: str,
    target: Path,
    *,
    check: Callable[[Path], str | None],
    headers: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    size_bytes: int | None = None,
) -> None:
    """Fetches to ``<target>.part``, on from what an earlier attempt left there, and renames at the end.

    ``check``: what is wrong with the bytes of a file that is whole, or None. ``size_bytes``: what it must have, where that is known; a
    server that sends more is not listened to. Raises DigestError with the words of either, httpx's errors, and OSError.
    """
    import httpx

    part = target.with_name(target.name + ".part")
    wrong = ""
    for attempt in range(_ATTEMPTS):
        resumed = part.exists() and part.stat().st_size > 0
        try:
            _stream(client, url, part, headers or {}, progress, size_bytes)
        except httpx.HTTPError as error:
            if attempt + 1 == _ATTEMPTS or _final(error):
                raise
            time.sleep(0.3 * 2**attempt)
            continue
        more = size_bytes is not None and part.stat().st_size > size_bytes
        fault = f"it must have {size_bytes:,} bytes as stated, and the server sends more" if more else check(part)
        if fault is None:
            os.replace(part, target)
            return
        wrong = fault
        part.unlink()
        if not resumed:  # what was left behind may have been the fault; a fresh copy has no such excuse
            break
    raise DigestError(wrong)


def _final(error: httpx.HTTPError) -> bool:
    """Whether asking again would bring the same answer."""
    import httpx

    if not isinstance(error, httpx.HTTPStatusError):
        return False
    status = error.response.status_code
    return 400 <= status < 500 and status not in _TRY_AGAIN


def _stream(
    client: httpx.Client, url: str, part: Path, headers: Mapping[str, str], progress: Progress | None, size_bytes: int | None
) -> None:
    import httpx

    have = part.stat().st_size if part.exists() else 0
    asked = {**headers, "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", url, headers=asked) as answer:
        if answer.status_code == 416:  # nothing follows what is there: the digest will say whether it is whole
            return
        answer.raise_for_status()
        resumes = answer.status_code == 206 and answer.headers.get("content-range", "").startswith(f"bytes {have}-")
        done = have if resumes else 0
        total = done + int(answer.headers.get("content-length") or 0)
        with part.open("ab" if resumes else "wb") as file:
            for chunk in answer.iter_raw():  # as they arrive: what a broken connection had brought is kept
                file.write(chunk)
                done += len(chunk)
                if size_bytes is not None and done > size_bytes:
                    return
                if progress is not None:
                    progress(done, max(total, done))
        if done < total:
            raise httpx.RemoteProtocolError(f"the connection ended after {done} of {total} bytes")
