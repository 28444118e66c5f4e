"""``swiftsure check``: what a mode would do here, without running it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from tiny_models import TinyModel, TinySpec, spec_of_architecture


def test_check_resolves_pins_machine_levers_and_memory(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("check", tiny, "--mode", "exact", "--threads", "2", "--context", "128", "--json")
    facts = json.loads(result.out)
    assert (result.code, facts["mode"], facts["active"], facts["reason"]) == (0, "exact", True, None)
    assert facts["activation"]["levers_on"] == ["speculation", "prefix_cache", "batching", "chunked_prefill"]
    assert (facts["activation"]["numerics"], facts["activation"]["threads"]) == ("cpu1", 2)
    assert (facts["memory"]["context"], facts["memory"]["model_context"]) == (128, 640)
    assert "schedule" not in facts
    assert result.err == ""


def test_the_schedule_has_every_step_with_its_cost(swiftsure: Run, tiny: Path) -> None:
    steps = json.loads(swiftsure("check", tiny, "--json", "--show-schedule").out)["schedule"]
    with open_model(resolve(tiny)) as model:
        assert len(steps) == len(model.schedule().ops)
    lines = swiftsure("check", tiny, "--show-schedule").out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("step"))
    assert len(lines) - at == len(steps) + 2  # the head before, the sum after
    assert max(map(len, lines[at:])) <= 80


def test_a_lever_left_off_is_shown_as_off(swiftsure: Run, tiny: Path) -> None:
    facts = json.loads(swiftsure("check", tiny, "--mode", "exact", "--without", "speculation,batching", "--json").out)
    assert facts["activation"]["levers_on"] == ["prefix_cache", "chunked_prefill"]
    assert facts["activation"]["levers_off"] == ["speculation", "batching"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--mode", "big"], "levers"),
        (["--isa", "amx"], "amx"),
        (["--kv-memory", "1000"], "key-value"),
    ],
)
@pytest.mark.usefixtures("without_amx")
def test_what_cannot_engage_is_not_active_with_the_reason_and_exit_code_three(
    swiftsure: Run, tiny: Path, arguments: list[str], reason: str
) -> None:
    result = swiftsure("check", tiny, *arguments)
    assert result.code == 3
    assert reason in result.line("NOT ACTIVE mode=")
    assert "active" in result.out


def test_an_unknown_mode_is_a_usage_error(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("check", tiny, "--mode", "quick")
    assert result.code == 2
    assert "known modes: default, exact, fast, big" in result.line("error: ")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (spec_of_architecture("qwen2"), ["add_bias 128 qkv"]),
        (spec_of_architecture("qwen3"), ["head_norm 4 x 16 at 0 qkv", "head_norm 2 x 16 at 64 qkv"]),
        (spec_of_architecture("llama", scaling="llama3"), ["rope 6 x 16 at 0, slowed qkv"]),
    ],
    ids=["qwen2", "qwen3", "llama3"],
)
def test_the_schedule_shows_what_sets_an_architecture_apart(swiftsure: Run, tmp_path: Path, spec: TinySpec, expected: list[str]) -> None:
    path = TinyModel(spec).write_gguf(tmp_path / "tiny.gguf")
    lines = [" ".join(line.split()) for line in swiftsure("check", path, "--show-schedule").out.splitlines()]
    for words in expected:
        assert sum(f" {words} " in line for line in lines) == spec.layers
