"""Figures from rides, and when the claim of a fast tier comes true."""

from __future__ import annotations

import pytest

from swiftsure.bench.tiers.boarding import Ride
from swiftsure.bench.tiers.figures import Figures, claim, figures, middle


def point(seats: int, user: float, total: float) -> Figures:
    return Figures(
        seats=seats,
        boarding="full",
        requests=16,
        user_tokens_per_s=user,
        total_tokens_per_s=total,
        wait_p50_s=0.0,
        wait_p99_s=0.0,
        ttft_p50_s=0.1,
        ttft_p99_s=0.1,
        gap_p99_s=0.01,
        cost_per_million=1.0,
        wall_s=1.0,
    )


def test_the_claim_holds_where_alone_is_fast_enough_and_no_dearer_than_asked() -> None:
    curve = [point(1, 100, 90), point(4, 60, 240), point(8, 40, 320), point(16, 32, 500), point(32, 20, 640)]
    found = claim(curve, speed=2.5, price=6.0)
    assert (found.largest, found.beyond) == (16, False)
    assert found.sentence() == (
        '"2.5x at 6x the price" comes true up to a standard batch of 16 (from 8 on): alone 3.12x the tokens/s at 5.56x the cost'
    )


def test_the_largest_batch_measured_is_named_as_such() -> None:
    found = claim([point(1, 100, 100), point(8, 20, 160)])
    assert (found.largest, found.beyond) == (8, True)
    assert "up to a standard batch of 8, the largest measured: alone 5.00x" in found.sentence()


def test_a_claim_that_does_not_come_true_says_why() -> None:
    slow = claim([point(1, 100, 100), point(2, 90, 180), point(4, 50, 200)])
    assert slow.largest is None
    assert slow.sentence().endswith("does not come true at any batch measured: alone is at most 2.00x as fast, beside a batch of 4")
    dear = claim([point(1, 100, 100), point(32, 30, 960)])
    assert dear.sentence().endswith("where alone is 3.33x as fast, beside a batch of 32, it costs 9.60x")
    assert "one request alone and a larger batch" in claim([point(4, 50, 200)]).sentence()


def test_rates_waits_and_price_of_a_setting() -> None:
    fast = Ride(arrived_s=0.0, boarded_s=1.0, deliveries=[(2.0, 1), (3.0, 2), (4.0, 2)])
    slow = Ride(arrived_s=1.0, boarded_s=4.0, deliveries=[(5.0, 1), (11.0, 4)])
    found = figures([[fast, slow], [Ride(arrived_s=0.0, deliveries=[(9.0, 5)])]], seats=2, boarding="continuous", price_hour=3.6)
    assert found.total_tokens_per_s == 15 / 20
    assert found.user_tokens_per_s == pytest.approx((4 / 2 + 4 / 6) / 2), "a request whose tokens all came at once has no rate"
    assert (found.wait_p50_s, found.wait_p99_s, found.ttft_p50_s, found.ttft_p99_s) == (1.0, 3.0, 4.0, 9.0)
    assert found.gap_p99_s == 6.0
    assert found.cost_per_million == pytest.approx(0.001 / 0.75 * 1e6)


def test_repeats_are_medians_figure_by_figure() -> None:
    found = middle([point(4, 10, 90), point(4, 30, 70), point(4, 20, 80)])
    assert (found.seats, found.user_tokens_per_s, found.total_tokens_per_s) == (4, 20, 80)
