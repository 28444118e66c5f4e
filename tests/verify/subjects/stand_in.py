"""An endpoint on this machine that answers chat completions as it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from local_server import answering

Pieces = list[bytes | Callable[[], None]]


def chunk(content: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta | more.pop("delta", {}), "finish_reason": finish, **more.pop("choice", {})}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
HELLO: Pieces = [chunk(delta={"role": "assistant"}), chunk("Hel"), chunk("lo"), chunk(finish="stop"), DONE]


@dataclass(slots=True)
class StandIn:
    """``pieces`` are written one after the other; a function among them is called instead. ``pages`` answer GET. A request with the field
    ``refuses`` gets status 400."""

    url: str = ""
    status: int = 200
    refuses: str | None = None
    kind: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Pieces = field(default_factory=lambda: list(HELLO))
    pages: dict[str, str] = field(default_factory=lambda: {"/v1/models": json.dumps({"data": [{"id": "tiny"}]})})
    asked: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def standing_in() -> Iterator[StandIn]:
    state = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            page = state.pages.get(self.path)
            self.send_response(200 if page is not None else 404)
            self.end_headers()
            self.wfile.write((page or "").encode())

        def do_POST(self) -> None:
            state.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            refused = state.refuses is not None and state.refuses in state.asked[-1]
            self.send_response(400 if refused else state.status)
            self.send_header("Content-Type", state.kind)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in [f"unknown field {state.refuses}".encode()] if refused else state.pieces:
                    if callable(piece):
                        piece()
                    else:
                        self.wfile.write(piece)
                        self.wfile.flush()
            except OSError:
                pass  # the client has left

    with answering(Handler) as address:
        state.url = f"{address}/v1"
        yield state
