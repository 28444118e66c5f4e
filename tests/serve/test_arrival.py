"""Requests that do not end, connections that are kept: what a listener owes to clients, and what it does not."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import httpx
import pytest

from serve.conftest import MODEL, RunningServer, running_server
from swiftsure.serve.listening import KEEP_ALIVE_S, listener
from swiftsure.serve.settings import ServeSettings

CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
ANNOUNCED = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"


@pytest.fixture(scope="module")
def hasty(tiny_settings: Callable[..., ServeSettings]) -> Iterator[RunningServer]:
    with running_server(tiny_settings(arrival_s=0.5)) as running:
        yield running


def _connect(server: RunningServer) -> socket.socket:
    place = urlsplit(server.url)
    return socket.create_connection((place.hostname, place.port), timeout=60)


def _rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    found = b""
    while part := connection.recv(65536):
        found += part
    return found


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /v1/mess", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", CHUNKED, CHUNKED + b"1\r\n{\r\n", ANNOUNCED],
    ids=["nothing", "half a line", "half a head", "no chunk", "no last chunk", "half a body"],
)
def test_what_does_not_end_is_answered_408_and_closed(hasty: RunningServer, sent: bytes) -> None:
    with _connect(hasty) as connection:
        connection.sendall(sent)
        assert _rest(connection).startswith(b"HTTP/1.1 408 ")
    assert not hasty.service.under_way
    assert httpx.get(f"{hasty.url}/ready").status_code == 200


def test_a_drop_now_and_then_does_not_buy_more_time(hasty: RunningServer) -> None:
    with _connect(hasty) as connection:
        connection.sendall(CHUNKED)

        def drip() -> None:
            for _ in range(600):
                connection.sendall(b"1\r\n \r\n")
                time.sleep(0.05)

        with pytest.raises(ConnectionError):
            drip()


def test_a_request_after_the_first_has_its_own_time_and_an_answer_is_not_cut_off_by_it(hasty: RunningServer) -> None:
    body = {"model": MODEL, "prompt": "x", "max_tokens": 400, "stream": True}
    with httpx.Client(base_url=hasty.url, timeout=60) as client:
        for _ in range(3):
            began = time.monotonic()
            answer = client.post("/v1/completions", json=body)
            assert "data: [DONE]" in answer.text
            time.sleep(max(0.0, 0.6 - (time.monotonic() - began)))  # silent for longer than a request may take to arrive


def test_a_kept_connection_outlives_what_clients_keep_theirs(server: RunningServer, tiny_settings: Callable[..., ServeSettings]) -> None:
    """httpx and aiohttp close after 5 and 15 s: a server that closes at the same time breaks a request that is just being sent."""
    assert listener(lambda *_: None, tiny_settings()).timeout_keep_alive == KEEP_ALIVE_S > 3 * 15  # type: ignore[arg-type,return-value]
    place = urlsplit(server.url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    connection.connect()
    kept = connection.sock
    for _ in range(2):
        connection.request("GET", "/health")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"status": "ok"})
        time.sleep(5.5)  # uvicorn's own would have closed it
    assert connection.sock is kept
    connection.close()


def test_a_head_that_is_too_large_is_refused(server: RunningServer) -> None:
    with _connect(server) as connection:
        with suppress(ConnectionError):  # it need not read all of it before it answers and closes
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Large: " + b"x" * 200_000)
        with connection.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 400 ")
