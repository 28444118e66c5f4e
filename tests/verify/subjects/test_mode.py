from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swiftsure.engine.load_options import LoadOptions
from swiftsure.errors import UsageError
from swiftsure.verify.compare.exact import compare_trials
from swiftsure.verify.proving.client import WorkerError
from swiftsure.verify.subjects.base import Case, Trial
from swiftsure.verify.subjects.mode import ModeOptions, ModeSubject
from tiny_models import TinyModel, TinySpec

PROMPT = Case(id="greedy", request={"prompt": "abc abc abc abc abc abc abc abc abc", "max_tokens": 24})
SAMPLED = Case(id="sampled", request={"prompt": "the cat sat", "sampling": {"max_tokens": 16, "temperature": 0.7, "seed": 5}})
ONE_THREAD = LoadOptions(threads=1)
TEXT = Case(id="text", request={"score": "the cat sat on the mat", "tokens": 5})

STUBBORN = """
import sys, json, time
for line in sys.stdin:
    op = json.loads(line)["op"]
    if op == "load":
        print("ACTIVE mode={mode} model=x", file=sys.stderr, flush=True)
        print(json.dumps({{"ok": True, "vocab_size": 3}}), flush=True)
    {then}
"""


@pytest.fixture(scope="module")
def trials(tiny_path: Path) -> dict[str, list[Trial]]:
    """Both modes on the same cases, each answered twice."""
    found: dict[str, list[Trial]] = {}
    for mode in ("default", "exact"):
        subject = ModeSubject(mode, ModeOptions(model=str(tiny_path), load=ONE_THREAD, logits=True))
        try:
            activation = subject.start()
            assert activation.state == "active"
            assert f"mode={mode}" in str(activation.evidence)
            found[mode] = [subject.run(case) for case in (PROMPT, SAMPLED, TEXT, PROMPT)]
        finally:
            subject.close()
    return found


def test_exact_has_the_bits_of_default(trials: dict[str, list[Trial]]) -> None:
    for base, candidate in zip(trials["default"], trials["exact"], strict=True):
        found = compare_trials(base, candidate)
        assert found.equal, found.describe()
        assert found.bits_compared > 0


def test_outputs_are_the_text_its_tokens_and_a_row_of_logits_for_each(trials: dict[str, list[Trial]]) -> None:
    trial = trials["default"][0]
    assert list(trial.outputs) == ["text", "finish_reason", "token_ids", "logits"]
    ids: Any = trial.outputs["token_ids"]
    logits: Any = trial.outputs["logits"]
    assert logits.shape == (len(ids), 300)
    assert np.array_equal(logits.argmax(1), ids)  # greedy
    assert logits.dtype == np.float32


def test_phases_sum_to_the_whole_and_memory_is_measured(trials: dict[str, list[Trial]]) -> None:
    trial = trials["exact"][0]
    assert sum(trial.phases_s.values()) == pytest.approx(trial.wall_s, rel=0.01)
    assert {"prefill", "decode"} <= set(trial.phases_s)
    assert (trial.peak_bytes or 0) > 10 << 20


def test_a_text_is_scored_at_every_position(trials: dict[str, list[Trial]]) -> None:
    outputs = trials["default"][2].outputs
    assert len(outputs["token_ids"]) == 5
    assert outputs["logits"].shape == (5, 300)  # type: ignore[union-attr]


def test_each_trial_says_whether_the_levers_left_evidence(trials: dict[str, list[Trial]]) -> None:
    assert {trial.activation.state for trial in trials["exact"] if trial.activation} == {"active"}


def test_another_file_differs_at_a_place_that_is_named(tiny_path: Path, tmp_path: Path, trials: dict[str, list[Trial]]) -> None:
    other = TinyModel(TinySpec(seed=3)).perturbed("output_norm.weight", 2).write_gguf(tmp_path / "other.gguf")
    subject = ModeSubject("default", ModeOptions(model=str(other), load=ONE_THREAD, logits=True), spec=f"file:{other}")
    try:
        subject.start()
        found = compare_trials(trials["default"][0], subject.run(PROMPT))
    finally:
        subject.close()
    assert not found.equal
    assert found.first is not None
    assert found.outputs["logits"].first is not None
    assert str(found.outputs["logits"].first.where).startswith("[0, ")


def test_a_prompt_beyond_the_context_is_refused_and_the_next_runs(tiny_path: Path) -> None:
    subject = ModeSubject("default", ModeOptions(model=str(tiny_path), load=ONE_THREAD))
    try:
        subject.start()
        trial = subject.run(Case(id="long", request={"prompt": "word " * 2000}))
        assert trial.status == "refused"
        assert "640" in str(trial.reason)
        assert subject.run(PROMPT).status == "ran"
    finally:
        subject.close()


