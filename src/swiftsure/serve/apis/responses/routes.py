"""The routes of the Responses interface over HTTP, and the door of its WebSocket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse

from swiftsure.errors import quotable
from swiftsure.serve.apis.errors import openai_body
from swiftsure.serve.apis.rate_limits import rate_limit_headers
from swiftsure.serve.apis.responses.request import CreateResponse
from swiftsure.serve.apis.responses.socket import Connection, refusal
from swiftsure.serve.apis.responses.store import Kept, ResponseStore
from swiftsure.serve.apis.responses.turn import Turn, begin
from swiftsure.serve.apis.streaming import ClientGoneError, EventStream, while_connected
from swiftsure.serve.keys import require_key
from swiftsure.serve.problems import Problem
from swiftsure.serve.service import Service
from swiftsure.serve.settings import ApiKey

CLIENT_GONE = 499  # nginx's number for it; nobody reads it but the log


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["responses"])
    may_enter = Depends(require_key(service.settings.keys))
    store = ResponseStore()

    @routes.post("/v1/responses")
    async def create(body: CreateResponse, request: Request, key: ApiKey | None = may_enter) -> Response:
        """https://platform.openai.com/docs/api-reference/responses/create"""
        owner = None if key is None else key.name
        turn = await begin(service, body, key, lambda response_id: store.get(response_id, owner))
        headers = rate_limit_headers(turn.model, turn.asked.tier)
        headers |= {"swiftsure-ignored": ", ".join(turn.asked.ignored)} if turn.asked.ignored else {}
        if body.stream:
            return EventStream(_stream(turn, store), turn.answer, headers=headers)
        try:
            await while_connected(request, _drain(turn, store))
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        if turn.problem is not None:
            return JSONResponse(openai_body(turn.problem), turn.problem.status, headers={**headers, **turn.problem.headers})
        return JSONResponse(turn.response, headers=headers)

    @routes.get("/v1/responses/{response_id}")
    async def retrieve(response_id: str, key: ApiKey | None = may_enter, stream: bool = False) -> Response:
        """https://platform.openai.com/docs/api-reference/responses/get"""
        if stream:
            problem = Problem(status=400, kind="invalid_request", message="a response that has ended is not streamed again", param="stream")
            return JSONResponse(openai_body(problem), 400)
        kept = _find(store, response_id, key)
        return JSONResponse(kept.response) if kept is not None else _not_found(response_id)

    @routes.delete("/v1/responses/{response_id}")
    async def delete(response_id: str, key: ApiKey | None = may_enter) -> Response:
        """https://platform.openai.com/docs/api-reference/responses/delete"""
        if not store.remove(response_id, None if key is None else key.name):
            return _not_found(response_id)
        return JSONResponse({"id": response_id, "object": "response", "deleted": True})

    @routes.get("/v1/responses/{response_id}/input_items")
    async def input_items(
        response_id: str,
        key: ApiKey | None = may_enter,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
        order: Literal["asc", "desc"] = "desc",
        after: str | None = None,
    ) -> Response:
        """https://platform.openai.com/docs/api-reference/responses/input-items"""
        kept = _find(store, response_id, key)
        return _not_found(response_id) if kept is None else JSONResponse(_page(kept, limit, order, after))

    @routes.websocket("/v1/responses")
    async def connect(websocket: WebSocket) -> None:
        """https://developers.openai.com/api/docs/guides/websocket-mode"""
        key, problem = refusal(service, websocket)
        if problem is not None:
            await websocket.send_denial_response(JSONResponse(openai_body(problem), problem.status))
            return
        await websocket.accept()
        await Connection(service, websocket, key, store).run()

    return routes


async def _drain(turn: Turn, store: ResponseStore) -> None:
    async for _ in turn.events():
        pass
    _keep(turn, store)


async def _stream(turn: Turn, store: ResponseStore) -> AsyncIterator[str]:
    async for event in turn.events():
        if event is None:
            yield ": nothing yet\n\n"
            continue
        if turn.response is not None:  # the last one: who reads it may continue at once
            _keep(turn, store)
        yield f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n"


def _keep(turn: Turn, store: ResponseStore) -> None:
    if turn.response is not None and turn.asked.store:
        store.add(turn.kept)


def _find(store: ResponseStore, response_id: str, key: ApiKey | None) -> Kept | None:
    return store.get(response_id, None if key is None else key.name)


def _not_found(response_id: str) -> Response:
    problem = Problem(status=404, kind="not_found", message=quotable(f"no response {response_id!r:.80} is kept here"), param="response_id")
    return JSONResponse(openai_body(problem), 404)


def _page(kept: Kept, limit: int, order: str, after: str | None) -> dict[str, Any]:
    items = list(kept.context) if order == "asc" else list(reversed(kept.context))
    if after is not None:
        at = next((i for i, item in enumerate(items) if item["id"] == after), len(items))
        items = items[at + 1 :]
    page = items[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(items) > limit,
    }
