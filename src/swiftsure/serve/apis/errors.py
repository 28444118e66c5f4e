"""Errors in the words of each interface."""

from __future__ import annotations

from typing import Any

from swiftsure.serve.problems import Problem

_OPENAI_TYPES = {
    "invalid_request": "invalid_request_error",
    "too_large": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "invalid_request_error",
    "rate_limit": "rate_limit_error",
    "unavailable": "server_error",
    "timeout": "server_error",
    "internal": "server_error",
}
_ANTHROPIC_TYPES = {
    "invalid_request": "invalid_request_error",
    "too_large": "request_too_large",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "rate_limit": "rate_limit_error",
    "unavailable": "overloaded_error",
    "timeout": "timeout_error",
    "internal": "api_error",
}
ANTHROPIC_PATHS = "/v1/messages"


def openai_body(problem: Problem) -> dict[str, Any]:
    """https://platform.openai.com/docs/guides/error-codes"""
    return {"error": {"message": problem.message, "type": _OPENAI_TYPES[problem.kind], "param": problem.param, "code": problem.code}}


def anthropic_body(problem: Problem) -> dict[str, Any]:
    """https://platform.claude.com/docs/en/api/errors"""
    return {"type": "error", "error": {"type": _ANTHROPIC_TYPES[problem.kind], "message": problem.message}}


def body_for(path: str, problem: Problem) -> dict[str, Any]:
    return anthropic_body(problem) if path.startswith(ANTHROPIC_PATHS) else openai_body(problem)
