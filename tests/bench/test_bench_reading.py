"""What an answer's bytes and their moments come to. Every case here has misled a benchmark."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest

from bench.stub_server import delta, event, usage
from swiftsure.bench.client.interfaces import wire_of
from swiftsure.bench.client.reading import read_exchange
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.target import Interface

REQUEST = Request(
    prompt=Prompt(name="p", kind="own", text="x", max_tokens=9), trial=Trial(round=1, row="cold", users=1, prompt="p", repeat=0)
)


def exchange(*steps: tuple[float, Any], interface: Interface = "chat", words: bool = False, **fields: Any) -> Exchange:
    """Of an answer that was read in these pieces at these moments; ``words`` counts tokens as words."""
    ends, moments, body = array("q"), array("d"), b""
    for at_s, value in steps:
        body += value if isinstance(value, bytes) else event(value)
        ends.append(len(body))
        moments.append(at_s)
    given = {"status": 200, "ended_s": moments[-1] if moments else 0.0, **fields}
    recording = Recording(
        index=0, process=0, started="", scheduled_s=0.0, sent_s=0.0, connected_s=None, body=body, ends=ends, moments=moments, **given
    )
    return read_exchange(
        recording, REQUEST, wire_of(interface), count_tokens=(lambda text: len(text.split())) if words else None, keep_text=True
    )


def moments(of: Exchange) -> list[tuple[float, str]]:
    return [(arrival.at_s, arrival.share) for arrival in of.arrivals]


def test_role_and_empty_chunks_are_not_the_first_token() -> None:
    got = exchange((0.1, delta(role="assistant", content="")), (0.2, delta(content=None)), (0.5, delta(content="Hi")), (0.6, delta("stop")))
    assert (got.first_byte_s, got.first_event_s) == (0.1, 0.1)
    assert moments(got) == [(0.5, "answer")]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thinking_is_content_and_not_the_answer(name: str) -> None:
    got = exchange((0.1, delta(**{name: "hm"})), (0.9, delta(content="Yes")), (1.0, delta("stop")))
    assert moments(got) == [(0.1, "reasoning"), (0.9, "answer")]
    assert got.text == "hmYes"


def test_thinking_that_is_sent_under_two_names_counts_once() -> None:
    assert exchange((0.1, delta(reasoning="hm", reasoning_content="hm")), (0.2, delta("stop"))).characters == 2


def test_thinking_inside_the_text_is_told_apart_by_its_marks() -> None:
    pieces = ["<thi", "nk>h", "m</think>", "\n\n", "Yes", "."]
    got = exchange(*((0.1 * n, delta(content=piece)) for n, piece in enumerate(pieces)), (1.0, delta("stop")))
    assert [arrival.share for arrival in got.arrivals] == ["reasoning"] * 4 + ["answer"] * 2


def test_an_answer_that_merely_mentions_the_mark_is_no_thinking() -> None:
    assert moments(exchange((0.1, delta(content="The <think> mark")), (0.2, delta("stop")))) == [(0.1, "answer")]


def test_content_in_parts_is_read_part_by_part() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    got = exchange((0.1, delta(content=[thinking])), (0.2, delta(content=[{"type": "text", "text": "Yes"}])), (0.2, delta("stop")))
    assert (moments(got), got.text) == ([(0.1, "reasoning"), (0.2, "answer")], "hmYes")


def test_a_tool_call_is_content() -> None:
    call = [{"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}]
    more = [{"index": 0, "function": {"arguments": '{"x": 1}'}}]
    got = exchange((0.1, delta(tool_calls=call)), (0.2, delta(tool_calls=more)), (0.3, delta("tool_calls")))
    assert (moments(got), got.text, got.finish_reason) == ([(0.1, "tool_call"), (0.2, "tool_call")], 'look{"x": 1}', "tool_calls")


def test_tokens_are_the_endpoints_count_and_never_the_chunks() -> None:
    got = exchange((0.1, delta(content="five tokens in one chunk")), (0.2, delta("stop")), (0.3, {"choices": [], "usage": usage(5)}))
    assert (got.output_tokens, got.tokens_by, len(got.arrivals)) == (5, "usage", 1)


def test_usage_in_every_chunk_is_not_summed_and_tells_the_first_chunks_tokens() -> None:
    got = exchange(*((0.1 * n, delta(content="ab ", usage=usage(3 * n))) for n in (1, 2, 3)), (0.4, delta("stop", usage=usage(9))))
    assert (got.output_tokens, got.first_arrival_tokens, got.usage and got.usage.prompt_tokens) == (9, 3, 7)


def test_an_earlier_count_stands_when_null_follows() -> None:
    got = exchange((0.1, delta(content="a", usage=usage(1))), (0.2, {"choices": [], "usage": None}), (0.3, delta("stop")))
    assert got.output_tokens == 1


def test_thinking_tokens_are_not_counted_twice() -> None:
    within = usage(50, completion_tokens_details={"reasoning_tokens": 40}, prompt_tokens_details={"cached_tokens": 6})
    got = exchange((0.1, delta(reasoning="hm")), (0.2, delta("stop", usage=within)))
    assert got.usage is not None
    assert (got.output_tokens, got.usage.reasoning_tokens, got.usage.cached_tokens) == (50, 40, 6)


def test_thinking_tokens_beside_the_answers_are_added_where_the_total_says_so() -> None:
    beside = {"prompt_tokens": 7, "completion_tokens": 10, "total_tokens": 57, "completion_tokens_details": {"reasoning_tokens": 40}}
    assert exchange((0.1, delta(reasoning="hm")), (0.2, delta("stop", usage=beside))).output_tokens == 50


def test_thinking_that_is_counted_but_not_shown_is_said() -> None:
    hidden = usage(50, completion_tokens_details={"reasoning_tokens": 40})
    assert exchange((5.0, delta(content="Yes")), (5.1, delta("stop", usage=hidden))).hidden_reasoning
    assert not exchange((0.1, delta(reasoning="hm")), (5.1, delta("stop", usage=hidden))).hidden_reasoning


def test_the_tokenizer_counts_the_whole_text_where_the_endpoint_does_not() -> None:
    steps = [(0.1, delta(content="one t")), (0.2, delta(content="wo three")), (0.3, delta("stop"))]
    got = exchange(*steps, words=True)
    assert (got.output_tokens, got.tokens_by, got.first_arrival_tokens) == (3, "tokenizer", 2)
    assert (exchange(*steps).output_tokens, exchange(*steps).tokens_by) == (4, "estimated")


def test_the_tokenizers_count_stands_beside_the_endpoints() -> None:
    got = exchange((0.1, delta(content="one two")), (0.2, delta("stop", usage=usage(9))), words=True)
    assert (got.output_tokens, got.tokens_by, got.tokenizer_tokens) == (9, "usage", 2)


def test_a_count_of_zero_for_some_text_is_no_count() -> None:
    assert exchange((0.1, delta(content="abcd")), (0.2, delta("stop", usage=usage(0)))).tokens_by == "estimated"


def test_logprobs_tell_how_many_tokens_the_first_chunk_holds() -> None:
    first = delta(content="a b c")
    first["choices"][0]["logprobs"] = {"content": [{"token": "a"}, {"token": " b"}, {"token": " c"}]}
    assert exchange((0.1, first), (0.2, delta("stop"))).first_arrival_tokens == 3


def test_what_trails_the_last_token_is_not_its_time() -> None:
    got = exchange((0.1, delta(content="a")), (0.2, delta("stop")), (5.0, {"choices": [], "usage": usage(1)}), (9.0, "[DONE]"))
    assert (got.last_token_s, got.ended_s) == (0.1, 9.0)


def test_an_event_has_the_moment_of_the_read_that_completed_it() -> None:
    snow = json.dumps(delta(content="☃☃"), ensure_ascii=False).encode()
    middle = snow.index("☃".encode()) + 1  # in the middle of a character
    got = exchange((0.1, b"data: " + snow[:middle]), (0.2, snow[middle:]), (0.3, b"\n\n"), (0.4, delta("stop")))
    assert (moments(got), got.text) == ([(0.3, "answer")], "☃☃")


def test_several_events_of_one_read_share_its_moment() -> None:
    got = exchange((0.1, event(delta(content="a")) + event(delta(content="b")) + event(delta("stop"))))
    assert moments(got) == [(0.1, "answer"), (0.1, "answer")]


def test_comments_and_keep_alives_are_skipped_however_they_are_sent() -> None:
    noise = b": ping\r\n\r\nevent: ping\r\n\r\ndata: : keepalive\r\n\r\n"
    got = exchange(
        (0.1, noise), (0.2, b"data: " + json.dumps(delta(content="a")).encode() + b"\r\n\r\n"), (0.3, noise), (0.4, delta("stop"))
    )
    assert (moments(got), got.error, got.first_event_s) == ([(0.2, "answer")], None, 0.2)


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_endpoint_gave_up_is_no_answer(reason: str) -> None:
    got = exchange((0.1, delta(content="Hi")), (0.2, delta(reason)), (0.3, b"data: [DONE]\n\n"))
    assert (got.error, got.error_words) == ("in_band", f"the endpoint gave up: finish_reason {reason}")


def test_a_stream_without_a_finish_reason_or_its_closing_event_is_truncated() -> None:
    assert exchange((0.1, delta(content="a"))).error == "truncated"
    assert exchange((0.1, delta(content="a")), (0.2, "[DONE]")).error is None
    assert exchange((0.1, delta(content="a")), (0.2, delta("stop"))).error is None
    assert exchange(status=200).error == "truncated"


def test_a_connection_that_breaks_after_the_end_has_not_spoilt_the_answer() -> None:
    steps = [(0.1, delta(content="a")), (0.2, delta("stop"))]
    assert exchange(*steps, error="broken", error_words="reset").error is None
    assert exchange(steps[0], error="broken", error_words="reset").error == "broken"


def test_an_error_in_the_stream_is_one_even_if_the_stream_ends_well() -> None:
    got = exchange((0.1, delta(content="a")), (0.2, {"error": {"message": "out of\nblocks", "type": "x"}}), (0.3, "[DONE]"))
    assert (got.error, got.error_words, got.output_tokens) == ("in_band", "out of blocks", 1)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "http_4xx"), (401, "http_4xx"), (429, "http_429"), (500, "http_5xx"), (503, "http_5xx"), (307, "broken")]
)
def test_a_status_says_what_kind_of_failure_it_is(status: int, kind: str) -> None:
    got = exchange((0.1, b'{"error": {"message": "no"}}'), status=status, headers={"retry-after": "3"})
    assert (got.error, got.status, got.output_tokens, got.retry_after_s) == (kind, status, None, 3.0)


def test_what_is_no_json_is_not_an_answer() -> None:
    got = exchange((0.1, delta(content="a")), (0.2, b"data: <html>\n\n"), (0.3, "[DONE]"))
    assert (got.error, got.error_words) == ("broken", "an event's data is no JSON object: '<html>'")


def test_an_endpoints_words_cannot_command_a_terminal() -> None:
    got = exchange((0.1, b"out of \x1b[2Jmemory\r\n"), status=500)
    assert (got.error, got.error_words) == ("http_5xx", "status 500: out of \\x1b[2Jmemory")


def test_a_count_that_no_answer_can_have_is_none() -> None:
    got = exchange((0.1, delta(content="a word")), (0.2, delta("stop", usage=usage(10**23))), (0.3, "[DONE]"))
    assert (got.tokens_by, got.output_tokens) == ("estimated", 2)


def test_a_page_instead_of_a_stream_is_said_to_be_one() -> None:
    got = exchange((0.1, b"<html>\n<body>Please log in</body></html>"), headers={"content-type": "text/html; charset=utf-8"})
    words = "the answer is a page (text/html; charset=utf-8) and no stream: <html> <body>Please log in</body></html>"
    assert (got.error, got.error_words) == ("broken", words)


def test_an_answer_that_came_at_once_at_the_end_is_a_burst() -> None:
    words = "some words of an answer that is long enough to tell, said all at once"
    held_back = exchange((0.1, delta(content="So")), (9.0, event(delta(content=words)) + event(delta("stop"))))
    streamed = exchange(*((0.1 + 0.01 * n, delta(content=piece)) for n, piece in enumerate(words)), (9.0, delta("stop")))
    short = exchange((0.1, delta(content="Yes.")), (0.2, delta("stop")))
    assert (held_back.burst, streamed.burst, short.burst) == (True, False, False)


def test_an_answer_that_was_not_streamed_is_read_and_is_a_burst() -> None:
    message = {"role": "assistant", "content": "word " * 20}
    whole = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage(20), "service_tier": "default"}
    got = exchange((2.0, json.dumps(whole).encode()), headers={"content-type": "application/json"})
    assert (got.error, got.output_tokens, got.last_token_s, got.burst, got.tier) == (None, 20, 2.0, True, "default")


def test_an_answer_that_thinking_used_up_is_censored() -> None:
    assert exchange((0.1, delta(reasoning="hm")), (0.2, delta("length", usage=usage(9)))).censored
    assert exchange((0.2, delta("length", usage=usage(9)))).censored
    assert not exchange((0.1, delta(content="cut off")), (0.2, delta("length", usage=usage(9)))).censored
    assert not exchange((0.1, delta(reasoning="hm")), (0.2, delta("stop", usage=usage(9)))).censored


def test_completions_are_read() -> None:
    got = exchange(
        (0.1, {"choices": [{"text": "a b", "logprobs": {"tokens": ["a", " b"]}, "finish_reason": None}]}),
        (0.2, {"choices": [{"text": "", "finish_reason": "length"}], "usage": usage(2)}),
        interface="completions",
    )
    assert (got.text, got.finish_reason, got.output_tokens, got.first_arrival_tokens) == ("a b", "length", 2, 2)


def anthropic(*events: tuple[float, dict[str, Any]]) -> Exchange:
    steps = [(at_s, f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()) for at_s, value in events]
    return exchange(*steps, interface="anthropic")


MESSAGE_START = {
    "type": "message_start",
    "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 0, "output_tokens": 1}},
}


def test_anthropics_events_are_read_and_their_usage_is_not_summed() -> None:
    got = anthropic(
        (0.1, MESSAGE_START),
        (0.2, {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        (0.3, {"type": "ping"}),
        (0.4, {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        (0.5, {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "xyz"}}),
        (0.6, {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Yes"}}),
        (0.7, {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}}),
        (0.8, {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 12}}),
        (0.9, {"type": "message_stop"}),
    )
    assert moments(got) == [(0.4, "reasoning"), (0.6, "answer"), (0.7, "tool_call")]
    assert (got.output_tokens, got.tokens_by, got.finish_reason, got.error) == (12, "usage", "length", None)
    assert got.usage is not None
    assert (got.usage.prompt_tokens, got.usage.cached_tokens) == (23, 20)


def test_anthropics_error_event_ends_the_answer_as_failed() -> None:
    got = anthropic((0.1, MESSAGE_START), (0.2, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}))
    assert (got.error, got.error_words, got.output_tokens) == ("in_band", "Overloaded", None)
    assert anthropic((0.1, MESSAGE_START)).error == "truncated"
