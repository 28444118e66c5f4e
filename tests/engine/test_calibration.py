"""Costs of rows that are kept between starts: used when sound, fresh and of the same key; never in the way."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

import swiftsure
from swiftsure.engine.calibration import LEAST_S, MOST_AGE_S, CalibrationKey, keep_costs, known_costs
from swiftsure.engine.runner import Runner
from tiny_models import TinyModel, TinySpec

KEY = CalibrationKey(
    weights_sha256="ab" * 32, variant="file", version="1", numerics="cpu1", levers="speculation", isa="portable", threads=2, processor="P"
)
COSTS = {1: 0.004, 2: 0.005, 4: 0.007}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def keep(**choices: float | None) -> None:
    keep_costs(KEY, COSTS, **{"took_s": 0.1, "others_busy_cpus": 0.1, **choices})  # type: ignore[arg-type]  # of several types


def test_what_was_kept_is_known_again() -> None:
    assert known_costs(KEY) is None
    keep(others_busy_cpus=None)
    assert known_costs(KEY) == COSTS


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(CalibrationKey)])
def test_another_key_is_not_this_one(field: str) -> None:
    keep()
    other = dataclasses.replace(KEY, **{field: 9 if field == "threads" else "other"})  # type: ignore[arg-type]  # of several types
    assert known_costs(other) is None
    other.path.write_bytes(KEY.path.read_bytes())
    assert known_costs(other) is None


@pytest.mark.parametrize("choices", [{"took_s": LEAST_S / 2}, {"others_busy_cpus": 0.8}])
def test_a_quick_or_a_disturbed_measurement_is_not_kept(home: Path, choices: dict[str, float]) -> None:
    keep(**choices)
    assert not home.exists()


@pytest.mark.parametrize("age", [MOST_AGE_S + 5, -60])
def test_an_old_record_and_one_of_the_future_are_measured_anew(age: float) -> None:
    keep()
    record = json.loads(KEY.path.read_text())
    KEY.path.write_text(json.dumps(record | {"time": time.time() - age}))
    assert known_costs(KEY) is None


@pytest.mark.parametrize("costs", [{}, {"1": 0}, {"1": float("nan")}, {"1": -1.0}, {"one": 1.0}, {"1": "x"}, {"1": None}, [1.0], 7])
def test_costs_that_cannot_be_are_measured_anew(costs: object) -> None:
    keep()
    record = json.loads(KEY.path.read_text())
    KEY.path.write_text(json.dumps(record | {"seconds_by_rows": costs}))
    assert known_costs(KEY) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"{", b"[" * 100_000])
def test_a_damaged_record_is_as_good_as_none(content: bytes) -> None:
    keep()
    KEY.path.write_bytes(content)
    assert known_costs(KEY) is None


def test_a_cache_that_cannot_be_written_is_no_fault(home: Path) -> None:
    home.write_text("a file")
    keep()
    assert known_costs(KEY) is None


def test_a_warm_start_measures_nothing_and_without_the_cache_each_does(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = TinyModel(TinySpec(seed=3)).write_gguf(tmp_path / "tiny.gguf")
    measured = []
    measure = Runner.measure
    monkeypatch.setattr(Runner, "measure", lambda self, rows, **more: measured.append(rows) or measure(self, rows, **more))
    monkeypatch.setattr("swiftsure.engine.calibration.LEAST_S", 0.0)

    def start(**choices: object) -> float | None:
        measured.clear()
        with swiftsure.load(tiny, mode="exact", threads=1, **choices) as llm:  # type: ignore[arg-type]  # of several types
            return llm._engine.drafting.policy.cost.one_row_s

    start(cache=False)
    assert measured
    assert not (home / "calibration").exists()
    first = start()
    assert measured
    assert start() == first
    assert not measured
    (record,) = (home / "calibration").iterdir()
    os.truncate(record, 10)
    start()
    assert measured
    with swiftsure.load(tiny, mode="default") as llm:
        assert "calibrate_s" not in llm.load_phases
