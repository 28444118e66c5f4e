"""A package index on this machine, which misbehaves when asked to."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class LocalServer:
    """Answers by exact path (the query apart). ``log`` holds "METHOD path range" of every request, in order."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.types: dict[str, str] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.status: Callable[[str, str], int | None] = lambda path, agent: None  # a fault to answer with instead
        self.ranges = True
        self.cut_after: list[int] = []  # for the next downloads: bytes after which the connection ends
        self.log: list[str] = []
        self.url = ""

    def put(self, path: str, data: bytes | str, kind: str = "application/octet-stream", **headers: str) -> None:
        self.files[path] = data.encode() if isinstance(data, str) else data
        self.types[path] = kind
        self.headers[path] = headers

    def put_package(self, name: str, wheel: str, data: bytes, *, html: bool = False, sha256: str | None = "") -> None:
        """A package with one wheel. ``sha256``: "" for the true one, None for none, or what to claim."""
        digest = hashlib.sha256(data).hexdigest() if sha256 == "" else sha256
        self.put(f"/files/{wheel}", data)
        if html:
            fragment = f"#sha256={digest}" if digest else ""
            self.put(f"/simple/{name}/", f'<!DOCTYPE html><a href="../../files/{wheel}{fragment}">{wheel}</a>', "text/html")
        else:
            file = {"filename": wheel, "url": f"/files/{wheel}", "hashes": {"sha256": digest} if digest else {}}
            page = {"meta": {"api-version": "1.0"}, "name": name, "files": [file]}
            self.put(f"/simple/{name}/", json.dumps(page), "application/vnd.pypi.simple.v1+json")


def use_alone(monkeypatch: pytest.MonkeyPatch, server: LocalServer, home: Path) -> None:
    """An empty cache at ``home``, and pip and uv set up with this index and nothing else."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("SWIFTSURE_HOME", str(home))


@contextmanager
def serving() -> Iterator[LocalServer]:
    state = LocalServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            asked = self.headers.get("Range")
            state.log.append(f"{self.command} {path} {asked or '-'}")
            fault = state.status(path, self.headers.get("User-Agent", ""))
            if fault is not None or path not in state.files:
                self.send_response(fault or 404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            data = state.files[path]
            start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked and state.ranges else 0
            if start and start >= len(data):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Type", state.types[path])
            self.send_header("Content-Length", str(len(data) - start))
            for name, value in state.headers[path].items():
                self.send_header(name, value)
            self.end_headers()
            if body:
                cut = state.cut_after.pop(0) if state.cut_after and path.startswith("/files/") else None
                self.wfile.write(data[start:] if cut is None else data[start : start + cut])
                self.close_connection = cut is not None

    with answering(Handler) as state.url:
        yield state


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serves on a free port of this machine while the context lasts; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
