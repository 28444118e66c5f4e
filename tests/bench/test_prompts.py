"""What is asked: built-in prompts, users' own files, cold starts and long contexts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from swiftsure.bench.exchange import Prompt
from swiftsure.bench.prompts.builtin import builtin_prompts, quick_prompts
from swiftsure.bench.prompts.change import as_messages, as_text, characters, cold, digest, nonce, with_context
from swiftsure.bench.prompts.context import context_for, long_text
from swiftsure.bench.prompts.read import read_prompts
from swiftsure.errors import UsageError

SAID = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
CHAT = Prompt(name="a", kind="chat", messages=SAID, max_tokens=9)
TEXT = Prompt(name="b", kind="own", text="Once upon", max_tokens=9)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_built_in_set_is_ten_to_twenty_prompts_of_several_kinds_with_room_for_a_whole_rate_limiter() -> None:
    prompts = {prompt.name: prompt for prompt in builtin_prompts()}
    assert 10 <= len(prompts) <= 20
    assert {"chat", "code", "summary", "extraction", "rate_limiter"} <= {prompt.kind for prompt in prompts.values()}
    assert prompts["rate-limiter"].max_tokens >= 2500
    assert all(as_messages(prompt).messages[-1]["role"] == "user" for prompt in prompts.values() if prompt.messages)
    assert len(quick_prompts()) == 3


def test_a_cold_prompt_differs_from_its_first_character_on() -> None:
    once, again = cold(CHAT, nonce()), cold(CHAT, nonce())
    assert once.messages is not None
    assert again.messages is not None
    assert once.messages[0]["content"][:18] != again.messages[0]["content"][:18]
    assert once.messages[0]["content"].endswith("Be brief.")
    assert (cold(TEXT, "x").text or "").startswith("[x] Once")
    parts = cold(Prompt(name="c", kind="own", messages=[{"role": "user", "content": [{"type": "image_url"}]}], max_tokens=1), "x").messages
    assert parts is not None
    assert parts[0]["content"][0] == {"type": "text", "text": "[x] "}


def test_a_long_context_stands_above_what_the_user_says() -> None:
    long = with_context(CHAT, "Long text.")
    assert long.messages is not None
    assert [message["content"] for message in long.messages] == ["Be brief.", "Long text.\n\n---\n\nWhy?"]
    assert with_context(TEXT, "Long text.").text == "Long text.\n\n---\n\nOnce upon"


def test_prompts_fit_each_interface() -> None:
    assert as_text(CHAT).text == "system: Be brief.\n\nuser: Why?\n\nassistant:"
    assert as_messages(TEXT).messages == [{"role": "user", "content": "Once upon"}]
    assert characters(CHAT) == len("Be brief.Why?")
    assert digest([CHAT]) != digest([TEXT]) != digest([CHAT, TEXT])


def test_no_page_of_the_long_text_comes_twice() -> None:
    text = long_text(200_000)
    assert 199_000 < len(text) <= 200_000
    assert text == long_text(200_000)
    assert all(text.count(text[i : i + 1500]) == 1 for i in range(0, len(text) - 1500, 5000))


def test_context_is_scaled_to_the_window_and_says_so() -> None:
    assert context_for(30_000, window=None, others_tokens=500).scaled is None
    assert context_for(30_000, window=131_072, others_tokens=500).tokens == 30_000
    scaled = context_for(30_000, window=8192, others_tokens=1192)
    assert scaled.tokens == 6650
    assert "30000 tokens were wanted; the model's window of 8192 leaves 6650" in str(scaled.scaled)
    with pytest.raises(UsageError, match="window of 512 tokens leaves no room"):
        context_for(30_000, window=512, others_tokens=400)


def test_a_text_file_has_a_prompt_between_lines_of_three_dashes(tmp_path: Path) -> None:
    found = read_prompts(written(tmp_path, "my.txt", "\ufeffFirst\n\nstill first\n---\n\n---\nSecond\n"), limit=20)
    assert [(prompt.name, prompt.text) for prompt in found.prompts] == [("my-1", "First\n\nstill first"), ("my-2", "Second")]


def test_jsonl_has_texts_messages_and_request_logs(tmp_path: Path) -> None:
    lines = [
        {"prompt": "P", "max_tokens": 7, "temperature": 0.5, "difficulty": 3},
        {"name": "n", "kind": "k", "messages": [{"role": "user", "content": "M"}], "sampling": {"anything": 1}},
        {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {
            "model": "gpt", "stream": True, "user": "u", "max_completion_tokens": 5, "odd": 1, "messages": SAID}},
        "plain",
    ]  # fmt: skip
    found = read_prompts(written(tmp_path, "log.jsonl", "\n".join(map(json.dumps, lines)) + "\n"), limit=20)
    first, second, third, fourth = found.prompts
    assert (first.text, first.max_tokens, first.sampling) == ("P", 7, {"temperature": 0.5})
    assert found.not_sent == ("difficulty",)
    assert (second.name, second.kind, second.sampling, second.max_tokens) == ("n", "k", {"anything": 1}, 512)
    assert (third.name, third.max_tokens, third.sampling) == ("r1", 5, {"odd": 1})
    assert fourth.text == "plain"
    limited = read_prompts(tmp_path / "log.jsonl", limit=2, max_tokens=3)
    assert ([prompt.max_tokens for prompt in limited.prompts], limited.left_out) == ([3, 3], 2)


def test_sharegpt_is_asked_up_to_its_last_human_turn(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "A"}, {"from": "gpt", "value": "B"}, {"from": "human", "value": "C"}, {"from": "gpt", "value": "D"}]
    found = read_prompts(written(tmp_path, "s.json", json.dumps([{"id": "x", "conversations": turns}])), limit=5)
    assert found.prompts[0].name == "x"
    assert [(message["role"], message["content"]) for message in found.prompts[0].messages or ()] == [
        ("user", "A"),
        ("assistant", "B"),
        ("user", "C"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"prompt": "x"}\n{"prompt": }\n', "line 2: not JSON: Expecting value at column 12"),
        ("a.jsonl", '\n{"prompt": "x", "messages": []}\n', "line 2: a prompt has either messages, or a text"),
        ("a.jsonl", '{"prompt": " "}\n', "line 1: the text of a prompt must be a string that is not blank"),
        ("a.jsonl", '{"prompt": "x", "max_tokens": 0}\n', "line 1: max_tokens must be a whole number in 1..1000000, got 0"),
        ("a.jsonl", '{"messages": [{"role": "robot", "content": "x"}]}\n', "line 1: the role of message 1 must be one of"),
        ("a.jsonl", '{"messages": [{"role": "user", "content": 5}]}\n', "the content of message 1 must be a text or a list"),
        ("a.jsonl", '{"name": "n", "prompt": "x"}\n{"name": "n", "prompt": "y"}\n', "line 2: a prompt named 'n' was there before"),
        ("a.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("a.json", "{}", "must hold an array of prompts, got dict"),
        ("a.json", '[\n1,\n{"a"}]', "not JSON: .* at column 5 .line 3"),
        ("a.json", '[{"conversations": [{"from": "gpt", "value": "x"}]}]', "entry 1: the conversation has no human turn"),
        ("a.json", '[{"conversations": [{"from": "elf", "value": "x"}]}]', "entry 1: turn 1 is from 'elf'"),
        ("a.txt", "---\n\n", "holds no prompt"),
        ("a.csv", "x", "read from .txt, .jsonl or .json files, got '.csv'"),
    ],
)
def test_a_bad_file_is_refused_by_rule_and_place(tmp_path: Path, name: str, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_prompts(written(tmp_path, name, text), limit=20)


def test_a_file_that_is_not_text_is_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\n\xff\xfe\n")
    with pytest.raises(UsageError, match="line 2: not UTF-8"):
        read_prompts(path, limit=5)
    with pytest.raises(UsageError, match="is a folder"):
        read_prompts(tmp_path, limit=5)
    with pytest.raises(UsageError, match="cannot be read"):
        read_prompts(tmp_path / "none.txt", limit=5)


@pytest.mark.parametrize("name", ["stream", "model", "messages", "max_tokens", "n"])
def test_sampling_may_not_hold_what_the_bench_decides(tmp_path: Path, name: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": "a", "sampling": {name: None}}))
    with pytest.raises(UsageError, match=f"line 1: sampling may not hold {name}: the bench decides that itself"):
        read_prompts(path, limit=1)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.jsonl")
    with pytest.raises(UsageError, match="is a pipe or a device"):
        read_prompts(tmp_path / "p.jsonl", limit=1)
