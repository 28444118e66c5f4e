"""The routes: keys, models by name, and which of the two forms an answer takes."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from swiftsure.errors import quotable
from swiftsure.serve.apis.openai import chat, completions
from swiftsure.serve.apis.openai.answers import submit
from swiftsure.serve.apis.openai.body import Asked, asked_of, read_object
from swiftsure.serve.apis.openai.fields import Endpoint, openapi_body
from swiftsure.serve.apis.rate_limits import rate_limit_headers
from swiftsure.serve.apis.streaming import ClientGoneError, EventStream, while_connected
from swiftsure.serve.keys import require_key
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import ServedModel, Service
from swiftsure.serve.settings import ApiKey

CLIENT_GONE = 499  # nginx's number for it; nobody reads it but the log


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["openai"])
    may_enter = Depends(require_key(service.settings.keys))
    prices = service.settings.prices

    @routes.post("/v1/chat/completions", openapi_extra=openapi_body("chat"))
    async def create_chat_completion(request: Request, key: ApiKey | None = may_enter) -> Response:
        """https://platform.openai.com/docs/api-reference/chat/create"""
        try:
            model, asked = await _asked(service, request, key, "chat")
            prompt = await chat.encode(model, asked)
            await model.check_grammar(prompt.grammar)
            answers = submit(model, [prompt.ids], asked, prompt.grammar)
            headers = rate_limit_headers(model, asked.tier)
            response_id = secrets.token_hex(12)
            if asked.stream:
                return EventStream(chat.events(model, asked, prompt, answers, response_id, prices), answers, headers=headers)
            told = await while_connected(request, chat.whole(model, asked, prompt, answers, response_id, prices))
            return JSONResponse(told, headers=headers)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)

    @routes.post("/v1/completions", openapi_extra=openapi_body("completions"))
    async def create_completion(request: Request, key: ApiKey | None = may_enter) -> Response:
        """https://platform.openai.com/docs/api-reference/completions/create"""
        try:
            model, asked = await _asked(service, request, key, "completions")
            prompts = await completions.encode(model, asked)
            answers = submit(model, prompts, asked)
            headers = rate_limit_headers(model, asked.tier)
            response_id = secrets.token_hex(12)
            if asked.stream:
                return EventStream(completions.events(model, asked, prompts, answers, response_id, prices), answers, headers=headers)
            told = await while_connected(request, completions.whole(model, asked, prompts, answers, response_id, prices))
            return JSONResponse(told, headers=headers)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)

    @routes.get("/v1/models", dependencies=[may_enter])
    async def list_models() -> dict[str, Any]:
        """https://platform.openai.com/docs/api-reference/models/list"""
        return {"object": "list", "data": [_model(model) for model in service.models]}

    @routes.get("/v1/models/{name:path}", dependencies=[may_enter])
    async def retrieve_model(name: str) -> dict[str, Any]:
        """https://platform.openai.com/docs/api-reference/models/retrieve"""
        return _model(service.model(name))

    return routes


async def _asked(service: Service, request: Request, key: ApiKey | None, endpoint: Endpoint) -> tuple[ServedModel, Asked]:
    body = await read_object(request)
    name = body.get("model")
    if name is not None and not isinstance(name, str):
        raise RefusedError(quotable(f"model must be a string, got {name!r:.80}"), param="model", code="invalid_type")
    model = service.model(name)
    asked = asked_of(body, endpoint, context=model.facts.context)
    service.check_tier(key, asked.tier)
    return model, asked


def _model(model: ServedModel) -> dict[str, Any]:
    told: dict[str, Any] = {"id": model.name, "object": "model", "created": model.created, "owned_by": "swiftsure"}
    facts = model.engine.facts
    if facts is not None:
        told |= {"max_model_len": facts.context, "swiftsure": {"mode": facts.mode, "fingerprint": facts.fingerprint, "model": facts.model}}
    return told
