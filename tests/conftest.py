"""What all tests share: the size they run at, and the pinned model."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from swiftsure.kernels import _core

pytest_plugins = ["parallel_run"]

# A run started in the background inherits an ignored SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", default=False, help="run the large sizes of tests that have them")
    parser.addoption("--upstream-python", default=sys.executable, help="interpreter that has torch and transformers")
    parser.addoption("--llama-python", default=sys.executable, help="interpreter that has llama_cpp")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether tests should run at their large size."""
    return bool(request.config.getoption("--full"))


@pytest.fixture
def promised(request: pytest.FixtureRequest) -> str:
    """The verdict that the test's own mark says it reaches. docs/verdicts.md is made of these marks."""
    mark = request.node.get_closest_marker("verdict")
    assert mark is not None, "the test asks for the verdict of its mark and has none"
    return str(mark.args[0])


@pytest.fixture
def without_amx(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no tiles, whatever this one has."""
    others = [isa for isa in _core.supported_isas() if isa != "amx"]
    monkeypatch.setattr(_core, "supported_isas", lambda: others)


@pytest.fixture(scope="session")
def upstream_python(request: pytest.FixtureRequest) -> str:
    """The interpreter that runs transformers; tests skip with the reason when it cannot."""
    return str(request.config.getoption("--upstream-python"))


@pytest.fixture(scope="session")
def llama_python(request: pytest.FixtureRequest) -> str:
    """The interpreter that runs llama.cpp; tests skip with the reason when it cannot."""
    return str(request.config.getoption("--llama-python"))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The pinned model file, from the cache or fetched into it. A machine that cannot fetch it fails these tests: the pin is promised."""
    from swiftsure.models.catalogue import DEFAULT_MODEL, resolve

    return resolve(DEFAULT_MODEL).path
