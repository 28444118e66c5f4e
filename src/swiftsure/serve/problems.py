"""What goes wrong while serving, and what a client is told: a status, a kind, a sentence, and when to come back."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swiftsure.errors import (
    CapacityError,
    ContextLengthError,
    GrammarLimitError,
    NotActiveError,
    SwiftsureError,
    TemplateError,
    UsageError,
    quotable,
)


class BusyError(SwiftsureError):
    """A lane is full. ``retry_after_s``: when it is expected to have room."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnavailableError(SwiftsureError):
    """No engine to run on at present: it starts, restarts, drains or was stopped for a reason that the message gives."""

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineLostError(SwiftsureError):
    """The engine's process ended under this request, and running it again ended it once more."""


class DeadlineError(SwiftsureError):
    """The request's time was over before its answer was; half an answer is not passed off as a whole one."""


class UnknownModelError(SwiftsureError):
    """No model of that name is served here."""


class NotServedError(NotActiveError):
    """A model that cannot be loaded in its ``mode``."""

    def __init__(self, message: str, *, mode: str) -> None:
        super().__init__(message)
        self.mode = mode


class RefusedError(UsageError):
    """A field of a request that is not supported, or whose value breaks a rule; ``param`` names it as the client wrote it."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class KeyRefusedError(SwiftsureError):
    """No key, an unknown one (401), or one that may not do this (403)."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error in a client's terms. kind: ``invalid_request``, ``authentication``, ``permission``, ``not_found``, ``rate_limit``,
    ``unavailable``, ``timeout`` or ``internal``; each interface has its own word for it. code: OpenAI's, where it has one."""

    status: int
    kind: str
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"retry-after": str(max(1, math.ceil(self.retry_after_s)))}


def problem_of(error: BaseException) -> Problem:
    """What to tell a client. An error that nobody foresaw says nothing of its inside."""
    message = quotable(str(error))
    match error:
        case BusyError():
            return Problem(status=429, kind="rate_limit", message=message, code="rate_limit_exceeded", retry_after_s=error.retry_after_s)
        case UnavailableError():
            return Problem(status=503, kind="unavailable", message=message, code="unavailable", retry_after_s=error.retry_after_s)
        case KeyRefusedError(status=401):
            return Problem(status=401, kind="authentication", message=message, code="invalid_api_key")
        case KeyRefusedError():
            return Problem(status=403, kind="permission", message=message)
        case UnknownModelError():
            return Problem(status=404, kind="not_found", message=message, code="model_not_found", param="model")
        case ContextLengthError():
            return Problem(status=400, kind="invalid_request", message=message, code="context_length_exceeded")
        case RefusedError():
            return Problem(status=400, kind="invalid_request", message=message, code=error.code, param=error.param)
        case UsageError() | TemplateError() | GrammarLimitError():  # the same request would fail again
            return Problem(status=400, kind="invalid_request", message=message)
        case DeadlineError():
            return Problem(status=504, kind="timeout", message=message, code="deadline_exceeded")
        case CapacityError():
            return Problem(status=503, kind="unavailable", message=message, retry_after_s=1.0)
        case EngineLostError():
            return Problem(status=500, kind="internal", message=message)
        case _:
            return Problem(status=500, kind="internal", message="the server failed on this request; its log says how")
