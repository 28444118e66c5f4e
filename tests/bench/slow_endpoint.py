"""A plain chat endpoint on a thread: it streams a fixed number of tokens with fixed gaps, and refuses everything else with 404."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from typing import Any


class SlowEndpoint:
    """``keys``: the authorization header of every request. ``refuses``: what chat answers with instead, as (status, message)."""

    def __init__(self, tokens: int, gap_s: float, refuses: tuple[int, str] | None = None) -> None:
        self.tokens, self.gap_s, self.refuses = tokens, gap_s, refuses
        self.keys: list[str | None] = []
        self.url = ""


@contextmanager
def slow_endpoint(tokens: int = 10, gap_s: float = 0.01, refuses: tuple[int, str] | None = None) -> Iterator[SlowEndpoint]:
    endpoint = SlowEndpoint(tokens, gap_s, refuses)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._whole(404, "not found")

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            endpoint.keys.append(self.headers["authorization"])
            if not self.path.endswith("/chat/completions"):
                self._whole(404, "not found")
            elif endpoint.refuses is not None:
                self._whole(*endpoint.refuses)
            else:
                self._stream()

        def _whole(self, status: int, message: str) -> None:
            body = json.dumps({"error": {"message": message}}).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for i in range(endpoint.tokens):
                    sleep(endpoint.gap_s)
                    finish = "stop" if i == endpoint.tokens - 1 else None
                    self._event({"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": finish}]})
                self._event({"choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": endpoint.tokens}})
                self.wfile.write(b"data: [DONE]\n\n")
            except OSError:  # the client has gone
                pass
            self.close_connection = True

        def _event(self, value: Any) -> None:
            self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
            self.wfile.flush()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
