"""The Messages interface, end to end: the Anthropic SDK, and bytes on the wire, against a tiny model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import MessageCreateParams, message_count_tokens_params
from anthropic.types.beta import message_create_params as beta_params

from serve.conftest import MODEL, RunningServer
from swiftsure.engine.sampling import SamplingParams
from swiftsure.serve.apis.anthropic import fields
from swiftsure.serve.apis.anthropic.reply import BlockWriter, folded
from swiftsure.serve.parsing import parser_for

ASK: dict[str, Any] = {"model": MODEL, "max_tokens": 24, "messages": [{"role": "user", "content": "Hello there"}]}
TOOL: dict[str, Any] = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"carry": {"type": "boolean"}}, "required": ["carry"]},
}
GREEDY: dict[str, Any] = {"temperature": 0}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60) as one:
        yield one


def post(server: RunningServer, path: str = "/v1/messages", headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return httpx.post(server.url + path, json={**ASK, **body}, headers=headers, timeout=60)


def wire_events(server: RunningServer, **body: Any) -> list[tuple[str, dict[str, Any]]]:
    text = post(server, stream=True, **body).text
    assert text.endswith("\n\n")
    parts = [block.split("\n") for block in text.rstrip("\n").split("\n\n")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


# --- the SDK --------------------------------------------------------------------------------------------------------------


def test_a_message_has_text_a_stop_reason_and_usage_that_adds_up(client: anthropic.Anthropic) -> None:
    message = client.messages.create(**ASK, extra_body=GREEDY)
    counted = client.messages.count_tokens(model=MODEL, messages=ASK["messages"])
    assert (message.role, message.model, message.stop_reason) == ("assistant", MODEL, "max_tokens")
    assert message.content[0].type == "text"
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted.input_tokens
    assert (usage.output_tokens, usage.service_tier, usage.speed) == (24, "standard", "standard")
    assert usage.model_extra == {"cost": pytest.approx((counted.input_tokens * 1 + 24 * 5) / 1e6)}


def test_a_stream_says_what_the_whole_answer_says(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**ASK, extra_body={"seed": 7})
    with client.messages.stream(**ASK, extra_body={"seed": 7}) as stream:
        text = "".join(stream.text_stream)
        streamed = stream.get_final_message()
    assert text == whole.content[0].text == streamed.content[0].text
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_the_answers_digest_is_that_of_the_same_request_again(server: RunningServer) -> None:
    first, second = (post(server, seed=3).json()["swiftsure"] for _ in range(2))
    assert first == second
    assert first["digest"]
    assert first["mode"] == "exact"


def test_a_stop_sequence_ends_the_text_and_is_named(client: anthropic.Anthropic) -> None:
    text = client.messages.create(**ASK, extra_body=GREEDY).content[0].text
    stop = text[len(text) // 2 :][:2]
    message = client.messages.create(**ASK, stop_sequences=["never said", stop], extra_body=GREEDY)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert message.content[0].text == text[: text.index(stop)]


def test_fast_is_the_priority_tier_and_says_so_in_usage_and_headers(client: anthropic.Anthropic) -> None:
    raw = client.beta.messages.with_raw_response.create(**ASK, speed="fast", betas=["fast-mode-2026-02-01"])
    message = raw.parse()
    assert (message.usage.speed, message.usage.service_tier) == ("fast", "priority")
    for kind in ("input", "output"):
        assert raw.headers[f"anthropic-fast-{kind}-tokens-limit"] == "2000"
        assert 0 < int(raw.headers[f"anthropic-fast-{kind}-tokens-remaining"]) < 2000
        assert raw.headers[f"anthropic-fast-{kind}-tokens-reset"].endswith("Z")
    assert "swiftsure-ignored" not in raw.headers


def test_a_full_fast_lane_answers_429_with_a_time_and_never_serves_as_standard(server: RunningServer, client: anthropic.Anthropic) -> None:
    model = server.service.model(MODEL)
    ids = tuple(range(20, 40))
    long = SamplingParams(max_tokens=900, ignore_eos=True, seed=1)
    answers = server.on_loop(lambda: [model.submit(ids, long, tier="priority") for _ in range(2)])
    try:
        with pytest.raises(anthropic.RateLimitError) as caught:
            client.messages.create(**ASK, speed="fast")
    finally:
        server.on_loop(lambda: [answer.cancel() for answer in answers])
    assert int(caught.value.response.headers["retry-after"]) >= 1
    assert caught.value.response.headers["anthropic-fast-input-tokens-limit"] == "2000"
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    until(lambda: model.lanes["priority"].requests == 0)


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "add"}])
def test_a_forced_tool_is_called_with_arguments_of_its_schema(client: anthropic.Anthropic, choice: Any) -> None:
    ask: dict[str, Any] = {**ASK, "max_tokens": 200, "tools": [TOOL], "tool_choice": choice, "extra_body": {"seed": 2}}
    whole = client.messages.create(**ask)
    with client.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        (block,) = message.content
        assert (message.stop_reason, block.type) == ("tool_use", "tool_use")
        assert (block.name, list(block.input)) == ("add", ["carry"])
        assert isinstance(block.input["carry"], bool)
    assert whole.content[0].input == streamed.content[0].input


def test_an_output_format_is_kept_to(client: anthropic.Anthropic) -> None:
    config: Any = {"format": {"type": "json_schema", "schema": {**TOOL["input_schema"], "additionalProperties": False}}}
    message = client.messages.create(**{**ASK, "max_tokens": 200}, output_config=config, extra_body={"seed": 4})
    assert message.stop_reason == "end_turn"
    assert list(json.loads(message.content[0].text)) == ["carry"]


def test_errors_come_as_the_sdks_own_exceptions(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="no model 'claude-opus'"):
        client.messages.create(**{**ASK, "model": "claude-opus"})
    with pytest.raises(anthropic.BadRequestError, match="top_p must be"):
        client.messages.create(**ASK, extra_body={"top_p": -1})


def test_a_client_that_leaves_ends_its_job(server: RunningServer) -> None:
    ended: list[str] = []
    seen = server.service.listeners
    seen.append(lambda model, answer: ended.append(answer.outcome.finish_reason if answer.outcome else str(answer.error)))
    body = {**ASK, "max_tokens": 3800, **GREEDY}
    try:
        with httpx.stream("POST", f"{server.url}/v1/messages", json={**body, "stream": True}) as response:
            next(response.iter_raw())
        until(lambda: ended == ["cancelled"])
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/messages", json=body, timeout=0.05)
        until(lambda: ended == ["cancelled", "cancelled"])
    finally:
        seen.pop()


# --- the wire -------------------------------------------------------------------------------------------------------------


def test_events_come_in_the_order_of_the_interface(server: RunningServer) -> None:
    events = wire_events(server, temperature=0)
    names = [name for name, _ in events]
    assert names[:4] == ["message_start", "content_block_start", "ping", "content_block_delta"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[4:-3]) <= {"content_block_delta", "ping"}
    assert all(data["type"] == name for name, data in events)
    start, delta = events[0][1]["message"], events[-2][1]
    assert (start["content"], start["stop_reason"], start["usage"]["output_tokens"]) == ([], None, 0)
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == 24


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers is not supported"),
        ({"max_token": 3}, "did you mean max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"speed": "fast", "service_tier": "standard_only"}, "speed fast"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "thinking.budget_tokens"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
        ({"output_config": {"effort": "high"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}}, "nothing"),
        ({"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "disable_parallel_tool_use"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "subtract"}}, "'subtract'"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, "prefill"),
        ({"messages": []}, "at least 1 message"),
        ({"stop_sequences": [""]}, "stop"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(server: RunningServer, change: dict[str, Any], named: str) -> None:
    answer = post(server, **change)
    assert answer.status_code == 400
    error = answer.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert named in error["error"]["message"]


def test_harmless_fields_and_betas_are_said_to_be_ignored(server: RunningServer) -> None:
    answer = post(server, headers={"anthropic-beta": "fast-mode-2026-02-01,other-1"}, metadata={"user_id": "x"}, max_tokens=1)
    assert answer.status_code == 200
    assert answer.headers["swiftsure-ignored"] == "anthropic-beta=other-1, metadata"
    assert post(server, headers={"anthropic-version": "2023-01-01"}).status_code == 400


def test_a_conversation_with_tools_and_results_is_one_prompt(client: anthropic.Anthropic) -> None:
    tools = [{"name": "add", "description": "Adds.", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
    history = [
        {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "3"}]}]},
    ]
    counted = client.messages.count_tokens(model=MODEL, messages=history, tools=tools)
    shorter = client.messages.count_tokens(model=MODEL, messages=history[:1], tools=tools)
    assert counted.input_tokens > shorter.input_tokens > client.messages.count_tokens(model=MODEL, messages=history[:1]).input_tokens


# --- the translation ------------------------------------------------------------------------------------------------------


def test_reasoning_and_calls_become_blocks_however_the_text_is_cut() -> None:
    text = '<think>\nWell.\n</think>\n\nI add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    tools = [{"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
    for size in (1, 7, len(text)):
        writer = BlockWriter(parser_for("<think></think><tool_call>", tools=tools), thinking_shown=True)
        events = [event for at in range(0, len(text), size) for event in writer.feed(text[at : at + size])]
        events += writer.finish()
        thinking, said, call = folded(events)
        assert (thinking["type"], thinking["thinking"]) == ("thinking", "Well.")
        assert len(thinking["signature"]) == 64
        assert said == {"type": "text", "text": "I add."}
        assert (call["type"], call["name"], call["input"]) == ("tool_use", "add", {"a": 1})
        assert writer.called
        starts = [event["index"] for event in events if event["type"] == "content_block_start"]
        assert starts == [event["index"] for event in events if event["type"] == "content_block_stop"] == [0, 1, 2]


def test_every_field_of_the_sdk_is_honoured_refused_or_listed_as_harmless() -> None:
    known = fields.HONOURED | fields.HARMLESS.keys() | fields.REFUSED.keys()
    for params in (
        *MessageCreateParams.__args__,
        *beta_params.MessageCreateParams.__args__,
        message_count_tokens_params.MessageCountTokensParams,
    ):
        assert params.__required_keys__ | params.__optional_keys__ <= known
    assert not fields.HONOURED & (fields.HARMLESS.keys() | fields.REFUSED.keys())
    tool = anthropic.types.ToolParam
    listed = fields.TOOL_HONOURED | fields.TOOL_HARMLESS.keys() | fields.TOOL_REFUSED.keys()
    assert tool.__required_keys__ | tool.__optional_keys__ == listed


def until(reached: Any) -> None:
    for _ in range(1000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")
