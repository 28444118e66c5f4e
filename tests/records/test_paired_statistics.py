"""The simulation of intervals and decisions at a small size, and the page that shows the large one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from benchmarks import paired_statistics
from benchmarks.paired_statistics import Job, Row, jobs

ROOT = Path(__file__).parents[2]
SEEN_AGAIN = [job for job in jobs(200) if job.row.keywords.get("items", 0) <= 500][::12]  # type: ignore[attr-defined]


@pytest.mark.parametrize("job", SEEN_AGAIN, ids=lambda job: f"row {job.seed - 1000}")
def test_a_row_holds_at_a_small_size(job: Job) -> None:
    row = job.run()
    assert row.holds, row


def test_rows_out_of_bounds_do_not_hold_and_conservative_ones_may_cover_more() -> None:
    fine = Row(
        table="t",
        setting="s",
        difference=0.0,
        trials=10_000,
        changed=20.0,
        covered=0.95,
        above=0.02,
        below=0.03,
        conservative=0.0,
        accepted=0.05,
        rejected=0.0,
    )

    def changed(**fields: float) -> Row:
        return Row(**(asdict(fine) | fields))

    assert fine.holds
    assert not changed(covered=0.92).holds
    assert not changed(covered=0.99).holds
    assert changed(covered=0.99, conservative=1.0).holds
    assert not changed(covered=0.92, conservative=1.0).holds
    assert not changed(accepted=0.06).holds
    assert not changed(rejected=0.06).holds


def test_the_tally_would_see_an_interval_that_is_too_narrow() -> None:
    tally = paired_statistics.Tally(0.0)
    for value in np.random.default_rng(1).normal(size=2000).tolist():
        tally.bounds(value - 1.0, value + 1.0)
    row = tally.row("t", "one standard error each way")
    assert row.covered == pytest.approx(0.683, abs=0.04)
    assert not row.holds


def test_the_page_shows_the_committed_record() -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "generate_statistics.py", "--check"], check=True)
