"""The command line on tiny models."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Result, Run

from swiftsure.cli import main
from tiny_models import TinyModel, TinySpec


@pytest.fixture
def swiftsure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls ``main`` with the given arguments."""
    monkeypatch.delenv("SWIFTSURE_MODE", raising=False)
    monkeypatch.delenv("SWIFTSURE_ISA", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str | Path) -> Result:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a chat template."""
    return TinyModel(TinySpec(seed=11)).write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with room for minutes of generation, for tests that interrupt it."""
    return TinyModel(TinySpec(seed=11, context=100_000)).write_gguf(tmp_path_factory.mktemp("endless") / "endless.gguf")
