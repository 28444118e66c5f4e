"""``swiftsure quantize``: what it prints, what it refuses, and the model it makes runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from cli_runner import Run, start

from tiny_models import TinyModel, TinySpec


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(type="BF16", seed=3)).write_gguf(tmp_path_factory.mktemp("wide") / "wide.gguf")


def test_a_quantized_model_runs(swiftsure: Run, wide: Path, tmp_path: Path) -> None:
    made = swiftsure("quantize", wide, tmp_path / "narrow.gguf", "--type", "Q8_0")
    assert made.code == 0
    head, *lines = made.out.splitlines()
    assert head.split() == ["tensor", "type", "before", "after", "relative", "L2", "error"]
    assert lines[0].split()[:4] == ["token_embd.weight", "BF16", "->", "Q8_0"]
    assert any(line.startswith("worst tensor") and ".weight: 0.00" in line for line in lines)
    sampling = ("-p", "the", "--max-tokens", "8", "--temperature", "0", "--raw")
    before, after = (swiftsure("run", path, *sampling) for path in (wide, tmp_path / "narrow.gguf"))
    assert (before.code, after.code) == (0, 0)
    assert len(after.out) > 0


def test_json_has_each_tensor_and_the_sources_digest(swiftsure: Run, wide: Path, tmp_path: Path) -> None:
    arguments = ("--type", "Q4_0", "--head", "Q8_0", "--method", "rtn", "--json")
    facts = json.loads(swiftsure("quantize", wide, tmp_path / "narrow.gguf", *arguments).out)
    assert facts["method"] == "rtn"
    assert len(facts["source_sha256"]) == 64
    assert {entry["name"]: entry["type"] for entry in facts["tensors"]}["token_embd.weight"] == "Q8_0"
    assert facts["output_bytes"] == (tmp_path / "narrow.gguf").stat().st_size


def test_rounding_twice_is_said_openly(swiftsure: Run, tmp_path: Path) -> None:
    eight = TinyModel(TinySpec(type="Q8_0")).write_gguf(tmp_path / "eight.gguf")
    refused = swiftsure("quantize", eight, tmp_path / "four.gguf", "--type", "Q4_1")
    assert refused.code == 2
    assert "it would be rounded twice" in refused.line("error: ")
    made = swiftsure("quantize", eight, tmp_path / "four.gguf", "--type", "Q4_1", "--requantize")
    assert made.code == 0
    assert "15 tensors held 8-bit weights already" in made.line("LOSSY ON LOSSY: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to do: give --type, --head or --embedding"),
        (("--type", "Q5_K"), "type must be one of Q8_0, Q4_0, Q4_1, got 'Q5_K'"),
        (("--type", "Q4_0", "--method", "best"), "method must be one of search, rtn, got 'best'"),
        (("--type", "Q4_0", "--threads", "0"), "threads must be an integer from 1 to 256"),
        (("--head", "Q4_0", "--embedding", "Q8_0"), "one tensor, which cannot be Q4_0 and Q8_0 at once"),
    ],
)
def test_a_usage_error_names_rule_and_value(swiftsure: Run, wide: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = swiftsure("quantize", wide, tmp_path / "out.gguf", *arguments)
    assert result.code == 2
    assert message in result.line("error: ")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_no_file_behind(tmp_path: Path) -> None:
    big = TinyModel(TinySpec(type="F32", hidden=512, intermediate=2048, vocab=300, layers=3)).write_gguf(tmp_path / "big.gguf")
    target = tmp_path / "out.gguf"
    with start("quantize", big, target, "--type", "Q4_1", "--threads", "1") as process:
        while process.poll() is None and not list(tmp_path.glob("out.gguf.*.part")):
            os.sched_yield()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode().strip()) == (1, "error: interrupted")
    assert [p.name for p in tmp_path.iterdir()] == ["big.gguf"]
