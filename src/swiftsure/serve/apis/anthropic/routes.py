"""The routes of the Messages interface: headers, status, and which of the two forms an answer takes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from swiftsure.engine.scheduler import Tier
from swiftsure.serve.apis.anthropic.events import events
from swiftsure.serve.apis.anthropic.fields import FAST_BETA
from swiftsure.serve.apis.anthropic.reply import BlockWriter, folded, message, proof, stop_fields, usage
from swiftsure.serve.apis.anthropic.request import CountTokens, CreateMessage, encode, read_body, sampling_of, tier_of
from swiftsure.serve.apis.errors import anthropic_body
from swiftsure.serve.apis.streaming import ClientGoneError, EventStream, while_connected
from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.keys import require_key
from swiftsure.serve.problems import BusyError, DeadlineError, Problem, RefusedError, problem_of
from swiftsure.serve.service import ServedModel, Service
from swiftsure.serve.settings import ApiKey

OLDEST_VERSION = "2023-06-01"  # the one before has other events
CLIENT_GONE = 499  # nginx's number for it; nobody reads it but the log

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_BETA = re.compile(r"[A-Za-z0-9._-]{1,64}")


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["messages"])
    may_enter = Depends(require_key(service.settings.keys))

    @routes.post("/v1/messages")
    async def create(body: CreateMessage, request: Request, key: ApiKey | None = may_enter) -> Response:
        """https://platform.claude.com/docs/en/api/messages/create"""
        headers = _headers(request)
        model = service.model(body.model)
        asked = read_body(body)
        tier = tier_of(body)
        service.check_tier(key, tier)
        sampling = sampling_of(body)
        _tell_ignored(headers, asked.ignored)
        ids, parser, grammar = await encode(model, asked)
        await model.check_grammar(grammar)
        try:
            answer = model.submit(ids, sampling, tier=tier, grammar=grammar)
        except BusyError as error:  # a full lane says so, and never serves in the other one
            problem = problem_of(error)
            headers = {**headers, **_limits(model, tier), **problem.headers}
            return JSONResponse(anthropic_body(problem), problem.status, headers=headers)
        headers |= _limits(model, tier)
        writer = BlockWriter(parser, thinking_shown=asked.thinking_shown)
        message_id = f"msg_{secrets.token_hex(12)}"
        if body.stream:
            return EventStream(events(answer, writer, model, message_id, service.settings.prices), answer, headers=headers)
        try:
            reply = await while_connected(request, _whole(service, model, answer, writer, message_id))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except DeadlineError as error:
            problem = Problem(status=504, kind="timeout", message=str(error))
            return JSONResponse(anthropic_body(problem), problem.status, headers=headers)
        return JSONResponse(reply, headers=headers)

    @routes.post("/v1/messages/count_tokens", dependencies=[may_enter])
    async def count_tokens(body: CountTokens, request: Request) -> Response:
        """https://platform.claude.com/docs/en/api/messages/count_tokens"""
        headers = _headers(request)
        model = service.model(body.model)
        asked = read_body(body)
        _tell_ignored(headers, asked.ignored)
        ids, _, _ = await encode(model, asked)
        return JSONResponse({"input_tokens": len(ids)}, headers=headers)

    return routes


async def _whole(service: Service, model: ServedModel, answer: Answer, writer: BlockWriter, message_id: str) -> dict[str, Any]:
    async with answer:
        chunk, outcome = await answer.finish()
    content = folded([*writer.feed(chunk.text), *writer.finish()])
    stop = stop_fields(model, outcome, called=writer.called)
    return message(message_id, model, content, **stop, usage=usage(outcome, service.settings.prices), swiftsure=proof(model, outcome))


# --- headers --------------------------------------------------------------------------------------------------------------


def _headers(request: Request) -> dict[str, str]:
    """Of the answer. Raises RefusedError for a version of the interface that is not spoken here; none at all is fine."""
    version = request.headers.get("anthropic-version", OLDEST_VERSION)
    if not _DATE.fullmatch(version) or version < OLDEST_VERSION:
        raise RefusedError(f"anthropic-version must be a date, {OLDEST_VERSION} or later, got {version!r:.40}", param="anthropic-version")
    headers: dict[str, str] = {}
    betas = [beta.strip() for line in request.headers.getlist("anthropic-beta") for beta in line.split(",")]
    _tell_ignored(headers, [f"anthropic-beta={beta}" for beta in betas if beta != FAST_BETA and _BETA.fullmatch(beta)])
    return headers


def _tell_ignored(headers: dict[str, str], ignored: Sequence[str]) -> None:
    """``swiftsure-ignored``: what was sent and changes nothing."""
    if ignored:
        headers["swiftsure-ignored"] = ", ".join(filter(None, (headers.get("swiftsure-ignored"), *ignored)))


def _limits(model: ServedModel, tier: Tier) -> dict[str, str]:
    """What the lane takes and still takes. It counts prompts and what may follow together: both get its figures."""
    lane = model.lanes[tier]
    room = lane.remaining
    reset = (datetime.now(UTC) + timedelta(seconds=room.reset_s)).isoformat(timespec="seconds").replace("+00:00", "Z")
    if tier == "priority":
        figures = {"limit": lane.limits.tokens, "remaining": room.tokens, "reset": reset}
        return {f"anthropic-fast-{kind}-tokens-{name}": str(value) for kind in ("input", "output") for name, value in figures.items()}
    prefix = "anthropic-ratelimit"
    return {
        f"{prefix}-requests-limit": str(lane.limits.requests),
        f"{prefix}-requests-remaining": str(room.requests),
        f"{prefix}-requests-reset": reset,
        f"{prefix}-tokens-limit": str(lane.limits.tokens),
        f"{prefix}-tokens-remaining": str(room.tokens),
        f"{prefix}-tokens-reset": reset,
    }
