"""What the upstream tests share: their figures, printed at the end of the run, and an interpreter that has imported transformers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from warm_python import write_client

from parallel_run import say_at_the_end


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines for the test summary."""
    lines: list[str] = []
    say_at_the_end(pytestconfig, lambda: lines)
    return lines


@pytest.fixture(scope="session")
def warm_python(upstream_python: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Runs scripts as ``upstream_python`` does, with its imports of torch and transformers done once for all of them.

    Where those are missing, ``upstream_python`` itself, which says so.
    """
    folder = tmp_path_factory.mktemp("warm")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment.pop("PYTHONPATH", None)
    command = [upstream_python, "-I", str(Path(__file__).with_name("warm_python.py")), str(folder / "server")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        ready = server.stdout.readline()
        try:
            yield str(write_client(folder / "python", folder / "server")) if ready else upstream_python
        finally:
            server.kill()
