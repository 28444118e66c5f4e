"""One line for each request, and an id that goes through answer, log and record. No text of users, unless it is asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from swiftsure.errors import quotable
from swiftsure.serve.apis.errors import ANTHROPIC_PATHS
from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.origin import ORIGIN, Origin, api_of, request_id_of
from swiftsure.serve.service import ServedModel, Service

_QUIET = frozenset(("health", "ready", "metrics", "state", "events", "page"))  # asked for every few seconds; told only when they fail
SCOPE_KEY = "swiftsure.request_id"
Values = Mapping[str, Any]


def write_line(values: Values, *, as_json: bool) -> None:
    """To stderr: JSON, or ``key=value`` for people."""
    if as_json:
        line = json.dumps(values, separators=(",", ":"))
    else:
        line = "request " + " ".join(f"{name}={_word(value)}" for name, value in values.items() if value is not None)
    print(line, file=sys.stderr, flush=True)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return quotable(value) if value and " " not in value else json.dumps(quotable(value))
    return str(value)


class RequestLog:
    """Lines of a service's requests: of an HTTP request once it and its answers have ended, on a WebSocket of each answer."""

    def __init__(self, service: Service, *, write: Callable[[Values], None] | None = None) -> None:
        settings = service.settings
        self._prompts = settings.log_prompts
        self._write = write or (lambda values: write_line(values, as_json=settings.log_json))
        self._models: dict[int, ServedModel] = {}  # by the answers that ended before their request did
        service.listeners.append(self.answered)

    def answered(self, model: ServedModel, answer: Answer) -> None:
        origin = answer.origin
        if origin.socket:
            self._write(self._line(origin, [(model, answer)]))
        elif origin.request_id:
            self._models[id(answer)] = model
            self._settle(origin)

    def ended(self, origin: Origin) -> None:
        """The HTTP side of a request is over."""
        if not origin.socket:
            self._settle(origin)

    def _settle(self, origin: Origin) -> None:
        if origin.wall_s is None or not all(answer.ended for answer in origin.answers):
            return
        pairs = [(model, answer) for answer in origin.answers if (model := self._models.pop(id(answer), None)) is not None]
        if len(pairs) < len(origin.answers):  # the last listener is still to come
            self._models |= {id(answer): model for model, answer in pairs}
            return
        origin.answers.clear()
        if origin.api not in _QUIET or (origin.status or 500) >= 400:
            self._write(self._line(origin, pairs))

    def _line(self, origin: Origin, pairs: list[tuple[ServedModel, Answer]]) -> dict[str, Any]:
        line: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": origin.request_id,
            "api": origin.api,
            "status": origin.status,
            "wall_s": _rounded(origin.wall_s),
        }
        if not pairs:
            return line
        model, first = pairs[0]
        outcomes = [answer.outcome for _, answer in pairs if answer.outcome is not None]
        timing = outcomes[0].timing if outcomes else {}
        line |= {
            "model": model.name,
            "tier": first.job.tier,
            "choices": len(pairs),
            "prompt_tokens": len(first.job.prompt_ids),
            "cached_tokens": outcomes[0].cached_tokens if outcomes else 0,
            "output_tokens": sum(tokens for _, answer in pairs for _, tokens in answer.arrivals),
            "outcome": ",".join(sorted({outcome_of(answer) for _, answer in pairs})),
            "queue_s": _rounded(timing.get("queue_s")),
            "ttft_s": _rounded(first.ttft_s),
            "error": next((str(answer.error) for _, answer in pairs if answer.error is not None), None),
        }
        if self._prompts:
            line["prompt"] = b"".join(map(model.token_bytes, first.job.prompt_ids)).decode("utf-8", "replace")
        return line


def outcome_of(answer: Answer) -> str:
    """How it ended, in one word."""
    return answer.outcome.finish_reason if answer.outcome is not None else "error"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def id_headers(path: str, request_id: str) -> dict[str, str]:
    """In the words of the interface that the path belongs to, and in everyone's."""
    return {"x-request-id": request_id, **({"request-id": request_id} if path.startswith(ANTHROPIC_PATHS) else {})}


class RequestIds:
    """Middleware: gives each request its id, puts it into the answer's headers, and says when the request is over."""

    def __init__(self, app: ASGIApp, *, on_end: Callable[[Origin], None]) -> None:
        self._app = app
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        request_id = request_id_of(Headers(scope=scope).get("x-request-id"))
        origin = Origin(api=api_of(path), request_id=request_id, socket=scope["type"] == "websocket", path=path)
        scope[SCOPE_KEY] = request_id

        async def noticed(message: Message) -> None:
            if message["type"] == "http.response.start":
                origin.status = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                headers.update(id_headers(path, request_id))
            await send(message)

        began = monotonic()
        token = ORIGIN.set(origin)
        try:
            await self._app(scope, receive, noticed)
        except Exception:
            origin.status = origin.status or 500  # answered further out
            raise
        finally:
            ORIGIN.reset(token)
            origin.wall_s = monotonic() - began
            self._on_end(origin)
