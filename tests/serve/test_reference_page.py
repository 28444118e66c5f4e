"""The page at ``/docs``: every route and field, and nothing from elsewhere."""

from __future__ import annotations

import re

import httpx

from serve.conftest import RunningServer
from swiftsure.serve.apis.openai.fields import fields_of
from swiftsure.serve.page.reference import render


def test_every_route_and_every_field_of_chat_is_on_the_page(server: RunningServer) -> None:
    answer = httpx.get(f"{server.url}/docs")
    assert answer.status_code == 200
    document = httpx.get(f"{server.url}/openapi.json").json()
    routes = [(method.upper(), path) for path, operations in document["paths"].items() for method in operations]
    assert re.findall(r"<h3>([A-Z]+) ([^<]+)</h3>", answer.text) == routes
    for field in fields_of("chat"):
        assert f"<dt>{field}</dt>" in answer.text


def test_the_page_loads_nothing_but_what_this_server_has(server: RunningServer) -> None:
    answer = httpx.get(f"{server.url}/docs")
    assert "<script" not in answer.text
    loaded = re.findall(r'<(?:link|img)[^>]* (?:href|src)="([^"]+)"', answer.text)
    assert loaded
    assert all(httpx.get(server.url + place).status_code == 200 for place in loaded)
    assert "script-src" not in answer.headers["content-security-policy"]
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_text_of_a_document_is_text_on_the_page() -> None:
    fields = {"a<b": {"type": "string", "description": "<script>alert(1)</script>"}, "kind": {"anyOf": [{"const": "x"}, {"type": "null"}]}}
    operation = {
        "summary": "<i>Ask</i>",
        "parameters": [{"name": "limit", "in": "query", "schema": {"type": "integer"}}],
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Ask"}}}},
    }
    document = {
        "info": {"title": "T", "version": "1"},
        "paths": {"/ask": {"post": operation, "summary": "no method"}},
        "components": {"schemas": {"Ask": {"properties": fields}}},
    }
    page = render(document)
    assert "<script" not in page
    assert "<i>" not in page
    assert "<dt>a&lt;b</dt><dd>string; &lt;script&gt;alert(1)&lt;/script&gt;</dd>" in page
    assert "<dt>kind</dt><dd>x or null</dd>" in page
    assert "<dt>limit</dt><dd>in the query: integer</dd>" in page
