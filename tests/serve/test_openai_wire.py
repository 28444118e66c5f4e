"""Chat completions and completions on the wire: the fields' table, hostile bodies, and the bytes of a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from serve.conftest import MODEL, RunningServer
from swiftsure.serve.apis.openai.fields import FIELDS, fields_of
from swiftsure.serve.parsing import Formats

ROOT = Path(__file__).parents[2]
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}

ADD: dict[str, Any] = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer", "enum": [7]}}, "required": ["a"]}},
}


def post(server: RunningServer, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json={**CHAT, **body} if path.endswith("chat/completions") else body, timeout=60)


def test_every_parameter_of_the_sdk_is_in_the_table_and_what_is_not_is_ours() -> None:
    for endpoint, module in (("chat", chat_create_params), ("completions", completion_create_params)):
        theirs = {"stream", *module.CompletionCreateParamsBase.__annotations__}
        table = fields_of(endpoint)  # type: ignore[arg-type]
        assert theirs <= set(table)
        assert {name for name, field in table.items() if field.ours} & theirs == set()
    assert len({(field.name, endpoint) for field in FIELDS for endpoint in field.endpoints}) == sum(len(f.endpoints) for f in FIELDS)


def test_the_page_of_fields_is_up_to_date() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate_api_fields.py"), "--check"], check=True)


def test_headers_say_what_the_tier_takes_and_still_takes(server: RunningServer) -> None:
    ask = {"model": MODEL, "prompt": "Hello", "max_tokens": 4}
    answers = {
        "standard": (post(server, max_tokens=4), post(server, "/v1/completions", **ask), post(server, "/v1/responses", input="Hello")),
        "priority": (post(server, service_tier="priority", stream=True), post(server, "/v1/completions", **ask, service_tier="fast")),
    }
    for tier, limits in (("standard", server.service.settings.standard), ("priority", server.service.settings.priority)):
        for answer in answers[tier]:
            told = {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit-")}
            assert told["x-ratelimit-limit-requests"] == str(limits.requests)
            assert told["x-ratelimit-limit-tokens"] == str(limits.tokens)
            assert told["x-ratelimit-remaining-requests"] == str(limits.requests - 1), "the request itself is under way"
            assert 0 <= int(told["x-ratelimit-remaining-tokens"]) < limits.tokens
            assert told["x-ratelimit-reset-requests"] == told["x-ratelimit-reset-tokens"]
            assert float(told["x-ratelimit-reset-tokens"].removesuffix("s")) > 0


def test_formats_that_a_model_is_served_with_go_before_what_its_template_shows(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = server.service.models[0]

    def serve_with(**names: str) -> None:
        monkeypatch.setattr(model, "settings", replace(model.settings, formats=Formats(**names)))

    forced = {"tools": [ADD], "tool_choice": "required", "max_tokens": 60, "temperature": 0}
    for name in ("mistral", "llama3_json"):
        serve_with(calls=name)
        answer = post(server, **forced)
        assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
    serve_with(calls="none")
    refused = post(server, **forced)
    assert refused.status_code == 400
    assert "tool calls are not parsed here" in refused.json()["error"]["message"]
    written = {"response_format": {"type": "regex", "regex": "<think>so</think>yes"}, "max_tokens": 60, "temperature": 0}
    for name, content in (("none", "<think>so</think>yes"), ("qwen3", "yes")):
        serve_with(reasoning=name)
        message = post(server, **written).json()["choices"][0]["message"]
        assert message["content"] == content


def test_a_stream_is_events_of_data_and_ends_with_done(server: RunningServer) -> None:
    response = post(server, stream=True, temperature=0)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = response.text.split("\n\n")
    assert events[-1] == ""
    assert events[-2] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in chunks[1:-1])
    assert (chunks[-1]["choices"][0]["delta"], chunks[-1]["choices"][0]["finish_reason"]) == ({}, "length")
    assert chunks[-1]["swiftsure"]["digest"]
    assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": 999999}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"top_p": 0}, "top_p"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": None, "max_completion_tokens": -3}, "max_completion_tokens"),
        ({"max_completion_tokens": 5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 10**30}, "n"),
        ({"seed": -1}, "seed"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["\ud800"]}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"5": "1"}}, "logit_bias"),
        ({"logit_bias": [1]}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options"),
        ({"stream": "yes"}, "stream"),
        ({"service_tier": "scale"}, "service_tier"),
        ({"deadline_s": 0}, "deadline_s"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"messages": ["Hello"]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [{"role": "user", "content": "\udfff"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"chat_template_kwargs": {"no_such_switch": 1}}, "chat_template_kwargs"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "response_format"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [ADD], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [ADD], "messages": [{"role": "user", "content": 5}]}, "messages"),
        ({"tools": [ADD], "tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"tempreature": 1}, "tempreature"),
    ],
)
def test_what_breaks_a_rule_is_refused_with_the_field(server: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", content=json.dumps({**CHAT, **body}), headers={"content-type": "application/json"}, timeout=60
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [10**30]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": ["a", None]}, "prompt"),
        ({"prompt": ["a"] * 3000}, "prompt"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "logprobs": 21}, "logprobs"),
        ({"prompt": "a", "logprobs": 1, "echo": True}, "echo"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "best_of": 2}, "best_of"),
        ({"prompt": "a", "messages": []}, "messages"),
    ],
)
def test_completions_refuse_alike(server: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = post(server, "/v1/completions", **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"{", "application/json", "must be JSON"),
        (b'{"temperature": NaN}', "application/json", "NaN is no JSON number"),
        (b'{"temperature": -Infinity}', "application/json", "-Infinity is no JSON number"),
        (b"[" * 200_000, "application/json", "must be JSON"),
        (b'{"seed": ' + b"9" * 10_000 + b"}", "application/json", "must be JSON"),
        (b"\xff\xfe\xfd", "application/json", "must be JSON"),
        (b"[]", "application/json", "must be a JSON object"),
        (b"", "application/json", "must be JSON"),
        (b"{}", "text/plain", "content-type: application/json"),
    ],
)
def test_what_is_no_json_object_is_refused(server: RunningServer, content: bytes, kind: str, message: str) -> None:
    answer = httpx.post(f"{server.url}/v1/chat/completions", content=content, headers={"content-type": kind}, timeout=60)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_a_body_beyond_the_limit_is_refused_announced_or_not(server: RunningServer) -> None:
    large = b'{"user": "' + b"x" * 17 * 2**20 + b'"}'
    for content in (large, iter([large])):
        answer = httpx.post(f"{server.url}/v1/completions", content=content, headers={"content-type": "application/json"}, timeout=60)
        assert answer.status_code == 413


def test_a_prompt_longer_than_the_context_is_refused_and_not_cut(server: RunningServer) -> None:
    error = post(server, "/v1/completions", prompt=[20] * 4096).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "4096 tokens" in error["message"]


def test_harmless_and_neutral_fields_change_nothing(server: RunningServer) -> None:
    plain = post(server, temperature=0).json()
    more = {
        "user": "u", "store": True, "metadata": {"a": "b"}, "tools": [], "modalities": ["text"], "response_format": {"type": "text"},
        "parallel_tool_calls": True, "verbosity": "medium", "frequency_penalty": None, "prompt_cache_key": "k",
    }  # fmt: skip
    same = post(server, temperature=0, **more).json()
    assert same["choices"] == plain["choices"]
    assert same["swiftsure"]["digest"] == plain["swiftsure"]["digest"]


def test_developer_is_system_and_hints_about_caches_are_left_out(server: RunningServer) -> None:
    def tokens(role: str, **hint: Any) -> list[int]:
        messages = [{"role": role, "content": [{"type": "text", "text": "Be brief.", **hint}]}, {"role": "user", "content": "Hello"}]
        found: list[int] = post(server, messages=messages, return_token_ids=True).json()["prompt_token_ids"]
        return found

    assert tokens("developer", cache_control={"type": "ephemeral"}) == tokens("system")
