"""Mode fast on the pinned model: what a verification says of it, and of the same mode with a fault on long inputs alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from swiftsure.verify.cases import cases_of_texts
from swiftsure.verify.contracts.contract import Contract, load_contract, parse_contract
from swiftsure.verify.subjects.mode import ModeOptions, ModeSubject
from swiftsure.verify.verification import Verification
from swiftsure.verify.verify import VerifyOptions, verify

pytestmark = pytest.mark.model
WORKER = str(Path(__file__).with_name("dishonest_worker.py"))

SMALL = """
kind = "fast"
owner = "someone"
unit = "tokens"
sizes = [80]
[texts]
prose = "tempest.txt"
[fast.outputs.logits]
kl_mean = 0.02
top1_agreement = 0.9
[[task]]
name = "next word"
suite = "words"
margin = 0.3
least_items = 135
"""


def verified(contract: Contract, model: Path, worker: tuple[str, ...] | None = None) -> Verification:
    options = ModeOptions(model=str(model))
    other = ModeSubject("fast", options) if worker is None else ModeSubject("fast", options, worker=worker)
    return verify(contract, ModeSubject("default", options), other, cases_of_texts(contract), VerifyOptions())


@pytest.mark.verdict("PASS", "mode fast of the built-in engine: within its tolerances, and no worse at a task, with an interval")
def test_mode_fast_passes_with_its_interval(smollm2_path: Path, full: bool, promised: str) -> None:
    contract = load_contract("fast") if full else parse_contract(SMALL)
    found = verified(contract, smollm2_path)
    assert found.kind == promised, found.record["verdict"]
    [task] = found.record["tasks"].values()
    whole = task["whole"]
    assert whole["items"] == (900 if full else 135)
    assert -whole["margin"] < whole["low"] <= whole["difference"] <= whole["high"]
    assert whole["p_non_inferior"] <= 0.05


@pytest.mark.verdict("FAIL", "mode fast with a fault on inputs over 80 tokens: the task as a whole is no worse, the long inputs are")
def test_a_loss_at_one_input_size_fails_though_the_mean_passes(smollm2_path: Path, promised: str) -> None:
    found = verified(parse_contract(SMALL), smollm2_path, (sys.executable, WORKER, "stuck", "fast"))
    assert found.kind == promised, found.record["verdict"]
    [task] = found.record["tasks"].values()
    assert task["whole"]["decision"] == "non_inferior"
    assert {name: group["decision"] for name, group in task["by_group"].items()} == {
        "up to 80 tokens": "non_inferior",
        "over 80 tokens": "inferior",
    }
    [reason] = found.record["verdict"]["reasons"]
    assert reason.startswith("task next word, over 80 tokens: ")
    assert reason.endswith("worse by more than 0.3 though the whole is not")
