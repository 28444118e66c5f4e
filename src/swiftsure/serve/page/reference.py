"""The page at ``/docs``: the routes and their fields, from the application's own OpenAPI document. No script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Response
from markupsafe import Markup, escape

from swiftsure.serve.page import HEADERS

PATH = "/docs"
_METHODS = ("get", "post", "put", "patch", "delete")
_STYLE = (
    "dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 18px } dt, h3 { font-family: ui-monospace, monospace } "
    "dd { margin: 0 } @media (max-width: 640px) { dl { display: block } dd { margin: 0 0 8px 18px } }"
)


def add_reference(app: FastAPI) -> None:
    """The page is made of what was added to the application before it is first asked for."""
    made: list[str] = []

    @app.get(PATH, include_in_schema=False)
    async def reference() -> Response:
        if not made:
            made.append(render(app.openapi()))
        policy = "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"
        return Response(made[0], media_type="text/html; charset=utf-8", headers={**HEADERS, "content-security-policy": policy})


def render(document: Mapping[str, Any]) -> str:
    """Of an OpenAPI document: a section for each route, its parameters, and its fields with what happens to each."""
    info = document["info"]
    sections = [
        _section(document, method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in _METHODS
    ]
    return str(
        Markup(
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<title>{title}: interfaces</title><link rel="icon" href="/page/icon.svg"><link rel="stylesheet" href="/page/style.css">'
            "<style>{style}</style></head><body><main><h1>{title} {version}: interfaces</h1>"
            '<p>As a document for tools: <a href="/openapi.json">/openapi.json</a>. The WebSocket at /v1/responses is not part of it.</p>'
            "{sections}</main></body></html>"
        ).format(title=info["title"], version=info["version"], style=Markup(_STYLE), sections=Markup("").join(sections))
    )


def _section(document: Mapping[str, Any], method: str, path: str, operation: Mapping[str, Any]) -> Markup:
    text = operation.get("description") or operation.get("summary", "")
    words = Markup('<a href="{0}">{0}</a>').format(text) if text.startswith("https://") else escape(text)
    rows = [Markup("<dt>{}</dt><dd>{}</dd>").format(name, what) for name, what in _fields(document, operation)]
    fields = Markup("<dl>{}</dl>").format(Markup("").join(rows)) if rows else Markup("")
    return Markup("<section><h3>{} {}</h3><p>{}</p>{}</section>").format(method.upper(), path, words, fields)


def _fields(document: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names, and what is known of each: its type and its description."""
    for parameter in operation.get("parameters", ()):
        yield parameter["name"], f"in the {parameter['in']}: {_type(parameter.get('schema', {}))}"
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(document, content.get("schema", {}))
        for name, field in schema.get("properties", {}).items():
            described = field.get("description")
            yield name, f"{_type(field)}; {described}" if described else _type(field)


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Any = document
    for part in str(reference).removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _type(schema: Mapping[str, Any]) -> str:
    """``string or null``, in the document's own words."""
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    kinds = schema.get("type")
    if kinds is not None:
        return kinds if isinstance(kinds, str) else " or ".join(kinds)
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    options = schema.get("anyOf") or schema.get("oneOf") or ()
    return " or ".join(_type(option) for option in options) or "any value"
