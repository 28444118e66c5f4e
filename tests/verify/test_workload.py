from __future__ import annotations

import json
from pathlib import Path

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.proving.builtin import builtin_workload
from swiftsure.verify.proving.workload import read_prompts, size_class


def write(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_builtin_workload_has_six_kinds_half_greedy_and_half_sampled() -> None:
    prompts = builtin_workload()
    assert len(prompts) >= 12
    assert {prompt.kind for prompt in prompts} == {"code", "rate_limiter", "chat", "summary", "json", "writing"}
    assert sum(prompt.greedy for prompt in prompts) * 2 == len(prompts)
    assert all(prompt.greedy or (prompt.temperature == 0.7 and prompt.seed > 0) for prompt in prompts)
    assert len({prompt.name for prompt in prompts}) == len(prompts)


def test_builtin_workload_has_a_greedy_and_a_sampled_prompt_of_every_kind() -> None:
    for kind in {prompt.kind for prompt in builtin_workload()}:
        assert {prompt.greedy for prompt in builtin_workload() if prompt.kind == kind} == {True, False}


def test_builtin_workload_asks_for_128_to_256_new_tokens_and_with_full_for_the_whole_rate_limiter() -> None:
    assert all(128 <= prompt.max_tokens <= 256 for prompt in builtin_workload())
    assert all(prompt.max_tokens == 2000 for prompt in builtin_workload(full=True) if prompt.kind == "rate_limiter")


def test_rate_limiter_task_names_everything_that_the_public_task_asks_for() -> None:
    text = next(prompt.text for prompt in builtin_workload() if prompt.kind == "rate_limiter") or ""
    parts = "fixed window, sliding window, token bucket, abstract base class, type hints, docstring, pytest, burst traffic, clock skew"
    for part in [*parts.split(", "), "zero capacity", "2,000 tokens", "truncated"]:
        assert part in text


@pytest.mark.model
def test_two_builtin_prompts_have_about_two_thousand_tokens_and_the_others_few(smollm2_path: Path) -> None:
    from swiftsure.models.catalogue import resolve
    from swiftsure.models.model import open_model

    with open_model(resolve(smollm2_path)) as model:
        assert model.chat_template is not None
        texts = [model.chat_template.render(list(prompt.chat())) for prompt in builtin_workload()]
        counts = sorted(len(model.tokenizer.encode(text, special=True)) for text in texts)
    assert all(1800 <= count <= 2200 for count in counts[-2:])
    assert counts[-3] < 600


def test_text_file_is_one_prompt_a_line(tmp_path: Path) -> None:
    prompts = read_prompts(write(tmp_path, "p.txt", "first\n\n  second  \r\n한국어\n"))
    assert [prompt.text for prompt in prompts] == ["first", "second", "한국어"]
    assert [prompt.name for prompt in prompts] == ["line-1", "line-3", "line-4"]
    assert all(prompt.greedy for prompt in prompts)


def test_json_lines_carry_messages_and_sampling(tmp_path: Path) -> None:
    record = {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}], "kind": "chat", "name": "a",
              "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 3, "presence_penalty": 0.5}  # fmt: skip
    prompt = read_prompts(write(tmp_path, "p.jsonl", json.dumps(record)))[0]
    assert prompt.chat() == tuple(record["messages"])  # type: ignore[arg-type]
    assert prompt.sampling() == {
        "max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 3, "repetition_penalty": 1.0,
        "presence_penalty": 0.5, "frequency_penalty": 0.0,
    }  # fmt: skip


def test_sampled_prompt_without_a_seed_gets_its_line_number(tmp_path: Path) -> None:
    prompts = read_prompts(write(tmp_path, "p.jsonl", '{"prompt": "a"}\n{"prompt": "b", "temperature": 1}\n'))
    assert prompts[1].seed == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "a"', "not JSON: "),
        ("[1]", "a line must be a JSON object, got list"),
        ('{"prompt": "a", "temprature": 1}', "unknown field 'temprature'; known are .*temperature"),
        ('{"kind": "chat"}', "either prompt or messages"),
        ('{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}', "either prompt or messages"),
        ('{"prompt": ""}', "prompt must be a text that is not empty"),
        ('{"prompt": 5}', "prompt must be a text that is not empty, got 5"),
        ('{"prompt": "a", "max_tokens": 0}', "max_tokens must be at least 1, got 0"),
        ('{"prompt": "a", "max_tokens": 2.5}', "max_tokens must be a whole number, got 2.5"),
        ('{"prompt": "a", "max_tokens": true}', "max_tokens must be a number, got True"),
        ('{"prompt": "a", "temperature": NaN}', "temperature must be between 0 and 10, got nan"),
        ('{"prompt": "a", "temperature": "hot"}', "temperature must be a number, got 'hot'"),
        ('{"prompt": "a", "seed": -1}', "seed must be at least 0, got -1"),
        ('{"messages": []}', "at least 1 message"),
        ('{"messages": [{"role": "robot", "content": "b"}]}', "role must be one of system, user, assistant, got 'robot'"),
        ('{"messages": [{"role": "user"}]}', "exactly role and content"),
        ('{"messages": [{"role": "user", "content": null}]}', "content must be a text, got None"),
        ('{"prompt": "a\\ud800"}', "texts must be valid Unicode"),
        ('{"prompt": "a", "kind": "\\udfff"}', "texts must be valid Unicode"),
        ('{"prompt": "a", "temperature": 1' + "0" * 400 + "}", "temperature must be between 0 and 10, got inf"),
        ('{"prompt": "a", "seed": 1' + "0" * 5000 + "}", "JSON beyond what can be read"),
        ("[" * 100_000, "JSON beyond what can be read"),
        ('{"prompt": "a", "name": "first"}', "the name 'first' is taken"),
    ],
)
def test_bad_line_is_named_with_its_rule(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, "p.jsonl", '{"prompt": "fine", "name": "first"}\n\n' + line + "\n")
    with pytest.raises(UsageError, match=f"p.jsonl line 3: .*{message}"):
        read_prompts(path)


def test_file_of_another_kind_missing_empty_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends with \.txt or \.jsonl, got p\.csv"):
        read_prompts(write(tmp_path, "p.csv", "a"))
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(UsageError, match="holds no prompt"):
        read_prompts(write(tmp_path, "e.txt", "\n  \n"))
    (tmp_path / "b.txt").write_bytes(b"ok\n\xff\xfe")
    with pytest.raises(UsageError, match=r"must be UTF-8: .* at byte 3"):
        read_prompts(tmp_path / "b.txt")


@pytest.mark.parametrize(("tokens", "size"), [(1, "short"), (255, "short"), (256, "medium"), (1023, "medium"), (1024, "long")])
def test_sizes_have_fixed_edges(tokens: int, size: str) -> None:
    assert size_class(tokens) == size
