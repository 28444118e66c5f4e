"""Which request an answer belongs to: known from the connection on, so that no interface can forget to say it."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from swiftsure.serve.engine_process.client import Answer

APIS = {
    "/v1/chat/completions": "chat_completions",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/messages/count_tokens": "count_tokens",
    "/v1/models": "models",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
    "/health": "health",
    "/ready": "ready",
    "/metrics": "metrics",
    "/v1/swiftsure/state": "state",
    "/v1/swiftsure/events": "events",
    "/": "page",
    "/docs": "page",
    "/openapi.json": "page",
}
PAGE_FILES = "/page/"
PREFIXES = {PAGE_FILES: "page", "/v1/responses/": "kept_responses", "/v1/models/": "models"}
OTHER = "other"
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True, eq=False)
class Origin:
    """One HTTP request, or one WebSocket. ``answers``: those of an HTTP request; a WebSocket has too many to be kept."""

    api: str = OTHER
    request_id: str = ""
    socket: bool = False
    path: str = ""
    status: int | None = None
    wall_s: float | None = None  # None: it is still answered
    answers: list[Answer] = field(default_factory=list)

    def add(self, answer: Answer) -> None:
        if self.request_id and not self.socket:
            self.answers.append(answer)


# Of the task that handles a request and of those it starts. Set in request_log.py, read where an answer is made, nowhere else.
ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)


def api_of(path: str) -> str:
    """A name out of few, whatever paths clients invent."""
    return APIS.get(path) or next((name for prefix, name in PREFIXES.items() if path.startswith(prefix)), OTHER)


def request_id_of(given: str | None) -> str:
    """The client's own, if it is short and plain; otherwise a new one."""
    return given if given is not None and _SANE_ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
