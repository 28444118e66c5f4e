"""``/health``: the server lives. ``/ready``: it would take a request now, or says why not."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from swiftsure.serve.service import Service


def router(service: Service) -> APIRouter:
    routes = APIRouter(tags=["health"])

    @routes.get("/health")
    async def health() -> dict[str, Any]:
        return {"status": "ok"}

    @routes.get("/ready")
    async def ready(response: Response) -> dict[str, Any]:
        reason = service.unready
        if reason is not None:
            response.status_code = 503
        models = {
            model.name: {
                "state": model.engine.state,
                "deaths": model.engine.deaths,
                "breach": model.breach,
                "active": model.engine.facts.active_line if model.engine.facts else None,
            }
            for model in service.models
        }
        return {"ready": reason is None, "reason": reason, "models": models}

    return routes
