"""How a prompt is asked over each interface."""

from __future__ import annotations

import pytest

from swiftsure.bench.client.interfaces import wire_of
from swiftsure.bench.exchange import Prompt
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError

TARGET = Target(url="http://h/v1", model="m", api_key="k")
CHAT = Prompt(name="c", kind="own", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}], max_tokens=5)
TEXT = Prompt(name="t", kind="own", text="Once", max_tokens=5, sampling={"temperature": 0, "seed": 3})


def test_chat_asks_for_a_stream_with_usage_and_passes_sampling_on() -> None:
    body = wire_of("chat").body(TEXT, TARGET, ())
    assert body["messages"] == [{"role": "user", "content": "Once"}]
    assert (body["model"], body["stream"], body["stream_options"], body["max_tokens"]) == ("m", True, {"include_usage": True}, 5)
    assert (body["temperature"], body["seed"]) == (0, 3)


def test_chat_says_the_limit_in_the_other_way_where_the_first_is_refused() -> None:
    body = wire_of("chat").body(CHAT, TARGET, ("max_tokens", "stream_options"))
    assert (body["max_completion_tokens"], "max_tokens" in body, "stream_options" in body) == (5, False, False)


def test_completions_take_a_text_or_one_message_of_a_user() -> None:
    wire = wire_of("completions")
    one = Prompt(name="o", kind="own", messages=[{"role": "user", "content": "Hi"}], max_tokens=5)
    assert wire.body(TEXT, TARGET, ())["prompt"] == "Once"
    assert wire.body(one, TARGET, ())["prompt"] == "Hi"
    with pytest.raises(UsageError, match="prompt 'c' has 2 messages"):
        wire.body(CHAT, TARGET, ())


def test_anthropic_has_a_system_text_and_headers_of_its_own() -> None:
    wire = wire_of("anthropic")
    body = wire.body(CHAT, TARGET, ())
    assert (body["system"], body["messages"]) == ("Be brief.", [{"role": "user", "content": "Hi"}])
    assert wire.headers(TARGET) == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert wire_of("chat").headers(TARGET) == {"Authorization": "Bearer k"}


def test_the_engine_is_spoken_to_by_no_wire() -> None:
    with pytest.raises(UsageError, match="must be one of chat, completions, anthropic, got 'engine'"):
        wire_of("engine")
