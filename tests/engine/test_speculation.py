"""Draft lengths follow measured acceptance and measured cost."""

from __future__ import annotations

import numpy as np
import pytest

from swiftsure.engine.speculation import Acceptance, DraftPolicy, Offer, StepCost

FREE = {1: 1.0, 16: 1.0}
LINEAR = {1: 1.0, 2: 2.0, 16: 16.0}
USUAL = {1: 1.0, 2: 1.1, 4: 1.5, 8: 2.0, 16: 3.0}
STATED = 0.6


def taught(rate: float, *, drafts: int = 120, drafted: int = 8) -> Acceptance:
    """Of a first request, so that all requests have seen the same."""
    of_all = Acceptance()
    acceptance = Acceptance(of_all)
    for _ in range(drafts):
        for one in (acceptance, of_all):
            one.record([STATED] * drafted, round(rate * drafted))
    return acceptance


def offer(acceptance: Acceptance, length: int) -> Offer:
    return Offer([acceptance.chances([STATED])[0]] * length)


def choose(cost: dict[int, float], *offers: Offer, base_rows: int | None = None, max_rows: int = 32) -> list[int]:
    return DraftPolicy(StepCost(cost)).choose(offers, base_rows=base_rows or len(offers), max_rows=max_rows)


def test_free_rows_are_all_used_and_rows_at_full_price_are_not():
    assert choose(FREE, offer(taught(1.0), 15)) == [15]
    assert choose(LINEAR, offer(taught(1.0), 15)) == [0], "a token for the price of a token gains nothing"


