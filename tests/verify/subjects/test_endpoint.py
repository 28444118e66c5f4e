from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.errors import UsageError
from swiftsure.server_events import EventParser
from swiftsure.verify.compare.exact import compare_trials
from swiftsure.verify.subjects.answer import Answer
from swiftsure.verify.subjects.base import Activation, Case, Trial
from swiftsure.verify.subjects.endpoint import EndpointProbe, UrlOptions, UrlSubject
from verify.subjects.stand_in import HELLO, StandIn, chunk, standing_in

USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 2}}\n\n'
CASE = Case(id="hello", request={"prompt": "say hello", "max_tokens": 9})


@pytest.fixture
def server() -> Iterator[StandIn]:
    with standing_in() as state:
        yield state


def ask(server: StandIn, case: Case = CASE, **options: Any) -> Trial:
    subject = UrlSubject(server.url, UrlOptions(**options))
    try:
        subject.start()
        return subject.run(case)
    finally:
        subject.close()


def start(server: StandIn, **options: Any) -> Activation:
    subject = UrlSubject(server.url, UrlOptions(**options))
    try:
        return subject.start()
    finally:
        subject.close()


def test_a_streamed_answer_is_put_together(server: StandIn) -> None:
    trial = ask(server)
    assert (trial.status, trial.reason) == ("ran", None)
    assert trial.outputs == {"text": "Hello", "finish_reason": "stop"}


def test_the_request_carries_the_model_and_the_case_s_values(server: StandIn) -> None:
    ask(server, Case(id="a", request={"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "seed": 7, "top_k": 4}))
    assert server.asked == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
            "max_tokens": 128,
            "temperature": 0.5,
            "top_p": 1.0,
            "seed": 7,
            "top_k": 4,
        }
    ]


def test_time_to_the_first_token_is_that_of_the_first_content_and_not_of_the_role() -> None:
    answer = Answer()
    for at_s, piece in ((0.1, HELLO[0]), (0.5, HELLO[1]), (0.8, HELLO[2]), (0.9, HELLO[3]), (2.0, USAGE)):
        assert isinstance(piece, bytes)
        answer.add(json.loads(piece.removeprefix(b"data: ")), at_s)
    assert (answer.first_s, answer.last_s) == (0.5, 0.8)  # what comes after the last token is not the answer's time


def test_phases_sum_to_the_time_of_the_last_token(server: StandIn) -> None:
    server.pieces = [HELLO[0], b": keepalive\n\n", lambda: time.sleep(0.2), HELLO[1], lambda: time.sleep(0.2), *HELLO[2:], USAGE]
    trial = ask(server)
    assert trial.phases_s["ttft"] >= 0.2
    assert sum(trial.phases_s.values()) == pytest.approx(trial.wall_s)


def test_one_burst_has_no_phases_and_says_so(server: StandIn) -> None:
    server.pieces = [b"".join(piece for piece in HELLO if isinstance(piece, bytes))]
    trial = ask(server)
    assert trial.outputs["text"] == "Hello"
    assert trial.phases_s == {}
    assert "came at once" in trial.notes[0]


def test_an_endpoint_that_does_not_stream_is_read_with_a_note(server: StandIn) -> None:
    server.kind = "application/json"
    server.pieces = [json.dumps({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}).encode()]
    trial = ask(server)
    assert trial.outputs["text"] == "Hello"
    assert "did not stream" in trial.notes[0]


def test_reasoning_tool_calls_and_logprobs_are_outputs_of_their_own(server: StandIn) -> None:
    call = {"index": 0, "id": "random", "function": {"name": "f", "arguments": '{"a"'}}
    server.pieces = [
        chunk(delta={"reasoning_content": "hm"}),
        chunk(delta={"tool_calls": [call]}),
        chunk(delta={"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chunk("x", choice={"logprobs": {"content": [{"token": "x", "logprob": -0.5}]}}),
        chunk(finish="stop"),
    ]
    trial = ask(server, logprobs=True)
    assert trial.status == "ran"
    assert trial.outputs["reasoning"] == "hm"
    assert trial.outputs["tool_calls"] == [{"name": "f", "arguments": '{"a": 1}'}]
    assert np.array_equal(trial.outputs["logprobs"], [-0.5])
    assert server.asked[0]["logprobs"] is True


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        ([HELLO[1]], "ended without a finish reason"),
        ([HELLO[1], b'data: {"error": {"message": "out of blocks"}}\n\n'], "the endpoint says: out of blocks"),
        ([b"data: <html>\n\n"], "not JSON"),
        ([b"data: 5\n\n"], "must be an object"),
        ([b'data: {"choices": [{"delta": {"content": 5}}]}\n\n'], "not a chunk of a chat completion"),
        ([b'data: {"choices": 5}\n\n'], "not a chunk of a chat completion"),
        ([b'data: {"choices": [{"delta": {"tool_calls": [1]}}]}\n\n'], "not a chunk of a chat completion"),
        ([b"data: " + b"[" * 100_000 + b"\n\n"], "not JSON"),
    ],
)
def test_an_answer_that_is_not_whole_or_no_answer_fails(server: StandIn, pieces: Any, words: str) -> None:
    server.pieces = pieces
    trial = ask(server)
    assert trial.status == "failed"
    assert words in str(trial.reason)


@pytest.mark.parametrize(("status", "expected"), [(400, "refused"), (422, "refused"), (429, "refused"), (503, "refused"), (500, "failed")])
def test_an_error_status_is_told_in_the_endpoint_s_words_and_not_tried_again(server: StandIn, status: int, expected: str) -> None:
    server.status, server.kind = status, "application/json"
    server.pieces = [b'{"error": {"message": "too long"}}']
    trial = ask(server)
    assert (trial.status, trial.reason) == (expected, f"status {status}: too long")
    assert len(server.asked) == 1


def test_logprobs_that_are_refused_are_not_asked_for_again(server: StandIn) -> None:
    server.refuses = "logprobs"
    subject = UrlSubject(server.url, UrlOptions(logprobs=True))
    try:
        subject.start()
        trials = [subject.run(CASE), subject.run(CASE)]
    finally:
        subject.close()
    assert [trial.status for trial in trials] == ["ran", "ran"]
    assert ["logprobs" in body for body in server.asked] == [True, False, False]


def test_an_answer_that_drips_is_timed_out(server: StandIn) -> None:
    server.pieces = [piece for _ in range(200) for piece in (chunk("x"), lambda: time.sleep(0.05))]
    trial = ask(server, time_limit_s=0.5)
    assert (trial.status, trial.reason) == ("timed_out", "no whole answer within 0.5 s")


def test_silence_is_timed_out(server: StandIn) -> None:
    server.pieces = [lambda: time.sleep(2.0)]
    assert ask(server, time_limit_s=0.3).status == "timed_out"


def test_an_endpoint_that_is_not_there_is_a_usage_error() -> None:
    subject = UrlSubject("http://127.0.0.1:9/v1", UrlOptions())
    try:
        with pytest.raises(UsageError, match="cannot be reached"):
            subject.start()
    finally:
        subject.close()


@pytest.mark.parametrize("url", ["a/v1", "ftp://a/v1", "http://", "http://a:port/v1"])
def test_what_is_no_endpoint_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="an endpoint must be as in http://host:8000/v1"):
        UrlSubject(url)


