"""A Hugging Face hub on this machine: what huggingface_hub asks, answered as the real one does, with faults when asked for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from local_server import answering

LARGE_BYTES = 10_000  # from here on a file is stored apart from the repository, under its SHA-256


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class LocalHub:
    """``log``: "METHOD path range" of every request, in order; ``logins``: paths that were asked for with a token."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}  # repository -> commit -> file -> bytes
        self.refs: dict[str, dict[str, str]] = {}
        self.cards: dict[str, dict[str, Any]] = {}
        self.gated: set[str] = set()
        self.claims: dict[bytes, str] = {}  # bytes that are announced under another SHA-256
        self.listed: dict[str, Any] = {}  # fields of a listed file that are announced otherwise
        self.more = b""  # sent after the bytes of a large file
        self.cut_after: list[int] = []  # for the next large downloads: bytes after which the connection ends
        self.status: int | None = None  # answered to everything
        self.log: list[str] = []
        self.logins: list[str] = []
        self.url = ""

    def put(self, repo: str, commit: str, files: dict[str, bytes], *, ref: str = "main", card: dict[str, Any] | None = None) -> None:
        self.commits.setdefault(repo, {})[commit] = dict(files)
        self.refs.setdefault(repo, {})[ref] = commit
        self.cards[repo] = card or {}

    def sha256(self, data: bytes) -> str:
        return self.claims.get(data) or hashlib.sha256(data).hexdigest()

    def blob(self, sha256: str) -> bytes | None:
        every = (data for commits in self.commits.values() for files in commits.values() for data in files.values())
        return next((data for data in every if self.sha256(data) == sha256), None)

    def listing(self, repo: str, commit: str) -> dict[str, Any]:
        siblings = []
        for name, data in self.commits[repo][commit].items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git_oid(data)}
            if len(data) >= LARGE_BYTES:
                entry["lfs"] = {"sha256": self.sha256(data), "size": len(data), "pointerSize": 134}
            siblings.append(entry | self.listed)
        return {"_id": "0", "id": repo, "modelId": repo, "sha": commit, "siblings": siblings, "cardData": self.cards[repo]}


@contextmanager
def hub() -> Iterator[LocalHub]:
    state = LocalHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._route()

        def do_GET(self) -> None:
            self._route()

        def _route(self) -> None:
            path = unquote(self.path.partition("?")[0])
            state.log.append(f"{self.command} {path} {self.headers.get('Range') or '-'}")
            if self.headers.get("Authorization"):
                state.logins.append(path)
            if state.status is not None:
                return self._say(state.status, {"X-Error-Message": "We had to rate limit you."})
            if listed := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
                return self._list(*listed.groups())
            if wanted := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
                return self._resolve(*wanted.groups())
            if stored := re.fullmatch(r"/stored/([0-9a-f]{64})", path):
                return self._send_blob(stored[1])
            return self._say(404)

        def _commit(self, repo: str, revision: str) -> str | None:
            """The commit, or None after the answer that there is none."""
            if repo not in state.commits:
                self._say(401, {"X-Error-Message": "Invalid username or password."})
                return None
            commit = state.refs[repo].get(revision, revision)
            if commit in state.commits[repo]:
                return commit
            self._say(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"})
            return None

        def _list(self, repo: str, revision: str) -> None:
            commit = self._commit(repo, revision)
            if commit is not None:
                self._say(200, {"Content-Type": "application/json"}, json.dumps(state.listing(repo, commit)).encode())

        def _resolve(self, repo: str, revision: str, name: str) -> None:
            commit = self._commit(repo, revision)
            if commit is None:
                return None
            if repo in state.gated:
                words = f"Access to model {repo} is restricted"
                if self.headers.get("Authorization"):
                    words += " and you are not in the authorized list. Visit the page to ask for access."
                    return self._say(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": words})
                words += ". You must have access to it and be authenticated to access it. Please log in."
                return self._say(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": words})
            data = state.commits[repo][commit].get(name)
            if data is None:
                return self._say(404, {"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found", "X-Repo-Commit": commit})
            if len(data) < LARGE_BYTES:
                return self._say(200, {"X-Repo-Commit": commit, "ETag": f'"{git_oid(data)}"'}, data)
            sha256 = state.sha256(data)
            place = f"{state.url.replace('127.0.0.1', 'localhost')}/stored/{sha256}"  # another host than the hub's own
            linked = {"X-Linked-ETag": f'"{sha256}"', "X-Linked-Size": str(len(data)), "Location": place}
            return self._say(302, {"X-Repo-Commit": commit, "ETag": '"of-the-redirection"', **linked})

        def _send_blob(self, sha256: str) -> None:
            data, asked = state.blob(sha256), self.headers.get("Range")
            if data is None:
                self._say(404)
                return
            data += state.more
            start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
            cut = state.cut_after.pop(0) if state.cut_after else None
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            self.wfile.write(data[start:] if cut is None else data[start : start + cut])
            self.close_connection = cut is not None

        def _say(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with answering(Handler) as state.url:
        yield state
