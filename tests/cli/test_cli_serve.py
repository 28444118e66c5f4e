"""``swiftsure serve`` as a person runs it: it listens, answers, drains and ends with its lines; what it cannot serve it refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from cli_runner import Run, start
from websockets.sync.client import connect

from tiny_models import TinyModel, TinySpec

PATIENCE_S = 300  # ends what hangs; nothing here is timed, and a busy machine may hold a server up for long
get, post = partial(httpx.get, timeout=PATIENCE_S), partial(httpx.post, timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(context=640)).write_gguf(tmp_path_factory.mktemp("served") / "tiny.gguf")


@contextmanager
def served(*arguments: str | Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a server on a free port, and its process."""
    process = start("serve", *arguments, "--port", "0", "--threads", "1")
    lines: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line.decode())
            if found := re.match(r"LISTENING url=(\S+)", lines[-1]):
                yield found[1], process
                break
        else:
            raise AssertionError(f"it did not listen: {''.join(lines)}")
    finally:
        process.kill()
        process.communicate()


def test_it_listens_serves_under_its_names_and_ends_with_its_lines(model: Path) -> None:
    with served("--model", f"one={model}", "--model", f"two={model}@default", "--mode", "exact") as (url, process):
        ready = get(f"{url}/ready").json()
        assert list(ready["models"]) == ["one", "two"]
        assert [model["active"].split(" model=")[0] for model in ready["models"].values()] == ["ACTIVE mode=exact", "ACTIVE mode=default"]
        counts = [post(f"{url}/tokenize", json={"model": name, "prompt": "ab"}).json()["count"] for name in ("one", "two")]
        assert counts[0] == counts[1] > 0
        assert post(f"{url}/tokenize", json={"model": "three", "prompt": "ab"}).status_code == 404
        for host, status in (("rebound.example", 403), ("rebound.example:8000", 403), ("localhost:1", 200), ("[::1]", 200)):
            assert get(f"{url}/health", headers={"host": host}).status_code == status, host
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err.decode()
        assert re.findall(r"^EXIT mode=(\w+) status=ok items=0/0 wall_s=", err.decode(), re.M) == ["exact", "default"]
        assert re.findall(r"^LEVER name=(\w+) state=idle ", err.decode(), re.M) == [
            "speculation",
            "prefix_cache",
            "batching",
            "chunked_prefill",
        ], "a server that served nothing says of its levers that no occasion arose"


def test_answers_under_way_end_before_the_server_does(model: Path) -> None:
    with served("--model", f"m={model}", "--mode", "default") as (url, process):
        with connect(url.replace("http", "ws") + "/v1/responses", proxy=None) as socket:
            body = {"model": "m", "input": "Hello", "max_output_tokens": 500, "temperature": 1.5}
            socket.send(json.dumps({"type": "response.create", **body}))
            events = [json.loads(socket.recv(timeout=PATIENCE_S))]
            while events[-1]["type"] != "response.output_text.delta":
                events.append(json.loads(socket.recv(timeout=PATIENCE_S)))
            process.send_signal(signal.SIGTERM)
            late = post(f"{url}/v1/completions", json={"model": "m", "prompt": "ab"})
            while events[-1]["type"] not in ("response.completed", "response.incomplete"):
                events.append(json.loads(socket.recv(timeout=PATIENCE_S)))
        assert (late.status_code, "takes no new requests" in late.json()["error"]["message"]) == (503, True)
        deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        answer = events[-1]["response"]
        assert answer["usage"]["output_tokens"] > 10  # tokens, not deltas: a loaded machine merges these
        assert "".join(deltas[1:]), "the answer went on after the signal"
        assert "".join(deltas) == answer["output"][-1]["content"][0]["text"]
        _, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, "items=1/1" in err.decode()) == (0, True)


def test_only_keys_that_are_known_come_in(model: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("team 0123456789abcdef\n")
    with served(model, "--api-keys", keys) as (url, _):
        body = {"prompt": "ab"}
        assert get(f"{url}/health").status_code == 200
        for headers in ({}, {"authorization": "Bearer nobody"}, {"authorization": "Basic 0123456789abcdef"}, {"x-api-key": ""}):
            answer = post(f"{url}/tokenize", json=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        for headers in ({"authorization": "Bearer 0123456789abcdef"}, {"x-api-key": "0123456789abcdef"}):
            assert post(f"{url}/tokenize", json=body, headers=headers).status_code == 200


def test_a_body_beyond_the_limit_is_refused_announced_or_not(model: Path) -> None:
    with served(model, "--max-body", "2000") as (url, _):
        large = b'{"prompt": "' + b"a" * 4000 + b'"}'
        headers = {"content-type": "application/json"}
        announced = post(f"{url}/tokenize", content=large, headers=headers)
        chunked = post(f"{url}/tokenize", content=iter([large[:1500], large[1500:]]), headers=headers)
        for answer in (announced, chunked):
            assert (answer.status_code, "at most 2000 bytes" in answer.json()["error"]["message"]) == (413, True)
        assert post(f"{url}/tokenize", json={"prompt": "ab"}).status_code == 200


def test_what_cannot_be_served_is_refused_before_anything_listens(swiftsure: Run, model: Path) -> None:
    refused = swiftsure("serve", model, "--mode", "big", "--port", "0")
    assert (refused.code, "NOT ACTIVE mode=big reason=" in refused.err, "LISTENING" in refused.err) == (3, True, False)
    for arguments, words in (
        ([model, "--host", "0.0.0.0"], "0.0.0.0 can be reached from other machines"),
        ([model, "--max-requests", "0"], "the limit of requests must be at least 1, got 0"),
        (["no-such-model"], "no-such-model"),
        ([model, "--model", str(model)], "two models are served under the name"),
        (["--model", "=x"], "a model is given as MODEL or NAME=MODEL"),
    ):
        refused = swiftsure("serve", *arguments)
        assert (refused.code, words in refused.err) == (2, True), refused.err
