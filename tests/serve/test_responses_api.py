"""The Responses interface over HTTP: the OpenAI SDK, and bytes on the wire, against a tiny model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import response_create_params as create_params

from serve.conftest import MODEL, RunningServer
from swiftsure.serve.apis.responses import fields
from swiftsure.serve.apis.responses.items import chat_messages, read_input
from swiftsure.serve.apis.responses.output import ItemWriter
from swiftsure.serve.apis.responses.request import CreateResponse
from swiftsure.serve.apis.responses.store import Kept, ResponseStore
from swiftsure.serve.parsing import parser_for
from swiftsure.serve.problems import RefusedError

ASK: dict[str, Any] = {"model": MODEL, "input": "Hello there", "max_output_tokens": 24, "temperature": 0}
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"], "additionalProperties": False}
JSON_FORMAT = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}}}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


def post(server: RunningServer, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/responses", json={**ASK, **body}, timeout=60)


def wire_events(server: RunningServer, **body: Any) -> list[dict[str, Any]]:
    blocks = post(server, stream=True, **body).text.rstrip("\n").split("\n\n")
    pairs = [block.split("\n") for block in blocks]
    events = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [name.removeprefix("event: ") for name, _ in pairs] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


# --- the SDK --------------------------------------------------------------------------------------------------------------


def test_a_response_has_text_a_reason_to_end_and_usage_that_adds_up(client: openai.OpenAI) -> None:
    response = client.responses.create(**ASK, metadata={"for": "a test"})
    assert (response.status, response.model, response.service_tier) == ("incomplete", MODEL, "default")
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.metadata == {"for": "a test"}
    usage = response.usage
    assert usage is not None
    assert usage.output_tokens == 24
    assert usage.total_tokens == usage.input_tokens + 24
    assert usage.model_extra == {"cost": pytest.approx((usage.input_tokens * 1 + 24 * 5) / 1e6)}


def test_a_stream_builds_up_what_the_whole_response_says(client: openai.OpenAI) -> None:
    asked = {**ASK, "text": JSON_FORMAT}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        streamed = stream.get_final_response()
    assert streamed.status == whole.status == "completed"
    assert text == whole.output_text == streamed.output_text
    assert json.loads(text)["answer"] in ("yes", "no")


def test_events_come_in_the_order_of_the_interface(server: RunningServer) -> None:
    kinds = [event["type"].removeprefix("response.") for event in wire_events(server)]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert set(kinds[4:-4]) == {"output_text.delta"}


def test_a_conversation_continues_as_if_it_had_been_sent_whole(client: openai.OpenAI) -> None:
    first = client.responses.create(**ASK, instructions="Be brief.")
    more = {**ASK, "input": "And more", "instructions": "Be brief."}
    continued = client.responses.create(**more, previous_response_id=first.id)
    turns = [{"role": "user", "content": "Hello there"}, {"role": "assistant", "content": first.output_text}]
    whole = client.responses.create(**{**more, "input": [*turns, {"role": "user", "content": "And more"}]})
    assert continued.output_text == whole.output_text
    assert continued.usage is not None
    assert whole.usage is not None
    assert continued.usage.input_tokens == whole.usage.input_tokens
    items = [item.model_dump() for item in client.responses.input_items.list(continued.id, order="asc")]
    assert [item["role"] for item in items] == ["user", "assistant", "user"]
    assert client.responses.retrieve(continued.id).output_text == continued.output_text
    client.responses.delete(continued.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(continued.id)


def test_the_same_conversation_gets_the_text_of_chat_completions(client: openai.OpenAI) -> None:
    turns: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello there"}]
    sampled: Any = {"model": MODEL, "temperature": 0.9, "extra_body": {"seed": 5}}
    chat = client.chat.completions.create(messages=turns, max_tokens=40, **sampled)
    response = client.responses.create(input=turns, max_output_tokens=40, **sampled)
    assert response.output_text == chat.choices[0].message.content


def test_what_is_not_stored_cannot_be_continued_over_http(client: openai.OpenAI) -> None:
    first = client.responses.create(**ASK, store=False)
    with pytest.raises(openai.BadRequestError, match="no response") as caught:
        client.responses.create(**ASK, previous_response_id=first.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_forced_call_streams_its_arguments_and_goes_on_with_its_output(server: RunningServer, client: openai.OpenAI) -> None:
    asked = {**ASK, "tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": 80}
    events = wire_events(server, **asked)
    response = events[-1]["response"]
    call = response["output"][-1]
    assert (call["type"], call["name"], response["status"]) == ("function_call", "weather", "completed")
    deltas = "".join(event["delta"] for event in events if event["type"] == "response.function_call_arguments.delta")
    assert deltas == call["arguments"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    more = {**ASK, "previous_response_id": response["id"], "tools": [WEATHER], "tool_choice": "none"}
    assert client.responses.create(**{**more, "input": [output]}).output_text
    with pytest.raises(openai.BadRequestError, match="no output is given for the function call"):
        client.responses.create(**more)


def test_each_token_has_its_log_probability_where_asked(client: openai.OpenAI) -> None:
    response = client.responses.create(**ASK, include=["message.output_text.logprobs"], top_logprobs=2)
    part = response.output[0].to_dict()["content"][0]  # type: ignore[index]
    assert len(part["logprobs"]) == 24
    assert all(len(entry["top_logprobs"]) == 2 and entry["logprob"] <= 0 for entry in part["logprobs"])


def test_priority_is_served_and_said(client: openai.OpenAI) -> None:
    assert client.responses.create(**ASK, service_tier="priority").service_tier == "priority"


# --- fields ---------------------------------------------------------------------------------------------------------------


def test_every_field_of_the_sdk_has_its_fate() -> None:
    kinds = (create_params.ResponseCreateParamsBase, create_params.ResponseCreateParamsStreaming)
    known = {name for kind in kinds for name in _names(kind)}
    fates = [set(fields.HONOURED), set(fields.HARMLESS), set(fields.REFUSED)]
    assert known <= set.union(*fates)
    assert sum(map(len, fates)) == len(set.union(*fates))
    assert set(CreateResponse.model_fields) == set(fields.HONOURED)


def _names(kind: Any) -> set[str]:
    return set(kind.__required_keys__ | kind.__optional_keys__)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"include": ["file_search_call.results"]}, "include"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input"),
        ({"input": []}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"frequency_penalty": 1.0}, "frequency_penalty"),
        ({"service_tier": "ultrafast"}, "service_tier"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_done_is_refused_by_name(server: RunningServer, body: dict[str, Any], param: str) -> None:
    answer = post(server, **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_schema_that_cannot_be_kept_to_is_refused_before_a_stream_begins(server: RunningServer) -> None:
    answer = post(server, stream=True, text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "nonsense"}}})
    assert answer.status_code == 400
    assert "nonsense" in answer.json()["error"]["message"]


def test_what_is_harmless_is_named_in_a_header(server: RunningServer) -> None:
    assert post(server, user="me", prompt_cache_key="k").headers["swiftsure-ignored"] == "user, prompt_cache_key"


# --- pieces ---------------------------------------------------------------------------------------------------------------


def test_reasoning_text_and_calls_of_a_row_are_one_turn() -> None:
    items = read_input(
        [
            {"role": "developer", "content": "Rules"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]},
        ]
    )
    system, turn, result = chat_messages(None, items)
    assert system == {"role": "system", "content": "Rules"}
    assert (turn["reasoning_content"], turn["content"], len(turn["tool_calls"])) == ("hm", "I look.", 1)
    assert (result["tool_call_id"], result["content"]) == ("c1", "1")
    with pytest.raises(RefusedError, match="no function call"):
        chat_messages(None, items[-1:])


def test_reasoning_comes_as_an_item_of_its_own() -> None:
    writer = ItemWriter(parser_for("<think></think>"))
    events = [event for text in ("<think>one ", "two</think>\n\n", "three") for event in writer.feed(text)] + writer.finish("completed")
    assert [item["type"] for item in writer.output] == ["reasoning", "message"]
    assert writer.output[0]["content"] == [{"type": "reasoning_text", "text": "one two"}]
    assert writer.output[1]["content"][0]["text"] == "three"
    deltas = [event["delta"] for event in events if event["type"] == "response.reasoning_text.delta"]
    assert "".join(deltas) == "one two"


def test_the_store_lets_the_least_used_go_and_keeps_owners_apart() -> None:
    def kept(name: str, owner: str | None = None, text: str = "") -> Kept:
        return Kept(response={"id": name, "output": [], "text": text}, context=(), owner=owner)

    store = ResponseStore(max_responses=2, max_bytes=1000)
    for name in ("a", "b"):
        store.add(kept(name))
    assert store.get("a", None)
    store.add(kept("c", owner="alice"))
    assert store.get("b", None) is None
    assert store.get("c", "bob") is None
    assert store.get("c", "alice")
    store.add(kept("d", text="x" * 940))
    assert (len(store), store.get("a", None)) == (1, None)
    store.add(kept("e", text="x" * 2000))
    assert store.get("d", None)
