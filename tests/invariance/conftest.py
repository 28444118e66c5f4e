"""Counts what the invariance tests compared and says so at the end of the run."""

from __future__ import annotations

import pytest
from worlds import Tally

from parallel_run import say_at_the_end


@pytest.fixture(scope="session")
def tallies(pytestconfig: pytest.Config) -> dict[str, Tally]:
    """Tallies by name, printed in the test summary. What counts into one name is in one file, and so in one process."""
    tallies: dict[str, Tally] = {}
    say_at_the_end(pytestconfig, lambda: [_line(name, tally) for name, tally in tallies.items()])
    return tallies


def _line(name: str, tally: Tally) -> str:
    return (
        f"schedule invariance, {name}: {len(tally.schedules)} schedules, {tally.passes} passes, {tally.rows} rows of logits, "
        f"{tally.bytes} bytes compared with a token-by-token portable pass"
    )
