"""What tests need that pytest-xdist spreads over several workers: lines for the end of the run, and the machine for themselves.

Without pytest-xdist, or with one process, all of it works the same and nothing waits.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

_LINES = pytest.StashKey[list[Callable[[], Iterable[str]]]]()


def say_at_the_end(config: pytest.Config, lines: Callable[[], Iterable[str]]) -> None:
    """``lines`` is called when all tests of this process are through; what it returns is printed in the summary of the whole run."""
    config.stash.setdefault(_LINES, []).append(lines)


def _lines(config: pytest.Config) -> list[str]:
    return [line for lines in config.stash.get(_LINES, []) for line in lines()]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker prints nothing: it hands its lines over."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["lines"] = _lines(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The process that prints takes a worker's lines; one that broke down has none."""
    lines = getattr(node, "workeroutput", {}).get("lines", [])
    say_at_the_end(node.config, lambda: lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in _lines(config):
        terminalreporter.write_line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with tests on whole models take longest: for workers they come first, so that all end together."""
    if not hasattr(config, "workerinput"):
        return
    slow = {item.path for item in items if any(item.get_closest_marker(name) for name in ("model", "upstream"))}
    items.sort(key=lambda item: item.path not in slow)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, how)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tests marked ``alone`` hold the machine exclusively, all others share it. Whoever waits keeps the door shut, so that none starves."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    folder = Path(tempfile.gettempdir()) / f"swiftsure-tests-{item.config.workerinput['testrunuid']}"
    folder.mkdir(exist_ok=True)
    alone = item.get_closest_marker("alone") is not None
    with ExitStack() as held:
        with _locked(folder / "door", fcntl.LOCK_EX):
            held.enter_context(_locked(folder / "machine", fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        return (yield)
