"""The web application: routes, keys, limits of size, and how an error becomes an answer."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from swiftsure import __version__
from swiftsure.errors import SwiftsureError
from swiftsure.serve import page
from swiftsure.serve.apis import anthropic, health, native, openai, responses, watch
from swiftsure.serve.apis import errors as wire_errors
from swiftsure.serve.limits import BodyLimit, OwnNames
from swiftsure.serve.metrics import Metrics
from swiftsure.serve.origin import Origin
from swiftsure.serve.page.reference import add_reference
from swiftsure.serve.problems import Problem, problem_of
from swiftsure.serve.request_log import SCOPE_KEY, RequestIds, RequestLog, id_headers
from swiftsure.serve.service import Service

Router = Callable[[Service], APIRouter]

ROUTERS: tuple[Router, ...] = (
    health.router,
    native.router,
    anthropic.router,
    openai.router,
    responses.router,
    watch.router,
    page.router,
)
"""One for each interface; each is handed the service and owns its paths."""


def create_app(service: Service) -> FastAPI:
    """The application over a service that is started already, and stopped by whoever started it."""
    app = FastAPI(title="Swiftsure", version=__version__, docs_url=None, redoc_url=None)
    for router in ROUTERS:
        app.include_router(router(service))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(SwiftsureError, _failed)
    app.add_exception_handler(Exception, _failed)
    metrics, log = Metrics(service), RequestLog(service)
    app.include_router(metrics.router())
    add_reference(app)

    def ended(origin: Origin) -> None:
        metrics.http_ended(origin)
        log.ended(origin)

    app.add_middleware(BodyLimit, most_bytes=service.settings.max_body_bytes)
    if not service.settings.keys and not service.settings.open_to_all:
        app.add_middleware(OwnNames)
    app.add_middleware(RequestIds, on_end=ended)  # the last is the outermost: whatever is refused has an id too
    return app


def problem_response(request: Request, problem: Problem) -> Response:
    """In the shape of the interface that the path belongs to."""
    path, request_id = request.url.path, request.scope.get(SCOPE_KEY, "")
    headers = {**problem.headers, **(id_headers(path, request_id) if request_id else {})}  # an unforeseen error passes the middleware by
    return JSONResponse(wire_errors.body_for(path, problem), problem.status, headers=headers)


async def _failed(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status == 500:
        traceback.print_exception(error, file=sys.stderr)
    return problem_response(request, problem)


async def _invalid(request: Request, error: Exception) -> Response:
    """A body that is no JSON, or a field of the wrong type: the first fault, with its place."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    message = f"{place}: {first['msg']}" if place else str(first["msg"])
    return problem_response(request, Problem(status=400, kind="invalid_request", message=message, param=place or None))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = "not_found" if error.status_code == 404 else "invalid_request"
    return problem_response(request, Problem(status=error.status_code, kind=kind, message=str(error.detail)))
