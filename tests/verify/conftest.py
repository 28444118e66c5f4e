from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swiftsure.engine.load_options import LoadOptions
from swiftsure.verify import ProveOptions, ProveResult, prove
from tiny_models import TinyModel, TinySpec

HERE = Path(__file__).parent

WORKLOAD = """\
{"name": "greedy", "kind": "code", "prompt": "abc abc abc abc abc abc abc abc abc abc abc", "max_tokens": 24}
{"name": "sampled", "kind": "chat", "prompt": "the cat sat on the mat", "max_tokens": 16, "temperature": 0.7, "seed": 5}
{"name": "penalized", "kind": "chat", "prompt": "one two three", "max_tokens": 12, "repetition_penalty": 1.2, "frequency_penalty": 0.3}
"""


ONE_THREAD = LoadOptions(threads=1)
DECIDING = ("default", "exact")  # a random model is too ragged to keep the tolerances of fast


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(seed=3)).write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture
def workload_path(tmp_path: Path) -> Path:
    path = tmp_path / "workload.jsonl"
    path.write_text(WORKLOAD)
    return path


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def run_prove(tiny_path: Path, workload_path: Path, output: io.StringIO) -> Callable[..., ProveResult]:
    """Proves the tiny model with an honest worker, or with one that misbehaves in the way named by ``how``."""

    def run(how: str | None = None, mode: str = "exact", **options: Any) -> ProveResult:
        command: dict[str, Any] = {} if how is None else {"worker": (sys.executable, str(HERE / "dishonest_worker.py"), how, mode)}
        values: dict[str, Any] = {
            "model": str(tiny_path),
            "prompts": workload_path,
            "rounds": 2,
            "modes": DECIDING,
            "load": ONE_THREAD,
        } | options
        return prove(ProveOptions(**values), console=Console(file=output, width=80), **command)

    return run


@pytest.fixture(scope="session")
def honest_result(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> ProveResult:
    """One whole run on the tiny model: two threads, three rounds."""
    prompts = tmp_path_factory.mktemp("honest") / "workload.jsonl"
    prompts.write_text(WORKLOAD)
    return prove(
        ProveOptions(model=str(tiny_path), prompts=prompts, rounds=3, load=LoadOptions(threads=2), modes=DECIDING),
        console=Console(file=io.StringIO()),
    )
