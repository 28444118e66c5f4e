"""Metrics and log lines add up to the requests that were sent, and hold no text of users."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from serve.conftest import MODEL, RunningServer, running_server
from swiftsure.serve.metrics import gaps
from swiftsure.serve.origin import request_id_of
from swiftsure.serve.settings import ServeSettings

SECRET = "Tell nobody"
ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 12, "temperature": 0, "messages": [{"role": "user", "content": SECRET}]}


@pytest.fixture
def fresh(tiny_settings: Callable[..., ServeSettings]) -> Iterator[RunningServer]:
    with running_server(tiny_settings(log_json=True)) as running:
        yield running


def post(server: RunningServer, headers: dict[str, str] | None = None, **changes: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/messages", json={**ASK, **changes}, headers=headers, timeout=60)


def samples(server: RunningServer) -> dict[tuple[str, frozenset[str]], float]:
    """Values by name and the values of all labels."""
    text = httpx.get(f"{server.url}/metrics").text
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_is_asked_of_a_kept_response_is_counted_by_a_name_of_its_own(fresh: RunningServer) -> None:
    for path in ("/v1/responses/resp_1", "/v1/responses/resp_2/input_items"):
        assert httpx.get(fresh.url + path).status_code == 404
    assert httpx.get(f"{fresh.url}/v1/models/{MODEL}").status_code == 200
    found = samples(fresh)
    assert found["swiftsure_http_requests_total", frozenset({"kept_responses", "404"})] == 2
    assert found["swiftsure_http_requests_total", frozenset({"models", "200"})] == 1


def test_metrics_and_log_add_up_after_known_requests(fresh: RunningServer, capfd: pytest.CaptureFixture[str]) -> None:
    whole = [post(fresh), post(fresh, headers={"x-request-id": "mine-1"}), post(fresh, stream=True), post(fresh, speed="fast")]
    refused = post(fresh, top_k=-1)
    assert [answer.status_code for answer in (*whole, refused)] == [200, 200, 200, 200, 400]
    found = samples(fresh)

    def value(name: str, *labels: str) -> float:
        return found[f"swiftsure_{name}", frozenset(labels)]

    prompt = sum(whole[0].json()["usage"][name] for name in ("input_tokens", "cache_read_input_tokens"))
    assert value("http_requests_total", "messages", "200") == 4
    assert value("http_requests_total", "messages", "400") == 1
    for tier, count in (("standard", 3), ("priority", 1)):
        assert value("requests_total", MODEL, "messages", tier, "length") == count
        assert value("prompt_tokens_total", MODEL, tier) == count * prompt
        assert value("generation_tokens_total", MODEL, tier) == count * 12
        assert value("time_to_first_token_seconds_count", MODEL, tier) == count
        assert value("inter_token_latency_seconds_count", MODEL, tier) == count * 11
        assert value("request_queue_time_seconds_count", MODEL, tier) == count
        first, rest, all_ = (
            value(f"{name}_seconds_sum", MODEL, tier) for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency")
        )
        assert first + rest <= all_
        assert value("cost_total", MODEL, tier) == pytest.approx(count * (prompt + 12 * 5) / 1e6 * (6 if tier == "priority" else 1))
        assert value("lane_requests", MODEL, tier) == 0
    assert value("lane_requests_limit", MODEL, "priority") == 2
    assert value("engine_ready", MODEL) == 1
    assert value("engine_tokens_total", MODEL) == 4 * 12
    facts = fresh.service.model(MODEL).facts
    assert value("mode_active", MODEL, "exact", facts.numerics, facts.isa, facts.weights_sha256) == 1
    assert value("lever_occasions_total", MODEL, "speculation") >= 0

    err = capfd.readouterr().err
    lines = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert [line["status"] for line in lines] == [200, 200, 200, 200, 400]
    assert [line["id"] for line in lines] == [answer.headers["x-request-id"] for answer in (*whole, refused)]
    assert lines[1]["id"] == "mine-1" == whole[1].headers["request-id"]
    assert [line.get("tier") for line in lines] == ["standard"] * 3 + ["priority", None]
    assert all((line["prompt_tokens"], line["output_tokens"], line["outcome"]) == (prompt, 12, "length") for line in lines[:4])
    assert all(0 < line["ttft_s"] <= line["wall_s"] for line in lines[:4])
    assert SECRET not in err


def test_an_unforeseen_error_says_nothing_of_its_inside_but_has_an_id(
    fresh: RunningServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("the inside")

    monkeypatch.setattr(fresh.service, "model", fail)
    answer = post(fresh, headers={"x-request-id": "mine-2"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "api_error")
    assert answer.headers["x-request-id"] == answer.headers["request-id"] == "mine-2"
    assert "the inside" not in answer.text
    line = next(json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{"))
    assert (line["id"], line["status"]) == ("mine-2", 500)


def test_tokens_that_come_together_have_waited_once() -> None:
    assert list(gaps([])) == []
    assert list(gaps([(1.0, 3), (1.5, 1), (2.5, 2)])) == [0.0, 0.0, 0.5, 1.0, 0.0]


def test_an_id_that_could_write_log_lines_of_its_own_is_replaced() -> None:
    assert request_id_of("trace:1.a-b_C") == "trace:1.a-b_C"
    for bad in (None, "", "a b", "a\nid=x", "x" * 129, "\u00e9"):
        assert request_id_of(bad).startswith("req_")
