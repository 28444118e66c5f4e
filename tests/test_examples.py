"""The examples run as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tiny_models import TinyModel, TinySpec

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(seed=5)).write_gguf(tmp_path_factory.mktemp("examples") / "tiny.gguf")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_finds_what_it_shows(example: Path, tiny: Path) -> None:
    done = subprocess.run([sys.executable, str(example), str(tiny)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == ["batch", "pooled_table", "same_bits", "stream"]
