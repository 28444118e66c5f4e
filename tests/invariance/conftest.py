"""Counts what the invariance tests compared and says so at the end of the run."""

from __future__ import annotations

import pytest
from worlds import Tally

_TALLIES = pytest.StashKey[dict[str, Tally]]()


@pytest.fixture(scope="session")
def tallies(pytestconfig: pytest.Config) -> dict[str, Tally]:
    """Tallies by name, printed in the test summary."""
    return pytestconfig.stash.setdefault(_TALLIES, {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, tally in config.stash.get(_TALLIES, {}).items():
        terminalreporter.write_line(
            f"schedule invariance, {name}: {len(tally.schedules)} schedules, {tally.passes} passes, {tally.rows} rows of logits, "
            f"{tally.bytes} bytes compared with a token-by-token portable pass"
        )
