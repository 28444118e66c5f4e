"""``swiftsure check``: what a mode would do here, without running it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model


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
