"""The program of another field in ``examples/foreign``, verified by the commands of its README."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "examples" / "foreign"
SWIFTSURE = (sys.executable, "-c", "import sys; from swiftsure.cli import main; sys.exit(main())")
CASE_SECONDS = 30  # of both sides, on a machine that is busy with other things


def make_cases(folder: Path, *sizes: int) -> Path:
    subprocess.run([sys.executable, FOLDER / "make_cases.py", folder, *map(str, sizes)], check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cases(tmp_path_factory.mktemp("foreign") / "few", 40, 70, 130, 210)


def verify(mode: str, contract: str, cases: Path, report: Path) -> subprocess.CompletedProcess[str]:
    python = shlex.quote(sys.executable)
    command = [
        *SWIFTSURE,
        "verify",
        *("--baseline", f"cmd:{python} base.py {{input}} {{output}}"),
        *("--candidate", f"cmd:{python} fast.py --mode {mode} {{input}} {{output}}"),
        *("--inputs", str(cases), "--contract", contract, "--report", str(report)),
    ]
    allowed = CASE_SECONDS * (1 + len(list(cases.glob("*.npz"))))
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=FOLDER, env=environment, capture_output=True, text=True, timeout=allowed)


def test_mode_exact_has_the_bits_of_the_baseline(few: Path, tmp_path: Path) -> None:
    done = verify("exact", "exact.toml", few, tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["candidate"]["activation"]["evidence"].startswith("ACTIVE mode=exact")
    assert set(record["phases_s"]) == {"load", "forward", "output", "other"}


def test_mode_fast_held_to_the_exact_contract_fails_at_a_place_that_is_named(few: Path, tmp_path: Path) -> None:
    done = verify("fast", "exact.toml", few, tmp_path / "run")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("FAIL")
    assert "contacts [0]: " in done.stdout


def test_few_cases_keep_the_tolerances_and_decide_nothing(few: Path, tmp_path: Path) -> None:
    done = verify("fast", "fast.toml", few, tmp_path / "run")
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("INCONCLUSIVE")
    assert "items would decide" in done.stdout


def test_enough_cases_pass(full: bool, tmp_path: Path) -> None:
    if not full:
        pytest.skip("64 cases: --full")
    done = verify("fast", "fast.toml", make_cases(tmp_path / "cases"), tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PASS")


def test_a_structure_beyond_float32_is_not_active(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    far = np.zeros((5, 3))
    far[0] = 1e5
    np.savez(tmp_path / "cases" / "far.npz", measured=far, predicted=far)
    done = verify("fast", "fast.toml", tmp_path / "cases", tmp_path / "run")
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("NOT_ACTIVE")
    assert "extent_80000_beyond_2000_angstroms" in done.stdout
