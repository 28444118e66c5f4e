"""One request to an endpoint that misbehaves: what is recorded of it, and what the next one meets."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.stub_server import END, HANG, HEAD, RESET, StubServer, answer, chunk, delta, event, stream, usage
from swiftsure.bench.client.interfaces import wire_of
from swiftsure.bench.client.load import pause_after
from swiftsure.bench.client.reading import read_exchange
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.client.sender import Sender, check_target
from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError

PROMPT = Prompt(name="p", kind="own", text="Grüße ☃", max_tokens=9)
REQUEST = Request(prompt=PROMPT, trial=Trial(round=1, row="cold", users=1, prompt="p", repeat=0))
GOOD = stream((0.0, delta(content="Hi")), (0.0, delta("stop", usage=usage(1))), (0.0, "[DONE]"))
WHOLE = chunk(event(delta(content="Hi")) + event(delta("stop")))


def refusal(status: str, words: str, **headers: str) -> list[tuple[float, bytes | None]]:
    return [(0.0, answer(status, f'{{"error": {{"message": "{words}"}}}}'.encode(), Content_Type="application/json", **headers))]


SCRIPTS: dict[str, Any] = {
    "good": GOOD,
    "stale": [[*GOOD, (0.0, None)], GOOD],  # closes the connection after an answer that did not say so
    "truncated": [(0.0, HEAD), (0.0, chunk(event(delta(content="Hi")))), (0.0, END)],
    "cut": [(0.0, HEAD), (0.0, chunk(event(delta(content="Hi")))), (0.0, None)],
    "reset": [(0.0, HEAD), (0.0, chunk(event(delta(content="Hi")))), (0.05, RESET)],
    "cut_after_end": [(0.0, HEAD), (0.0, WHOLE), (0.0, None)],
    "until_close": [(0.0, b"HTTP/1.1 200 OK\r\n\r\n" + event(delta(content="Hi")) + event(delta("stop"))), (0.0, None)],
    "hanging": [(0.0, HEAD), (0.0, chunk(event(delta(content="Hi")))), (0.0, HANG)],
    "silent": [(0.0, HANG)],
    "busy": refusal("429 Too Many Requests", "slow down", Retry_After="2.5"),
    "down": refusal("503 Unavailable", "no engine"),
    "nonsense": [(0.0, b"+OK POP3\r\n\r\n"), (0.0, None)],
    "no_stream_options": [refusal("400 Bad Request", "Unrecognized request argument: stream_options"), GOOD],
    "no_max_tokens": [refusal("400 Bad Request", "'max_tokens' is not supported. Use 'max_completion_tokens'."), GOOD],
    "always_400": refusal("400 Bad Request", "stream_options and all else"),
}


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    with StubServer(SCRIPTS) as server:
        yield server


def send(url: str, *, times: int = 1, time_limit_s: float = 30.0) -> list[Exchange]:
    target = Target(url=url, model="m", api_key="secret", headers={"X-Team": "bench"}, time_limit_s=time_limit_s)

    async def run() -> list[Recording]:
        sender = Sender(target, process=0, worst_lag_since=lambda moment: 0.0)
        recordings = [await sender.send(0, REQUEST, scheduled_s=0.0) for _ in range(times)]
        sender.close()
        return recordings

    return [read_exchange(recording, REQUEST, wire_of("chat"), keep_text=True) for recording in asyncio.run(run())]


def test_a_request_is_what_the_endpoint_expects(stub: StubServer) -> None:
    (exchange,) = send(stub.url("good") + "/v1/")
    asked = stub.asked[-1]
    assert (exchange.error, exchange.text, exchange.status) == (None, "Hi", 200)
    assert asked.path == "/good/v1/chat/completions"
    assert asked.body["messages"] == [{"role": "user", "content": "Grüße ☃"}]
    for header in (f"Host: 127.0.0.1:{stub.port}", "Authorization: Bearer secret", "X-Team: bench", "Accept-Encoding: identity"):
        assert header in asked.head.split("\r\n")


def test_a_connection_is_kept_and_only_the_first_request_has_its_time(stub: StubServer) -> None:
    first, second = send(stub.url("good"), times=2)
    assert stub.asked[-1].connection == stub.asked[-2].connection
    assert (first.connected_s is not None, second.connected_s) == (True, None)


def test_a_kept_connection_that_was_closed_meanwhile_is_no_failure(stub: StubServer) -> None:
    assert [exchange.error for exchange in send(stub.url("stale"), times=2)] == [None, None]


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("truncated", "truncated", "without a finish reason"),
        ("cut", "broken", "closed before the answer's end"),
        ("reset", "broken", "broke off"),
        ("busy", "http_429", "status 429: slow down"),
        ("down", "http_5xx", "status 503: no engine"),
        ("nonsense", "broken", "must begin with HTTP/1.1"),
    ],
)
def test_a_failure_has_its_kind_and_the_endpoints_words(stub: StubServer, name: str, kind: str, words: str) -> None:
    (exchange,) = send(stub.url(name))
    assert exchange.error == kind
    assert words in (exchange.error_words or "")


@pytest.mark.parametrize("name", ["cut_after_end", "until_close"])
def test_an_answer_that_was_whole_when_its_connection_closed_is_one(stub: StubServer, name: str) -> None:
    (exchange,) = send(stub.url(name))
    assert (exchange.error, exchange.text) == (None, "Hi")


def test_a_stream_that_hangs_ends_with_the_time_limit_and_keeps_what_came(stub: StubServer) -> None:
    (exchange,) = send(stub.url("hanging"), time_limit_s=0.3)
    assert (exchange.error, exchange.error_words, exchange.text) == ("timeout", "no whole answer within 0.3 s", "Hi")


def test_an_endpoint_that_says_nothing_ends_with_the_time_limit(stub: StubServer) -> None:
    (exchange,) = send(stub.url("silent"), time_limit_s=0.2)
    assert (exchange.error, exchange.first_byte_s, exchange.last_token_s, exchange.ended_s) == ("timeout", None, None, None)


def test_a_wait_that_is_asked_for_is_told(stub: StubServer) -> None:
    assert send(stub.url("busy"))[0].retry_after_s == 2.5


@pytest.mark.parametrize(("name", "field"), [("no_stream_options", "stream_options"), ("no_max_tokens", "max_tokens")])
def test_a_field_that_is_refused_is_left_out_from_then_on(stub: StubServer, name: str, field: str) -> None:
    exchanges = send(stub.url(name), times=2)
    assert [exchange.error for exchange in exchanges] == [None, None]
    assert [exchange.settings_dropped for exchange in exchanges] == [(field,), (field,)]
    sent = [field in asked.body for asked in stub.asked if asked.path.startswith(f"/{name}/")]
    assert sent == [True, False, False]


def test_a_request_that_is_refused_without_the_field_too_has_failed(stub: StubServer) -> None:
    (exchange,) = send(stub.url("always_400"))
    assert (exchange.error, exchange.settings_dropped) == ("http_4xx", ("stream_options",))


def test_nobody_listening_and_no_tls_are_failures_of_the_connection(stub: StubServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        (refused,) = send(f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
    (plain,) = send(f"https://127.0.0.1:{stub.port}/good")
    assert (refused.error, plain.error) == ("connect", "tls")
    assert (refused.status, refused.connected_s) == (None, None)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate with")
def test_an_endpoint_over_tls_is_measured_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=stub", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", *kind, *names, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    with StubServer({"good": GOOD}, tls=tls) as server:
        (unknown,) = send(server.url("good"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        first, second = send(server.url("good"), times=2)
    assert (unknown.error, first.error, first.text, second.connected_s) == ("tls", None, "Hi", None)
    assert "certificate" in (unknown.error_words or "")


def test_a_connection_that_takes_too_long_is_a_timeout_before_anything_was_sent() -> None:
    with socket.socket() as full:  # its queue takes one connection, and nobody accepts it
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with socket.create_connection(full.getsockname()):
            (exchange,) = send(f"http://127.0.0.1:{full.getsockname()[1]}/v1", time_limit_s=0.3)
    assert (exchange.error, exchange.error_words, exchange.connected_s) == ("timeout", "no connection within 0.3 s", None)


def recording(status: int | None, **headers: str) -> Recording:
    return Recording(index=0, process=0, started="", scheduled_s=0.0, sent_s=0.0, connected_s=None, status=status, headers=headers)


def test_a_user_waits_as_long_as_the_endpoint_asks_else_longer_with_each_failure() -> None:
    assert pause_after(recording(429, **{"retry-after": "2.5"}), 1) == 2.5
    assert pause_after(recording(429, **{"retry-after": "9999"}), 1) == 30.0
    assert [pause_after(recording(503), failures) for failures in (1, 2, 3, 9)] == [0.1, 0.2, 0.4, 5.0]
    assert pause_after(recording(429, **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}), 1) == 0.1
    assert pause_after(recording(400), 5) == 0.0
    assert pause_after(recording(None), 1) == 0.1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"url": "localhost:8000"}, "must be as in http://host:8000/v1, got 'localhost:8000'"),
        ({"url": "http://h/v1?x=1"}, "must be as in"),
        ({"url": "http://user:word@h/v1"}, "must be as in"),
        ({"url": "http://h:99999/v1"}, "must be as in"),
        ({"url": "http://h/v 1"}, "must be written in ASCII"),
        ({"time_limit_s": 0.0}, "time_limit_s must be above 0, got 0.0"),
        ({"api_key": "k\r\nX-Evil: 1"}, "header 'Authorization' is not"),
        ({"headers": {"X: y": "z"}}, "header 'X: y' is not"),
    ],
)
def test_a_target_that_cannot_be_sent_to_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_target(Target(**{"url": "http://h/v1", **changes}))
    assert why in str(refused.value)
    assert "Evil" not in str(refused.value)
