"""The Responses interface as a WebSocket: the OpenAI SDK's ``responses.connect()``, and the bare websockets client."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from serve.conftest import MODEL, RunningServer, running_server
from swiftsure.serve.apis.responses import socket as socket_module
from swiftsure.serve.settings import ApiKey, ServeSettings

ASK: dict[str, Any] = {"model": MODEL, "input": "Hello there", "max_output_tokens": 24, "temperature": 0}
LONG = 3000
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


@contextmanager
def socket_to(server: RunningServer, **fields: Any) -> Iterator[ClientConnection]:
    with connect(server.url.replace("http", "ws") + "/v1/responses", proxy=None, **fields) as socket:
        yield socket


def create(socket: ClientConnection, **body: Any) -> None:
    socket.send(json.dumps({"type": "response.create", **ASK, **body}))


def read(socket: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(socket.recv(timeout=60))
    return event


def read_until(socket: ClientConnection, *kinds: str) -> dict[str, Any]:
    while (event := read(socket))["type"] not in kinds:
        pass
    return event


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_an_idle_connection_is_closed_and_one_with_a_response_under_way_is_not(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "IDLE_S", 0.2)
    with socket_to(server) as socket:
        create(socket, max_output_tokens=LONG)
        events = 0
        while read(socket)["type"] not in ENDS:  # far longer than the limit, without a frame
            events += 1
        assert events > 10
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1001, "idle for 0 s")


def test_a_client_that_takes_no_events_is_let_go_and_its_responses_end(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_module, "SEND_S", 0.3)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
        with connect("ws://127.0.0.1/v1/responses", sock=slow, proxy=None, max_queue=1) as client:
            for lane in range(20):
                create(client, max_output_tokens=LONG, stream_id=str(lane), include=["message.output_text.logprobs"], top_logprobs=20)
            until(lambda: server.service.under_way > 0)
            until(lambda: server.service.under_way == 0)


# --- the SDK --------------------------------------------------------------------------------------------------------------


def test_turns_on_a_connection_say_what_http_says_stored_or_not(client: openai.OpenAI) -> None:
    first = client.responses.create(**ASK)
    second = client.responses.create(**{**ASK, "input": "And more"}, previous_response_id=first.id)
    with client.responses.connect() as connection:
        texts, previous = [], None
        for text in ("Hello there", "And more"):
            asked = {**ASK, "input": text, "store": False, **({"previous_response_id": previous} if previous else {})}
            connection.response.create(**asked)
            for number, event in enumerate(connection):
                assert event.sequence_number == number
                if event.type in ENDS:
                    assert event.type == "response.incomplete"
                    break
            texts.append(event.response.output_text)
            previous = event.response.id
    assert texts == [first.output_text, second.output_text]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(str(previous))


def test_a_later_turn_reads_its_prefix_from_the_cache(client: openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        previous, cached = None, []
        for turn in range(2):
            more = {} if previous is None else {"previous_response_id": previous}
            connection.response.create(**{**ASK, "input": f"Turn {turn} " + "with many words " * 60, **more})
            event = next(event for event in connection if event.type in ENDS)
            previous = event.response.id
            cached.append(event.response.usage.input_tokens_details.cached_tokens)
    assert cached[1] > 512


def test_steering_ends_a_response_at_a_token_and_goes_on_with_the_input(client: openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(**{**ASK, "max_output_tokens": LONG})
        seen: list[Any] = []
        target, told = None, False
        for event in connection:
            seen.append(event)
            target = target or (event.response.id if event.type == "response.created" else None)
            if event.type == "response.output_text.delta" and not told:
                told = True
                connection.response.steer(input="Now something else", previous_response_id=target)
            if event.type in ENDS and event.response.id != target:
                break
            if event.type == "response.created" and event.response.id != target:
                connection.response.steer(input="Stop", previous_response_id=event.response.id)
                target_2 = event.response.id
            if event.type in ENDS and event.response.previous_response_id == target:
                break
    kinds = [event.type for event in seen]
    steered = next(event.response for event in seen if event.type in ENDS)
    assert kinds.index("response.steer.accepted") < kinds.index("response.incomplete")
    assert (steered.id, steered.incomplete_details.reason) == (target, "steered")
    assert steered.usage.output_tokens < LONG
    assert seen[-1].response.id == target_2
    assert seen[-1].response.previous_response_id == target
    assert seen[-1].response.max_output_tokens == LONG


# --- the bare client ------------------------------------------------------------------------------------------------------


def test_lanes_run_beside_each_other_and_fork_from_one_response(server: RunningServer) -> None:
    with socket_to(server) as socket:
        create(socket)
        root = read_until(socket, *ENDS)["response"]
        texts = {}
        for lane in ("a", "b", "c"):
            create(socket, input=f"Way {lane}", previous_response_id=root["id"], stream_id=lane)
        numbers: dict[str, int] = {}
        while len(texts) < 3:
            event = read(socket)
            lane = event["stream_id"]
            assert event["sequence_number"] == numbers.get(lane, 0)
            numbers[lane] = event["sequence_number"] + 1
            if event["type"] in ENDS:
                texts[lane] = event["response"]["output"][0]["content"][0]["text"]
        for lane, text in texts.items():
            create(socket, input=f"Way {lane}", previous_response_id=root["id"])
            assert read_until(socket, *ENDS)["response"]["output"][0]["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        ("not json", "JSON object"),
        ("[1]", "JSON object"),
        (b"\x00\xff", "text frame"),
        ("{}", "type must be"),
        ('{"type": "response.create"}', "input is missing"),
        ('{"type": "response.create", "input": 5}', "input"),
        ('{"type": "response.create", "input": "x", "model": "other"}', "no model"),
        ('{"type": "response.create", "input": "x", "stream_id": 7}', "stream_id"),
        ('{"type": "response.create", "input": "x", "background": true}', "background"),
        ('{"type": "response.create", "input": "x", "previous_response_id": "resp_0"}', "no response"),
        ("[" * 100_000, "JSON object"),
    ],
    ids=range(11),
)
def test_a_frame_that_makes_no_sense_is_told_so_and_the_connection_stays(server: RunningServer, frame: Any, says: str) -> None:
    with socket_to(server) as socket:
        socket.send(frame)
        error = read(socket)
        assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
        assert 400 <= error["status"] < 500
        assert says in error["error"]["message"]
        create(socket, max_output_tokens=1)
        assert read_until(socket, *ENDS)["type"] == "response.incomplete"


def test_who_leaves_ends_its_own_responses_and_no_others(server: RunningServer) -> None:
    lane = server.service.models[0].lanes["standard"]
    with socket_to(server) as stays:
        with socket_to(server) as leaves:
            for name in ("a", "b"):
                create(leaves, stream_id=name, max_output_tokens=LONG)
            create(stays, max_output_tokens=200)
            read_until(leaves, "response.output_text.delta")
        assert read_until(stays, *ENDS)["response"]["usage"]["output_tokens"] == 200
    until(lambda: server.on_loop(lambda: lane.requests) == 0)


def test_steering_of_what_does_not_run_gives_the_input_back(server: RunningServer) -> None:
    with socket_to(server) as socket:
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": "resp_0", "input": "x"}))
        failed = read(socket)
        assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "response_not_found")
        assert failed["steer"] == {"previous_response_id": "resp_0", "input": "x"}
        create(socket, max_output_tokens=1)
        done = read_until(socket, *ENDS)["response"]["id"]
        time.sleep(0.05)  # it ends a moment after its last event
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": done, "input": "x"}))
        assert read(socket)["error"]["code"] == "response_already_completed"


def test_frame_sizes_and_origins_are_held_to(tiny_settings: Callable[..., ServeSettings]) -> None:
    with running_server(tiny_settings(max_body_bytes=4096)) as server:
        with socket_to(server) as socket:
            create(socket, input="x" * 5000)
            assert read(socket)["error"]["code"] == "message_too_big"
            create(socket, max_output_tokens=1)
            assert read_until(socket, *ENDS)["type"] == "response.incomplete"
        with pytest.raises(InvalidStatus) as caught, socket_to(server, origin="http://elsewhere.example"):  # type: ignore[arg-type]
            pass
        assert caught.value.response.status_code == 403


def test_a_key_comes_in_the_header_and_responses_stay_its_own(tiny_settings: Callable[..., ServeSettings]) -> None:
    keys = {name: f"secret-of-{name}-0123456789" for name in ("alice", "bob")}
    known = tuple(ApiKey(name=name, sha256=hashlib.sha256(key.encode()).digest()) for name, key in keys.items())
    with running_server(tiny_settings(keys=known)) as server:
        with pytest.raises(InvalidStatus) as caught, socket_to(server):
            pass
        assert caught.value.response.status_code == 401
        with socket_to(server, additional_headers={"authorization": f"Bearer {keys['alice']}"}) as alice:
            create(alice)
            made = read_until(alice, *ENDS)["response"]["id"]
        with socket_to(server, additional_headers={"authorization": f"Bearer {keys['bob']}"}) as bob:
            create(bob, previous_response_id=made)
            assert read(bob)["error"]["code"] == "previous_response_not_found"


def test_a_frame_beyond_every_limit_ends_the_connection(server: RunningServer) -> None:
    with socket_to(server) as socket:
        with contextlib.suppress(ConnectionClosed):  # it may end while the frame is sent
            socket.send("x" * (40 * 2**20))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)


def test_steering_waits_for_the_output_of_calls_and_goes_in_front_of_it(server: RunningServer) -> None:
    names = {"enum": ["a long name of a city " * 20 + end for end in ("one", "two")]}
    tool = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {"city": names}, "required": ["city"]}}
    forced = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_output_tokens": LONG}
    with socket_to(server) as socket:
        create(socket, **forced)
        parent = read_until(socket, "response.created")["response"]["id"]
        read_until(socket, "response.function_call_arguments.delta")
        socket.send(json.dumps({"type": "response.steer", "previous_response_id": parent, "input": "In short"}))
        steer = read_until(socket, "response.steer.accepted")["steer"]
        assert read_until(socket, *ENDS)["type"] == "response.completed"
        pending = read(socket)
        assert (pending["type"], pending["steer"]) == ("response.steer.pending", steer)
        stub = pending["required_input"][0]
        assert stub["name"] == "weather"
        create(socket, input=[{**stub, "output": "sunny"}], previous_response_id=parent)
        successor = read_until(socket, *ENDS)["response"]
        assert successor["previous_response_id"] == parent
        assert successor["status"] == "incomplete"
