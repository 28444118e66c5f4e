"""The page at ``/``: files as they are, sent with headers that let a browser run these and nothing else.

It shows no more than a client may ask for: what it draws comes from ``/v1/chat/completions`` and ``/v1/swiftsure/events``, with the user's
key where the server has keys. The files themselves hold nothing of the server and need no key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from swiftsure.serve.origin import PAGE_FILES
from swiftsure.serve.service import Service

FILES = Path(__file__).parent / "files"
INDEX = "index.html"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asked for again each time, answered 304 while it is the same
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    content: bytes
    media_type: str
    etag: str


def read_files(folder: Path = FILES) -> dict[str, PageFile]:
    """By name. Read once: what is sent never depends on a path that a client wrote."""
    files = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.name] = PageFile(content=content, media_type=_TYPES[path.suffix], etag=etag)
    return files


def router(service: Service) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    files = read_files()

    @routes.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return _answer(request, files[INDEX])

    @routes.api_route(PAGE_FILES + "{name}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "the page has no such file")
        return _answer(request, files[name])

    return routes


def _answer(request: Request, file: PageFile) -> Response:
    headers = {**HEADERS, "etag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
