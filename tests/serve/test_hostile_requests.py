"""Requests that break things elsewhere: every one is answered or refused in a client's terms, and hurts nobody else."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import httpx
import pytest

from serve.conftest import MODEL, RunningServer
from swiftsure.engine.sampling import MAX_BIASED_TOKENS, MAX_STOP_CHARACTERS
from swiftsure.serve import service as service_module

MESSAGES = [{"role": "user", "content": "Hi"}]
CHAT = {"model": MODEL, "messages": MESSAGES, "max_tokens": 2}
BASES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": MODEL, "prompt": "Hi", "max_tokens": 2},
    "/v1/messages": CHAT,
    "/v1/messages/count_tokens": {"model": MODEL, "messages": MESSAGES},
    "/v1/responses": {"model": MODEL, "input": "Hi", "max_output_tokens": 2},
    "/tokenize": {"model": MODEL, "prompt": "Hi"},
}
LENGTHS = {"max_tokens", "max_completion_tokens", "max_output_tokens", "n"}  # a value that is right may take long
VALUES: list[Any] = [
    *(None, True, 0, -1, 2**64, 10**30, 1e308, math.nan, math.inf, "", "\ud800", "9" * 5000),
    *([], {}, [None], [[]], [{}], {"": {}}, [1e9], {"type": "x"}, [{"type": "text"}], ["\udfff"]),
]


def fields_of(server: RunningServer, path: str) -> list[str]:
    spec = httpx.get(f"{server.url}/openapi.json").json()
    schema = spec["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    while "$ref" in schema:
        schema = spec["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return sorted({*schema.get("properties", {}), *BASES[path], "unheard_of"})


def refused(answer: httpx.Response) -> str:
    """The message of a refusal in a client's terms."""
    assert 400 <= answer.status_code < 500, answer.text[:300]
    message = answer.json()["error"]["message"]
    assert 0 < len(message) < 3000
    return str(message)


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Any:
    with httpx.Client(base_url=server.url, timeout=120) as one:
        yield one


@pytest.mark.parametrize("path", BASES)
def test_no_value_of_any_field_is_the_servers_fault(server: RunningServer, client: httpx.Client, path: str) -> None:
    for field in fields_of(server, path):
        for value in VALUES:
            if field in LENGTHS and isinstance(value, (int, float)) and not isinstance(value, bool) and value > 100:
                continue
            content = json.dumps({**BASES[path], field: value}).encode()
            answer = client.post(path, content=content, headers={"content-type": "application/json"})
            if answer.status_code != 200:
                refused(answer)
    assert client.get("/ready").status_code == 200


@pytest.mark.parametrize("path", BASES)
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b'"x"', b"\x00", b"{", b"\xff\xfe", b'{"a":' * 50_000, b"[" * 50_000, b"[" * 900 + b"]" * 900),
        *(b'{"messages":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b'{"max_tokens":' + b"9" * 5000 + b"}", b'{"temperature":1e999}'),
    ],
    ids=range(13),
)
def test_a_body_that_makes_no_sense_is_refused(client: httpx.Client, path: str, body: bytes) -> None:
    refused(client.post(path, content=body, headers={"content-type": "application/json"}))


def test_a_compressed_body_is_refused_by_the_name_of_its_header(client: httpx.Client) -> None:
    answer = client.post("/v1/messages", content=b"\x1f\x8b" + b"x" * 100, headers={"content-encoding": "gzip"})
    assert answer.status_code == 415
    assert "without content-encoding, got gzip" in refused(answer)
    assert client.post("/v1/chat/completions", json=CHAT, headers={"content-encoding": "identity"}).status_code == 200


def test_stop_strings_and_biases_that_cost_others_time_are_refused(client: httpx.Client) -> None:
    answer = client.post("/v1/chat/completions", json={**CHAT, "stop": ["x" * (MAX_STOP_CHARACTERS + 1)]})
    assert "stop must hold strings of at most 4096 characters, got 4097" in refused(answer)
    assert "at most 16 strings, got 10000" in refused(client.post("/v1/chat/completions", json={**CHAT, "stop": ["x"] * 10_000}))
    bias = {str(token): 1 for token in range(MAX_BIASED_TOKENS + 1)}
    answer = client.post("/v1/chat/completions", json={**CHAT, "logit_bias": bias})
    assert "logit_bias must hold at most 4096 tokens, got 4097" in refused(answer)


def test_a_grammar_that_exceeds_its_limits_on_the_way_is_the_requests_own_fault(server: RunningServer, client: httpx.Client) -> None:
    """503 would have clients send it again and again."""
    pytest.importorskip("llguidance")
    ambiguous = {"type": "grammar", "grammar": 'start: s\ns: s s | s s s | "a" | ""'}
    never_ends = {str(token): -100 for token in server.service.models[0].model.tokenizer.eos_ids}
    body = {**CHAT, "max_tokens": 400, "logit_bias": never_ends, "response_format": ambiguous}
    answer = client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert "the grammar" in refused(answer)
    endless = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "#"}}}
    answer = client.post("/v1/chat/completions", json={**CHAT, "response_format": endless})
    assert "refers to itself without reading anything" in refused(answer)
    assert client.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_other_threads_go_on_while_a_long_text_is_tokenized(server: RunningServer) -> None:
    """A tokenizer that keeps the interpreter's lock stops the server, its streams and its probes, for as long as the text takes."""
    ticks, done = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    watcher = threading.Thread(target=tick)
    watcher.start()
    model = server.service.models[0].model
    before = ticks
    ids = model.tokenizer.encode("word and another word, then " * 40_000, special=False)
    found = ticks - before
    done.set()
    watcher.join()
    assert len(ids) > 100_000
    assert found > 10


def test_long_texts_wait_for_each_other_alone(server: RunningServer, client: httpx.Client) -> None:
    free, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        free.wait(60)

    server.service._long_texts.submit(hold)
    assert held.wait(60)
    answers: list[int] = []
    long = "word " * (service_module._LONG_CHARACTERS // 4)
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{server.url}/tokenize", json={"prompt": long}, timeout=120).status_code)
    )
    asking.start()
    for _ in range(3):
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
    assert not answers
    free.set()
    asking.join()
    assert answers == [200] or answers == [400]