def test_a_request_that_breaks_a_rule_fails_its_trial(tiny_path: Path) -> None:
    subject = ModeSubject("default", ModeOptions(model=str(tiny_path), load=ONE_THREAD))
    try:
        subject.start()
        assert "unknown field 'temprature'" in str(subject.run(Case(id="x", request={"prompt": "a", "temprature": 1})).reason)
        assert "temperature" in str(subject.run(Case(id="x", request={"prompt": "a", "temperature": -1})).reason)
        assert "neither a request nor a file" in str(subject.run(Case(id="x")).reason)
    finally:
        subject.close()


def test_a_case_may_be_a_file(tiny_path: Path, tmp_path: Path, trials: dict[str, list[Trial]]) -> None:
    (tmp_path / "case.json").write_text('{"prompt": "abc abc abc abc abc abc abc abc abc", "max_tokens": 24}')
    subject = ModeSubject("default", ModeOptions(model=str(tiny_path), load=ONE_THREAD, logits=True))
    try:
        subject.start()
        assert compare_trials(trials["default"][0], subject.run(Case(id="greedy", path=tmp_path / "case.json"))).equal
    finally:
        subject.close()


def test_an_unknown_mode_is_a_usage_error(tiny_path: Path) -> None:
    with pytest.raises(UsageError, match="turbo"):
        ModeSubject("turbo", ModeOptions(model=str(tiny_path)))


def test_a_model_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    subject = ModeSubject("default", ModeOptions(model=str(tmp_path / "no.gguf"), load=LoadOptions(offline=True)))
    try:
        with pytest.raises(WorkerError) as caught:
            subject.start()
        assert caught.value.exit_code == 2
    finally:
        subject.close()


def stubborn(mode: str, then: str, **options: Any) -> ModeSubject:
    source = STUBBORN.format(mode=mode, then=then)
    return ModeSubject("exact", ModeOptions(model="x", **options), worker=(sys.executable, "-c", source))


def test_a_worker_that_runs_another_mode_is_not_active() -> None:
    subject = stubborn("default", "pass")
    try:
        activation = subject.start()
        assert (activation.state, activation.reason) == ("not_active", "the worker runs another mode than exact")
    finally:
        subject.close()


def test_a_mode_that_cannot_engage_is_not_active_and_every_case_is_refused() -> None:
    answer = '{"ok": False, "error": "NotActiveError", "exit_code": 3, "reason": "mode exact is not active: no tiles"}'
    source = f"import sys, json\nsys.stdin.readline()\nprint(json.dumps({answer}), flush=True)\nsys.stdin.read()"
    subject = ModeSubject("exact", ModeOptions(model="x"), worker=(sys.executable, "-c", source))
    try:
        activation = subject.start()
        assert (activation.state, activation.reason) == ("not_active", "no tiles")
        assert subject.run(PROMPT).status == "refused"
    finally:
        subject.close()


def test_a_trial_that_takes_too_long_is_ended_and_the_next_gets_a_new_process() -> None:
    subject = stubborn("exact", "else: time.sleep(600)", time_limit_s=1.0)
    try:
        subject.start()
        for _ in range(2):
            trial = subject.run(PROMPT)
            assert (trial.status, trial.reason) == ("timed_out", "ended after 1 s, the time limit")
    finally:
        subject.close()


def test_a_worker_that_dies_fails_its_trial() -> None:
    subject = stubborn("exact", "else: sys.exit('broken')")
    try:
        subject.start()
        trial = subject.run(PROMPT)
        assert trial.status == "failed"
        assert "its last words: broken" in str(trial.reason)
    finally:
        subject.close()


def test_a_worker_that_asks_for_more_than_the_limit_is_out_of_memory() -> None:
    subject = stubborn("exact", "else: x = bytearray(400 << 20)", memory_limit_bytes=200 << 20)
    try:
        subject.start()
        trial = subject.run(PROMPT)
        assert trial.status == "out_of_memory"
        assert "under a limit of 209,715,200 bytes" in str(trial.reason)
    finally:
        subject.close()


def test_a_model_that_does_not_fit_the_limit_is_out_of_memory_in_every_case(tiny_path: Path) -> None:
    options = ModeOptions(model=str(tiny_path), load=ONE_THREAD, memory_limit_bytes=24 << 20)  # less than NumPy needs
    subject = ModeSubject("default", options)
    try:
        assert subject.start().state == "unknown"
        trial = subject.run(PROMPT)
        assert trial.status == "out_of_memory", trial.reason
    finally:
        subject.close()


def test_a_model_that_fits_the_limit_runs(tiny_path: Path) -> None:
    subject = ModeSubject("default", ModeOptions(model=str(tiny_path), load=ONE_THREAD, memory_limit_bytes=4 << 30))
    try:
        subject.start()
        assert subject.run(PROMPT).status == "ran"
        pins = subject.pins()
        assert pins["memory_limit"]["bytes"] == 4 << 30
        assert pins["load_peak_bytes"] > 10 << 20
        assert pins["weights_sha256"] == "sha256:" + hashlib.sha256(tiny_path.read_bytes()).hexdigest()
    finally:
        subject.close()
