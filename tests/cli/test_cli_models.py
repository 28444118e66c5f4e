"""``swiftsure models``: which exact bytes; and the embedded default model from the command line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from cli_runner import Run

from tiny_models import TinyModel, TinySpec

NAME = "smollm2-135m-instruct"
DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path))
    return tmp_path


def planted(swiftsure: Run, data: bytes) -> Path:
    """A file in the place of the default model's."""
    path = Path(json.loads(swiftsure("models", "list", "--json").out)[0]["path"])
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def test_the_list_says_what_is_cached(swiftsure: Run, empty_home: Path) -> None:
    assert swiftsure("models", "list").out.splitlines()[1].split() == [NAME, "(default)", "98.4", "MB", "apache-2.0", "not", "cached"]
    planted(swiftsure, b"anything")
    assert swiftsure("models", "list").out.splitlines()[1].endswith("  cached")


@pytest.mark.parametrize("command", [["run", "-p", "hello"], ["check"], ["models", "info"], ["models", "verify"]], ids=" ".join)
def test_other_bytes_than_the_pinned_ones_are_refused(swiftsure: Run, empty_home: Path, tiny: Path, command: list[str]) -> None:
    planted(swiftsure, tiny.read_bytes())
    result = swiftsure(*command)
    assert result.code == 2
    assert DIGEST in result.line("error: ")
    assert hashlib.sha256(tiny.read_bytes()).hexdigest() in result.line("error: ")


def test_a_cache_folder_of_an_unknown_user_is_refused(swiftsure: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_HOME", "~no-such-user/cache")
    result = swiftsure("models", "list")
    assert result.code == 2
    assert "SWIFTSURE_HOME must name a folder, got '~no-such-user/cache'" in result.line("error: ")


def test_offline_without_the_file_is_refused(swiftsure: Run, empty_home: Path) -> None:
    result = swiftsure("models", "info", "--offline")
    assert result.code == 2
    assert "offline" in result.line("error: ")


def test_a_file_without_a_pin_has_its_digest_printed(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("models", "verify", tiny, "--json")
    assert result.code == 0
    assert json.loads(result.out)["sha256"] == hashlib.sha256(tiny.read_bytes()).hexdigest()


def test_info_describes_file_tensors_and_costs(swiftsure: Run, tiny: Path) -> None:
    facts = json.loads(swiftsure("models", "info", tiny, "--json").out)
    assert facts["architecture"] == "llama"
    assert facts["tensor_types"]["F32"]["tensors"] == 5
    assert facts["decode_bytes_per_token"] < facts["file_bytes"]
    shown = swiftsure("models", "info", tiny).out
    assert {"architecture", "a token reads", "tensor type", "licence", "tokenizer"} <= {line.split("  ")[0] for line in shown.splitlines()}
    table = shown[shown.index("tensor type") :]
    assert max(map(len, table.splitlines())) <= 80


def test_info_plans_memory_for_a_context_in_every_mode(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("models", "info", tiny, "--context", "512", "--json")
    memory = json.loads(result.out)["memory"]
    planned = json.loads(swiftsure("check", tiny, "--mode", "fast", "--context", "512", "--json").out)["memory"]
    assert {"default", "exact", "fast"} <= memory.keys()
    for name in ("context", "kv_bytes", "kv_bytes_per_token", "weight_bytes"):
        assert memory["fast"][name] == planned[name]
    assert memory["fast"]["kv_bytes"] < memory["default"]["kv_bytes"]
    refused = swiftsure("models", "info", tiny, "--context", "0")
    assert refused.code == 2
    assert "context must be an integer of at least 1, got 0" in refused.line("error: ")


def test_info_says_what_a_window_saves_and_what_it_does_not(swiftsure: Run, tmp_path: Path) -> None:
    path = TinyModel(TinySpec(architecture="gemma3", layers=4, window=96, global_every=4, rope_style="halves")).write_gguf(
        tmp_path / "windows.gguf"
    )
    shown = swiftsure("models", "info", path).out
    assert "3 of 4 layers read the last 96 positions alone; all layers keep the keys and values of all positions" in shown
    assert json.loads(swiftsure("models", "info", path, "--json").out)["attention_windows"] == {"96": 3}


def test_info_gives_every_reason_why_a_model_cannot_run(swiftsure: Run, tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "warbler")
    writer.add_tokenizer_model("rwkv")
    for name in ("a.weight", "b.weight"):
        writer.add_tensor(name, np.zeros((4, 84), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q2_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    result = swiftsure("models", "info", tmp_path / "odd.gguf")
    assert result.code == 2
    for reason in ("architecture 'warbler' is not", "tensor 'a.weight' (1 more alike) has type Q2_K", "tokenizer model 'rwkv' is not"):
        assert reason in result.out
    assert "\nsupported architectures  gemma3, llama, qwen2, qwen3\n" in result.out
    assert json.loads(swiftsure("models", "info", tmp_path / "odd.gguf", "--json").out)["memory"] is None


@pytest.mark.parametrize("command", ["info", "verify", "pull"])
def test_a_missing_file_is_refused_by_name(swiftsure: Run, tmp_path: Path, command: str) -> None:
    result = swiftsure("models", command, tmp_path / "nowhere.gguf")
    assert result.code == 2
    assert "nowhere.gguf: no such file" in result.line("error: ")


@pytest.mark.model
def test_the_default_model_is_the_pinned_one(swiftsure: Run, smollm2_path: Path) -> None:
    facts = json.loads(swiftsure("models", "info", "--json").out)
    assert (facts["path"], facts["sha256"], facts["licence"]) == (str(smollm2_path), DIGEST, "apache-2.0")
    assert facts["tensor_types"].keys() == {"F32", "Q4_1", "Q8_0"}


@pytest.mark.model
def test_the_default_model_answers_the_same_in_exact_as_in_default(swiftsure: Run, smollm2_path: Path) -> None:
    def answer(mode: str) -> str:
        sampling = ("--max-tokens", "24", "--temperature", "0.7", "--seed", "7")
        result = swiftsure("run", "-p", "Write a haiku about memory bandwidth", "--mode", mode, *sampling)
        assert result.code == 0
        assert f"mode={mode} model={NAME} weights=sha256:{DIGEST}" in result.line("ACTIVE ")
        return result.out

    assert answer("exact") == answer("default")
