"""Who may come in: API keys, compared in constant time by the SHA-256 of their text."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.requests import HTTPConnection

from swiftsure.serve.problems import KeyRefusedError
from swiftsure.serve.settings import ApiKey


def key_of(keys: tuple[ApiKey, ...], connection: HTTPConnection) -> ApiKey | None:
    """The key that a request or a WebSocket brings, as ``Authorization: Bearer`` or ``x-api-key``; None where no keys are set.

    Raises KeyRefusedError (401). Every known key is compared whatever the first ones say, so the time tells nothing.
    """
    if not keys:
        return None
    scheme, _, bearer = connection.headers.get("authorization", "").partition(" ")
    given = bearer.strip() if scheme.lower() == "bearer" else connection.headers.get("x-api-key", "")
    if not given:
        raise KeyRefusedError("an API key is needed: Authorization: Bearer KEY, or x-api-key: KEY", status=401)
    digest = hashlib.sha256(given.encode()).digest()
    matches = [key for key in keys if hmac.compare_digest(key.sha256, digest)]
    if not matches:
        raise KeyRefusedError("the API key is not known here", status=401)
    return matches[0]


def require_key(keys: tuple[ApiKey, ...]) -> Callable[[Request], Awaitable[ApiKey | None]]:
    """A dependency of routes: ``key: ApiKey | None = Depends(require_key(service.settings.keys))``.

    A coroutine: FastAPI runs plain functions on threads, which costs each request a hop and the process up to 40 threads.
    """

    async def required(request: Request) -> ApiKey | None:
        return key_of(keys, request)

    return required
