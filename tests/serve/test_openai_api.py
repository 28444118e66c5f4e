"""Chat completions, completions and models with the SDK and LangChain as they are, against a tiny model behind a real engine process."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI

import swiftsure
from serve.conftest import MODEL, RunningServer, running_server
from swiftsure.engine.sampling import SamplingParams
from swiftsure.serve.settings import ApiKey, ServeSettings

MESSAGES: list[Any] = [{"role": "user", "content": "Hello there"}]
ASK: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "max_tokens": 24}
ADD: dict[str, Any] = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"]}},
}
IDS = list(range(20, 50))


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60) as one:
        yield one


def test_an_answer_has_the_tokens_of_plain_decoding(client: openai.OpenAI, tiny_gguf: Path) -> None:
    with swiftsure.load(tiny_gguf, mode="default", threads=1, cache=False) as llm:
        for temperature in (0.0, 0.8):
            plain = llm.generate(MESSAGES, max_tokens=24, temperature=temperature, seed=5, logprobs=2)
            answer = client.chat.completions.create(
                **ASK, temperature=temperature, seed=5, logprobs=True, top_logprobs=2, extra_body={"return_token_ids": True}
            )
            choice = answer.choices[0]
            assert choice.model_extra is not None
            assert choice.model_extra["token_ids"] == list(plain.token_ids)
            assert (choice.message.content, choice.finish_reason) == (plain.text, plain.finish_reason)
            assert choice.logprobs is not None
            assert plain.logprobs is not None
            assert [entry.logprob for entry in choice.logprobs.content or []] == [entry.logprob for entry in plain.logprobs]
            assert [len(entry.top_logprobs) for entry in choice.logprobs.content or []] == [2] * 24


def test_usage_and_the_values_used_are_told(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**ASK, extra_body={"top_k": 40})
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 24
    assert answer.usage.model_extra == {"cost": pytest.approx((answer.usage.prompt_tokens + 24 * 5) / 1e6)}
    told = answer.model_extra["swiftsure"]  # type: ignore[index]
    assert (told["mode"], told["tier"], answer.service_tier) == ("exact", "standard", "default")
    assert (told["sampling"]["temperature"], told["sampling"]["top_k"], told["sampling"]["seed"]) == (1.0, 40, told["seed"])
    assert told["digest"]
    assert told["timing"]["ttft_s"] > 0
    again = client.chat.completions.create(**ASK, seed=told["seed"], extra_body={"top_k": 40})
    assert again.choices[0].message.content == answer.choices[0].message.content
    assert again.model_extra["swiftsure"]["digest"] == told["digest"]  # type: ignore[index]
    assert again.system_fingerprint == answer.system_fingerprint


def test_streams_of_several_answers_join_to_the_unstreamed_ones(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {**ASK, "seed": 3, "n": 3, "logprobs": True}
    whole = client.chat.completions.create(**ask)
    texts, ends, tokens = [""] * 3, [""] * 3, [0] * 3
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert [chunk.choices[0].delta.role for chunk in chunks[:3]] == ["assistant"] * 3
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    for chunk in chunks[3:-1]:
        assert chunk.usage is None
        choice = chunk.choices[0]
        texts[choice.index] += choice.delta.content or ""
        ends[choice.index] += choice.finish_reason or ""
        tokens[choice.index] += len(choice.logprobs.content or []) if choice.logprobs else 0
    assert texts == [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert tokens == [len(choice.logprobs.content or []) for choice in whole.choices if choice.logprobs]


def test_a_stop_string_ends_the_text(client: openai.OpenAI) -> None:
    text = client.chat.completions.create(**ASK, temperature=0).choices[0].message.content or ""
    stop = text[len(text) // 2 :][:2]
    answer = client.chat.completions.create(**ASK, temperature=0, stop=["never said", stop])
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (text[: text.index(stop)], "stop")
    assert answer.model_extra["swiftsure"]["stop_string"] == stop  # type: ignore[index]


def test_a_biased_token_is_always_chosen(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=IDS, max_tokens=4, logit_bias={"77": 100}, extra_body={"return_token_ids": True, "ignore_eos": True}
    )
    assert answer.choices[0].model_extra["token_ids"] == [77] * 4  # type: ignore[index]


def test_completions_take_texts_ids_and_lists_of_both(client: openai.OpenAI) -> None:
    common: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 6}
    two = client.completions.create(**common, prompt=[IDS, IDS[:9]], n=2, seed=1)
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3]
    alone = client.completions.create(**common, prompt=IDS[:9])
    assert two.choices[2].text == two.choices[3].text == alone.choices[0].text
    assert two.usage is not None
    assert (two.usage.prompt_tokens, two.usage.completion_tokens) == (len(IDS) + 9, 24)
    echoed = client.completions.create(**common, prompt="Some text", echo=True)
    assert echoed.choices[0].text.startswith("Some text")
    assert client.completions.create(model=MODEL, prompt=["a", "b"]).usage.completion_tokens <= 32  # type: ignore[union-attr]


def test_completions_logprobs_are_lists_whose_offsets_point_into_the_text(client: openai.OpenAI) -> None:
    ask: dict[str, Any] = {"model": MODEL, "prompt": IDS, "seed": 2, "max_tokens": 30, "logprobs": 3}
    choice = client.completions.create(**ask).choices[0]
    lists = choice.logprobs
    assert lists is not None
    assert len(lists.tokens or []) == len(lists.token_logprobs or []) == len(lists.text_offset or []) == 30
    for word, best in zip(lists.tokens or [], lists.top_logprobs or [], strict=True):
        assert word in best
    for word, offset in zip(lists.tokens or [], lists.text_offset or [], strict=True):
        if word.isascii() and not word.startswith(("bytes:", "<")):
            assert choice.text[offset : offset + len(word)] == word
    text, tokens, offsets = "", [], []
    for chunk in client.completions.create(**ask, stream=True):
        piece = chunk.choices[0]
        text += piece.text
        tokens += (piece.logprobs.tokens or []) if piece.logprobs else []
        offsets += (piece.logprobs.text_offset or []) if piece.logprobs else []
    assert (text, tokens, offsets) == (choice.text, lists.tokens, lists.text_offset)


def test_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "swiftsure"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4o' is served here"):
        client.models.retrieve("gpt-4o")
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4o' is served here"):
        client.chat.completions.create(**{**ASK, "model": "gpt-4o"})


@pytest.mark.parametrize(
    ("asked", "used"), [("auto", "default"), ("default", "default"), ("flex", "default"), ("priority", "priority"), ("fast", "priority")]
)
def test_the_tier_really_used_is_told(client: openai.OpenAI, asked: Any, used: str) -> None:
    assert client.chat.completions.create(**{**ASK, "max_tokens": 2}, service_tier=asked).service_tier == used


def test_a_full_priority_tier_answers_429_and_never_serves_as_standard(server: RunningServer, client: openai.OpenAI) -> None:
    model = server.service.model(MODEL)
    long = SamplingParams(max_tokens=900, ignore_eos=True, seed=1)
    answers = server.on_loop(lambda: [model.submit(tuple(IDS), long, tier="priority") for _ in range(2)])
    try:
        with pytest.raises(openai.RateLimitError) as caught:
            client.chat.completions.create(**ASK, service_tier="priority")
        with pytest.raises(openai.BadRequestError, match="at most 2 answers"):
            client.chat.completions.create(**ASK, service_tier="priority", n=3)
        assert client.chat.completions.create(**ASK).service_tier == "default"
    finally:
        server.on_loop(lambda: [answer.cancel() for answer in answers])
    assert int(caught.value.response.headers["retry-after"]) >= 1
    until(lambda: model.lanes["priority"].requests == 0)


def test_a_client_that_leaves_ends_all_its_answers_and_no_other(server: RunningServer, client: openai.OpenAI) -> None:
    ended: list[str] = []
    seen = server.service.listeners
    seen.append(lambda model, answer: ended.append(answer.outcome.finish_reason if answer.outcome else str(answer.error)))
    long: dict[str, Any] = {"model": MODEL, "prompt": IDS, "max_tokens": 3800, "n": 2, "extra_body": {"ignore_eos": True}}
    try:
        other = client.chat.completions.create(**ASK, temperature=0, stream=True)
        with client.completions.create(**long, stream=True) as stream:
            next(stream)
        with pytest.raises(openai.APITimeoutError):
            client.completions.create(**long, timeout=0.1)
        assert list(other)[-1].choices[0].finish_reason == "length"
        until(lambda: sorted(ended) == ["cancelled"] * 4 + ["length"])
    finally:
        seen.pop()


def test_a_deadline_fails_the_request_whole_and_ends_a_stream_with_an_error(client: openai.OpenAI) -> None:
    long: dict[str, Any] = {"model": MODEL, "prompt": IDS, "max_tokens": 3800, "extra_body": {"ignore_eos": True, "deadline_s": 0.1}}
    with pytest.raises(openai.InternalServerError, match="time was over") as caught:
        client.completions.create(**long)
    assert (caught.value.status_code, caught.value.code) == (504, "deadline_exceeded")
    with pytest.raises(openai.APIError, match="time was over"):
        list(client.completions.create(**long, stream=True))


def test_keys_let_in_and_keep_to_their_tiers(tiny_settings: Callable[..., ServeSettings]) -> None:
    keys = (
        ApiKey(name="all", sha256=sha256(b"sk-all").digest()),
        ApiKey(name="plain", sha256=sha256(b"sk-plain").digest(), tiers=frozenset(("standard",))),
    )
    with running_server(tiny_settings(keys=keys)) as guarded:

        def ask(key: str, **fields: Any) -> Any:
            with openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key, max_retries=0, timeout=60) as client:
                client.models.list()
                return client.chat.completions.create(**{**ASK, "max_tokens": 1}, **fields)

        for key in ("sk-all", "sk-plain"):
            assert ask(key).service_tier == "default"
        assert ask("sk-all", service_tier="priority").service_tier == "priority"
        with pytest.raises(openai.PermissionDeniedError, match="'plain' may use standard, not the priority tier"):
            ask("sk-plain", service_tier="priority")
        with pytest.raises(openai.AuthenticationError, match="not known here"):
            ask("sk-other")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
def test_a_forced_call_has_arguments_of_its_schema_streamed_and_whole(client: openai.OpenAI, choice: Any) -> None:
    ask: dict[str, Any] = {**ASK, "max_tokens": 200, "seed": 2, "tools": [ADD], "tool_choice": choice, "parallel_tool_calls": False}
    answer = client.chat.completions.create(**ask).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", None)
    (call,) = answer.message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 7})
    name, arguments, ids = "", "", []
    for chunk in client.chat.completions.create(**ask, stream=True):
        end = chunk.choices[0].finish_reason
        for piece in chunk.choices[0].delta.tool_calls or []:
            ids += [piece.id] if piece.id else []
            name += piece.function.name or ""
            arguments += piece.function.arguments or ""
    assert (name, arguments, end, len(ids)) == ("add", call.function.arguments, "tool_calls", 1)
    history = [*MESSAGES, answer.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "8"}]
    again = client.chat.completions.create(**{**ask, "messages": history, "tool_choice": "auto", "parallel_tool_calls": True})
    assert again.usage is not None
    assert again.usage.prompt_tokens > client.chat.completions.create(**ask).usage.prompt_tokens  # type: ignore[union-attr]


def test_a_response_format_is_kept_to(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    form: Any = {"type": "json_schema", "json_schema": {"name": "point", "schema": schema}}
    answer = client.chat.completions.create(**{**ASK, "max_tokens": 100}, response_format=form, n=2)
    for choice in answer.choices:
        assert json.loads(choice.message.content or "")["x"] in (1, 2)
        assert choice.finish_reason == "stop"


# --- LangChain ------------------------------------------------------------------------------------------------------------


def test_langchain_answers_streams_and_counts(server: RunningServer) -> None:
    chat = ChatOpenAI(
        model=MODEL, base_url=f"{server.url}/v1", api_key="none", max_tokens=20, temperature=0, seed=1, max_retries=0, stream_usage=True
    )  # type: ignore[call-arg, arg-type]
    answer = chat.invoke([("system", "Be brief."), ("user", "Hello")])
    chunks = list(chat.stream([("system", "Be brief."), ("user", "Hello")]))
    assert "".join(chunk.text for chunk in chunks) == answer.text
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["output_tokens"] == 20
    assert [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata] == [20]
    assert [batch.text for batch in chat.batch([[("user", "One")], [("user", "Two")]])] == [
        chat.invoke([("user", word)]).text for word in ("One", "Two")
    ]


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, "it did not happen within 30 s"
        time.sleep(0.01)