def test_several_models_must_be_told_apart(server: StandIn) -> None:
    server.pages["/v1/models"] = '{"data": [{"id": "a"}, {"id": "b"}]}'
    with pytest.raises(UsageError, match="has the models a, b; name one with -m"):
        ask(server)
    assert ask(server, model="b").status == "ran"


def test_logits_of_a_text_are_refused(server: StandIn) -> None:
    assert ask(server, Case(id="a", request={"score": "text"})).status == "refused"


def test_two_answers_are_compared_like_any_other_outputs(server: StandIn) -> None:
    base = ask(server)
    server.pieces = [chunk("Help"), chunk(finish="stop")]
    found = compare_trials(base, ask(server))
    assert "text character 3" in found.describe()


METRICS = """# HELP spec_accepted_total x
spec_accepted_total{model="a"} 3
spec_accepted_total{model="b"} 4
spec_accepted_total_created 1e9
broken one
idle 0
"""


@pytest.mark.parametrize(
    ("probe", "state"),
    [
        ({"metric": "spec_accepted_total"}, "active"),
        ({"metric": "spec_accepted_total", "at_least": 7}, "active"),
        ({"metric": "spec_accepted_total", "at_least": 8}, "not_active"),
        ({"metric": "idle"}, "not_active"),
        ({"metric": "broken"}, "not_active"),
        ({"metric": "absent"}, "not_active"),
        ({"pattern": r"^idle \d$"}, "active"),
        ({"pattern": "speculation on"}, "not_active"),
    ],
)
def test_a_page_of_the_endpoint_decides_activation(server: StandIn, probe: dict[str, Any], state: str) -> None:
    server.pages["/metrics"] = METRICS
    assert start(server, probe=EndpointProbe(url=server.url.removesuffix("/v1") + "/metrics", **probe)).state == state


@pytest.mark.parametrize(
    ("probe", "state"),
    [
        (EndpointProbe(header="X-Mode", header_pattern="^fast$"), "active"),
        (EndpointProbe(header="X-Mode", header_pattern="^exact$"), "not_active"),
        (EndpointProbe(header="X-Other"), "not_active"),
        (EndpointProbe(field="swiftsure.mode", field_pattern="^fast$"), "active"),
        (EndpointProbe(field="swiftsure.mode", field_pattern="^exact$"), "not_active"),
        (EndpointProbe(field="usage.none"), "not_active"),
        (EndpointProbe(field="swiftsure.accepted", field_pattern="^[1-9]"), "active"),
    ],
)
def test_every_answer_may_decide_activation(server: StandIn, probe: EndpointProbe, state: str) -> None:
    server.headers["X-Mode"] = "fast"
    server.pieces = [*HELLO[:3], chunk(finish="stop", swiftsure={"mode": "fast", "accepted": 12})]
    activation = ask(server, probe=probe).activation
    assert activation is not None
    assert activation.state == state


def test_without_a_probe_activation_is_unknown(server: StandIn) -> None:
    assert start(server).state == "unknown"


def test_a_probe_that_cannot_tell_is_a_usage_error(server: StandIn) -> None:
    with pytest.raises(UsageError, match="a probe's url needs a pattern or a metric"):
        EndpointProbe(url="http://a")
    with pytest.raises(UsageError, match="is not a regular expression"):
        EndpointProbe(url="http://a", pattern="(")
    with pytest.raises(UsageError, match="answers with status 404"):
        start(server, probe=EndpointProbe(url=server.url + "/absent", pattern="x"))


@settings(deadline=None)
@given(st.data())
def test_events_are_the_same_however_their_bytes_arrive(data: st.DataObject) -> None:
    end = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    lines = [
        b": comment",
        b"data: gr\xc3\xb6\xc3\x9fer",
        b"",
        b"event: x",
        b"data:two",
        b"data: lines",
        b"",
        b"",
        b"data: : keepalive",
        b"",
        b"",
    ]
    stream = end.join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = EventParser()
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    found = [event for piece in pieces for event in parser.feed(piece)]
    found += list(parser.feed(b"\n"))  # a last CR may yet become CR LF
    assert found == ["größer", "two\nlines", ": keepalive"]
