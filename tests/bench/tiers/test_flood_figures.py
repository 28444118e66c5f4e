"""What a flood does to the gaps of a priority request: apart from what its own drafts do."""

from __future__ import annotations

import pytest

from swiftsure.bench.tiers.flood import FloodResult, Tide, stretch_p99

TIDE = Tide(
    gap_p50_s=0.01,
    gap_p99_s=0.02,
    gaps=100,
    ttft_p50_s=0.1,
    ttft_p99_s=0.1,
    priority_tokens_per_s=100.0,
    standard_tokens_per_s=50.0,
)
ALONE = [(1, 0.010)] * 50 + [(5, 0.030)] * 50


def result(*moved: float, stretched: float = 0.0) -> FloodResult:
    return FloodResult(
        slack=0.3,
        alone=TIDE,
        flood=TIDE,
        standard_alone_tokens_per_s=100.0,
        rounds_moved=moved,
        rounds_stretched=(stretched,) * len(moved),
    )


def test_longer_drafts_move_gaps_and_do_not_stretch_them() -> None:
    longer = [(1, 0.010)] * 10 + [(5, 0.030)] * 90
    assert stretch_p99(ALONE, ALONE) == pytest.approx(1.0)
    assert stretch_p99(longer, ALONE) == pytest.approx(1.0)


def test_company_stretches_gaps_of_every_length() -> None:
    assert stretch_p99([(rows, 1.25 * seconds) for rows, seconds in ALONE], ALONE) == pytest.approx(1.25)
    assert stretch_p99([*ALONE, *[(1, 0.020)] * 5], ALONE) == pytest.approx(2.0), "a hundredth that is twice as long is seen"


def test_rows_that_were_not_seen_alone_take_their_share_of_what_was() -> None:
    assert stretch_p99([(3, 0.020)], ALONE) == pytest.approx(1.0)
    assert stretch_p99([(9, 0.060)], ALONE) == pytest.approx(2.0), "beyond the most rows seen: as the most"


def test_the_promise_is_judged_by_the_gaps_of_every_round_whatever_their_cause() -> None:
    assert result(0.1, 0.4, 0.39, stretched=0.9).verdict == "kept"
    assert result(0.1, 0.41, 0.2).verdict == "unsure"
    assert result(0.5, 0.41, stretched=0.0).verdict == "broken"
    found = result(0.1, 0.2, 0.3, stretched=0.7).to_dict()
    assert (found["moved"], found["stretched"], found["allowed"]) == (0.2, 0.7, 0.4)