def test_better_acceptance_means_longer_drafts_down_to_none():
    lengths = [choose(USUAL, offer(taught(rate), 15))[0] for rate in (0.0, 0.25, 0.5, 1.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] == 0
    assert lengths[-1] >= 12


def test_chosen_length_has_the_best_expected_tokens_per_time():
    """Against the plain formula over all lengths."""
    policy = DraftPolicy(StepCost(USUAL))
    for rate in (0.1, 0.3, 0.5, 0.8):
        chances = [taught(rate, drafts=10).chances([stated])[0] for stated in (0.5, *(0.6,) * 5, *(0.8,) * 6)]

        def gain(length: int, chances: list[float] = chances) -> float:
            reach, tokens = 1.0, 1.0
            for j in range(length):
                reach *= chances[j]
                tokens += reach
            return tokens / policy.cost.relative(1 + length)

        (chosen,) = policy.choose([Offer(chances)], base_rows=1, max_rows=32)
        assert gain(chosen) == pytest.approx(max(gain(length) for length in range(13)))


def test_rows_go_to_the_likeliest_drafts_of_a_batch_within_the_limit():
    good, bad = offer(taught(1.0), 15), offer(taught(0.0), 15)
    assert choose(USUAL, good, bad, max_rows=10) == [8, 0]


def test_crowded_pass_leaves_drafts_out():
    """Speculation slower than none at high load is the trap: with many rows each further one costs its full price."""
    dear = {1: 1.0, 8: 1.2, 16: 9.2, 32: 25.2}
    offers = [offer(taught(0.5), 8)] * 8
    assert choose(dear, offers[0]) != [0]
    assert choose(dear, *offers) == [0] * 8


def test_chances_fade_so_that_a_change_of_text_is_noticed():
    policy = DraftPolicy()
    acceptance = Acceptance(policy.acceptance("lookup"))
    for right in (1,) * 200 + (0,) * 60:
        policy.record("lookup", acceptance, [STATED], right)
    assert acceptance.chances([STATED])[0] < 0.35


def test_declined_drafts_are_tried_again_after_a_while():
    policy = DraftPolicy()
    acceptance = Acceptance(policy.acceptance("lookup"))
    for _ in range(120):
        policy.record("lookup", acceptance, [STATED], 0)
    low = acceptance.chances([STATED])[0]
    for _ in range(500):
        policy.decline("lookup", acceptance, STATED)
    assert acceptance.chances([STATED])[0] > 2 * low


def test_source_that_is_not_asked_comes_back_to_its_prior():
    policy, untaught = DraftPolicy(), Acceptance()
    acceptance = Acceptance(policy.acceptance("lookup"))
    for _ in range(120):
        policy.record("lookup", acceptance, [STATED], 0)
    assert acceptance.chance_at(0) < 0.1
    assert acceptance.chances([STATED])[0] < 0.1
    for _ in range(1500):
        policy.pass_over("lookup", [acceptance], by_all=True)
    assert acceptance.chance_at(0) == pytest.approx(untaught.chance_at(0), abs=0.01)
    assert acceptance.chances([STATED])[0] == pytest.approx(STATED, abs=0.01)


def test_new_request_starts_from_what_all_requests_taught():
    policy = DraftPolicy()
    for _ in range(50):
        policy.record("lookup", Acceptance(policy.acceptance("lookup")), [STATED] * 8, 8)
    assert Acceptance(policy.acceptance("lookup")).chances([STATED])[0] > 0.9
    assert policy.acceptance("other").chances([STATED])[0] == STATED, "a source that was not heard yet is believed"
    policy.reset()
    assert policy.acceptance("lookup").chances([STATED])[0] == STATED


def test_counts_stay_finite_over_a_long_run():
    acceptance = taught(1.0, drafts=5000)
    assert 0.9 < acceptance.chances([STATED])[0] <= 1.0


def test_cost_is_interpolated_between_measurements_and_never_falls():
    cost = StepCost({1: 0.005, 2: 0.004, 4: 0.008, 8: 0.016})  # of two values that fall, the larger was disturbed
    assert [cost.relative(n) for n in (1, 2, 3, 4, 6, 8)] == pytest.approx([1.0, 1.0, 1.5, 2.0, 3.0, 4.0])
    assert cost.relative(16) > cost.relative(8)
    assert cost.one_row_s == 0.004


def test_cost_follows_what_passes_take():
    cost = StepCost({1: 0.004, 8: 0.008})
    for _ in range(300):
        cost.observe(1, 0.008)
        cost.observe(8, 0.064)
    assert cost.one_row_s == pytest.approx(0.008, rel=0.1)
    assert cost.relative(8) == pytest.approx(8.0, rel=0.15)


def test_one_slow_pass_moves_little():
    cost = StepCost({1: 0.004, 8: 0.008})
    cost.observe(1, 4.0)
    cost.observe(8, 4.0)
    assert cost.one_row_s < 0.005
    assert cost.relative(8) < 2.3


def test_disturbed_measurement_of_one_row_is_corrected_by_what_steps_take():
    cost = StepCost({1: 0.004, 2: 0.0041, 4: 0.0042, 8: 0.008})  # one row was disturbed: drafts look free
    for _ in range(30):
        cost.observe(1, 0.002)
        cost.observe(2, 0.0025)
    assert cost.one_row_s == pytest.approx(0.002, rel=0.05)
    assert cost.relative(2) == pytest.approx(1.25, rel=0.1)
    assert cost.relative(4) > 1.1, "sizes that were not run follow those that were"


def test_sizes_that_are_not_run_keep_their_place_while_the_machine_changes():
    rng = np.random.default_rng(0)
    cost = StepCost({1: 0.002, 2: 0.0025, 4: 0.004, 16: 0.010})
    for speed in (1.0, 3.0, 0.5):  # other processes come and go
        before = cost.relative(4)
        for _ in range(500):
            cost.observe(1, 0.002 * speed * (1.0 + rng.exponential(0.1)))
        assert cost.relative(4) == before
        for _ in range(200):
            cost.observe(2, 0.0025 * speed * (1.0 + rng.exponential(0.1)))
            cost.observe(1, 0.002 * speed * (1.0 + rng.exponential(0.1)))
        assert cost.relative(2) == pytest.approx(1.25, rel=0.15)
        assert cost.relative(4) == pytest.approx(2.0, rel=0.2), "noise does not carry it away"


def test_long_contexts_have_costs_of_their_own():
    cost = StepCost({1: 0.002, 4: 0.004, 16: 0.010})
    cost.enter(3000)
    assert cost.relative(4) == pytest.approx(2.0), "nothing was seen there yet"
    for _ in range(100):
        cost.observe(4, 0.009)
        cost.observe(1, 0.003)
    assert cost.relative(4) == pytest.approx(3.0, rel=0.1)
    cost.enter(100)
    assert cost.relative(4) == pytest.approx(2.0)
