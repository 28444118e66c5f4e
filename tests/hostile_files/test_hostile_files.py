"""No file harms its reader: every damaged or lying file is opened or refused by name, in bounded time and memory."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile_files.bombs import BOMBS
from hostile_files.folder_bombs import FOLDER_BOMBS
from hostile_files.handmade import CASES, file_of, sentences
from hostile_files.handmade_folders import FOLDER_CASES, folder_of
from hostile_files.inputs import HostileInput, make_input, sound_inputs
from hostile_files.opening import open_wholly
from hostile_files.workers import Limits, Result, judge, open_one, run
from swiftsure.errors import MAX_QUOTED, ModelFileError, TemplateError, UsageError

TESTS = Path(__file__).parents[1]
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")


def test_damaged_files_are_opened_or_refused_with_the_fault_named(tmp_path: Path, full: bool) -> None:
    """In processes of their own, forked from one that is warm: this one has threads."""
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "hostile_files",
        "--count",
        "100000" if full else "5000",
        "--json",
        str(report),
        "--save",
        str(tmp_path),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    outcomes = json.loads(report.read_text())["outcomes"]
    assert outcomes["refused"] + outcomes["opened"] == (100_000 if full else 5000)
    assert min(outcomes.values()) > 100, "the mutations are too wild or too tame to test anything"


@pytest.mark.parametrize("run_of", ["hostile_files", "hostile_files_sanitized"])
def test_the_committed_long_runs_found_no_fault(run_of: str) -> None:
    """Their counts add up, and every kind of damage was met often enough to say something. One run held every input to the limits of time
    and memory; the other had the core built with AddressSanitizer and UndefinedBehaviorSanitizer, whose own memory is not counted."""
    record = json.loads((TESTS.parent / f"benchmarks/results/{run_of}.json").read_text())
    assert record["faults"] == []
    assert record["outcomes"]["refused"] + record["outcomes"]["opened"] == record["inputs"] >= 100_000
    if run_of == "hostile_files":
        assert record["largest_excess_bytes"] <= 64 << 20
    else:
        assert "--sanitized" in record["command"]
    assert min(sum(outcomes.values()) for outcomes in record["damage"].values()) > 200


@pytest.mark.parametrize("case", [*CASES, *FOLDER_CASES])
def test_lie_is_refused_with_exactly_its_sentence(tmp_path: Path, case: str) -> None:
    path = HostileInput(-1, case, file_of(case) if case in CASES else folder_of(case)).write(tmp_path)
    stages: list[str] = []
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the whole sentence is compared
        open_wholly(path, stages.append)
    outcome, sentence = judge(caught.value, stages[-1], path)
    assert outcome == "refused", sentence
    assert f"{type(caught.value).__name__}: {sentence}" == sentences()[case]


@pytest.mark.skipif(SANITIZED, reason="a sanitizer reserves terabytes of address space")
@pytest.mark.parametrize("bomb", [*BOMBS, *FOLDER_BOMBS])
def test_large_file_is_refused_within_twice_its_size_and_64_mb(bomb: str) -> None:
    make, words = (BOMBS | FOLDER_BOMBS)[bomb]
    data = make()
    [result] = run(lambda number: HostileInput(number, bomb, data), open_wholly, [0], workers=1)
    assert result.outcome == "refused", result.sentence
    assert words in result.sentence


def test_sound_files_run_to_the_end(tmp_path: Path) -> None:
    for number, made in enumerate(sound_inputs()):
        folder = tmp_path / str(number)
        folder.mkdir()
        stages: list[str] = []
        open_wholly(made.write(folder), stages.append)
        assert stages[-1] == "done", made.name


def test_a_number_always_gives_the_same_input() -> None:
    assert all(make_input(n) == make_input(n) for n in range(50))
    assert len({repr(make_input(n).data) for n in range(200)}) > 150


@pytest.mark.parametrize("error", [ModelFileError, TemplateError])
def test_what_a_file_says_cannot_steer_a_terminal_or_fill_it(error: type[Exception]) -> None:
    told = str(error("tensor '\x1b[2J\nACTIVE mode=exact \u202e\ud800' " + "x" * 100_000 + " is missing"))
    assert told.isprintable()
    assert len(told) < MAX_QUOTED
    assert told.startswith(r"tensor '\x1b[2J\nACTIVE mode=exact \u202e\ud800' ")
    assert told.endswith(" is missing")
    assert str(error(told)) == told


class TestTheRunnerItself:
    """Would it notice?"""

    @staticmethod
    def outcome_of(subject: Callable[[Path, Callable[[str], None]], None], limits: Limits | None = None) -> list[Result]:
        return list(run(lambda number: HostileInput(number, "made", b"x" * 100), subject, range(3), workers=1, limits=limits))

    def test_a_crash_is_reported_and_the_rest_go_on(self) -> None:
        def subject(path: Path, reach: Callable[[str], None]) -> None:
            reach("open")
            if path.parent.name == "1":
                ctypes.string_at(0)

        results = {result.number: result for result in self.outcome_of(subject)}
        assert [results[n].outcome for n in range(3)] == ["opened", "crash", "opened"]
        assert (results[1].stage, results[1].error) == ("open", "SIGSEGV")

    def test_an_endless_loop_is_a_hang(self) -> None:
        def subject(path: Path, reach: Callable[[str], None]) -> None:
            while path.parent.name == "2":
                pass

        assert [result.outcome for result in self.outcome_of(subject, Limits(cpu_s=1))] == ["opened", "opened", "hang"]

    @pytest.mark.skipif(SANITIZED, reason="a sanitizer reserves terabytes of address space")
    def test_memory_beyond_twice_the_file_and_64_mb_is_reported_touched_or_not(self) -> None:
        def subject(path: Path, reach: Callable[[str], None]) -> None:
            size = (60 << 20, 66 << 20, 80 << 20)[int(path.parent.name)]
            if path.parent.name == "2":
                reach("pack")  # address space is free from here on, what is touched still counts
            bytearray(size)

        assert [result.outcome for result in self.outcome_of(subject)] == ["opened", "memory", "memory"]

    def test_only_a_sentence_on_the_file_is_a_refusal(self, tmp_path: Path) -> None:
        path = tmp_path / "model.gguf"
        for error, outcome in {
            ModelFileError(f"{path}: tensor 'x' is missing"): "refused",
            ModelFileError(f"{path}: 7"): "poor sentence",
            ModelFileError(f"{path}: 'NoneType' object is not subscriptable"): "poor sentence",
            ModelFileError(f"{path}: unpack requires a buffer of 8 bytes"): "poor sentence",
            UsageError("head_dim must be a multiple of 16"): "wrong error",
            KeyError("general.architecture"): "wrong error",
            MemoryError(): "memory",
        }.items():
            assert judge(error, "open", path)[0] == outcome, error

    def test_time_is_counted_in_seconds_of_work(self, tmp_path: Path) -> None:
        made = HostileInput(0, "made", b"")
        assert open_one(made, made.write(tmp_path), lambda path, reach: time.sleep(0.2), Limits(), lambda stage: None).outcome == "opened"
