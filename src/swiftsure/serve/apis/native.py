"""``/tokenize`` and ``/detokenize``: what a prompt is to the model."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from swiftsure.engine.inputs import token_ids
from swiftsure.serve.keys import require_key
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import Service


class Tokenize(BaseModel):
    """A text as it stands, or messages through the chat template."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


class Detokenize(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: Annotated[list[int], Field(max_length=1_000_000)]


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["tokens"], dependencies=[Depends(require_key(service.settings.keys))])

    @routes.post("/tokenize")
    async def tokenize(body: Tokenize) -> dict[str, Any]:
        model = service.model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise RefusedError("give either prompt or messages", param="prompt")
        ids = await (model.encode(body.prompt) if body.prompt is not None else model.encode(body.messages or [], tools=body.tools))
        return {"tokens": list(ids), "count": len(ids), "max_model_len": model.facts.context}

    @routes.post("/detokenize")
    async def detokenize(body: Detokenize) -> dict[str, Any]:
        model = service.model(body.model)
        ids = token_ids(body.tokens, vocab_size=model.facts.vocab_size)
        return {"prompt": b"".join(model.token_bytes(token) for token in ids.tolist()).decode("utf-8", "replace")}

    return routes
