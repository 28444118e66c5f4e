from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftsure.records.statistics import Noise, geometric_mean, median, pair_noise, paired_ratio, student_t

positive = st.floats(min_value=1e-6, max_value=1e6)


@given(st.lists(positive, min_size=1))
def test_median_is_numpys(values: list[float]) -> None:
    assert median(values) == pytest.approx(float(np.median(values)))


def test_median_and_geometric_mean_refuse_nothing() -> None:
    with pytest.raises(ValueError, match="at least 1 value, got 0"):
        median([])
    with pytest.raises(ValueError, match="at least 1 value, got 0"):
        geometric_mean([])


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_geometric_mean_refuses_what_has_no_logarithm(value: float) -> None:
    with pytest.raises(ValueError, match="finite values above zero"):
        geometric_mean([1.0, value])


def test_geometric_mean_of_two_and_eight_is_four() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


# Quantiles as printed in tables of Student's t distribution.
@pytest.mark.parametrize(("freedom", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (120, 1.9799)])
def test_student_t_agrees_with_printed_tables(freedom: int, t: float) -> None:
    assert student_t(0.975, freedom) == pytest.approx(t, abs=5e-5)


def test_ratio_of_equal_pairs_is_one_with_no_width() -> None:
    ratio = paired_ratio([[(2.0, 2.0)] * 4, [(7.0, 7.0)] * 4])
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high, ratio.pairs, ratio.groups) == (1.0, 1.0, 1.0, 8, 2)


def test_interval_is_the_one_sample_t_interval_for_one_group() -> None:
    ratios = [1.2, 1.3, 1.25, 1.4, 1.1, 1.35]
    ratio = paired_ratio([[(r, 1.0) for r in ratios]])
    logs = np.log(ratios)
    reach = 2.5706 * logs.std(ddof=1) / math.sqrt(6)
    assert ratio is not None
    assert ratio.value == pytest.approx(math.exp(logs.mean()))
    assert ratio.low == pytest.approx(math.exp(logs.mean() - reach), rel=1e-4)
    assert ratio.high == pytest.approx(math.exp(logs.mean() + reach), rel=1e-4)
    assert ratio.spread == "pairs"


def test_too_few_pairs_make_no_interval() -> None:
    ratio = paired_ratio([[(2.0, 1.0), (2.1, 1.0)], [(2.0, 1.0), (1.9, 1.0)]])
    assert ratio is not None
    assert not ratio.conclusive
    assert (ratio.low, ratio.high) == (None, None)


def test_unrepeated_pairs_take_their_interval_from_the_groups() -> None:
    ratio = paired_ratio([[(value, 1.0)] for value in (1.2, 1.3, 1.1, 1.4, 1.25)])
    assert ratio is not None
    assert ratio.spread == "groups"
    assert ratio.low is not None
    assert ratio.low < ratio.value


def test_noise_is_the_pooled_variance_within_groups() -> None:
    noise = pair_noise([[(math.e, 1.0), (1.0, 1.0)], [(1.0, 1.0)], [(2.0, 2.0), (3.0, 3.0), (4.0, 4.0)]])
    assert noise.freedom == 3
    assert noise.variance == pytest.approx(0.5 / 3)


def test_few_pairs_take_their_interval_from_the_noise_of_the_run() -> None:
    pairs = [[(2.0, 1.0), (2.2, 1.0)], [(2.0, 1.0), (1.9, 1.0)]]
    ratio = paired_ratio(pairs, Noise(variance=0.01, freedom=12))
    assert ratio is not None
    assert ratio.spread == "noise"
    assert ratio.low == pytest.approx(ratio.value * math.exp(-2.1788 * 0.1 * math.sqrt(0.5 + 0.5) / 2), rel=1e-4)


def test_enough_pairs_keep_to_their_own_noise() -> None:
    pairs = [[(2.0, 1.0), (2.2, 1.0), (2.1, 1.0)], [(2.0, 1.0), (1.9, 1.0), (2.0, 1.0)]]
    assert paired_ratio(pairs, Noise(variance=9.0, freedom=12)) == paired_ratio(pairs)


def test_noise_from_too_few_repeats_does_not_help() -> None:
    ratio = paired_ratio([[(2.0, 1.0), (2.2, 1.0)], [(2.0, 1.0)]], Noise(variance=0.01, freedom=2))
    assert ratio is not None
    assert not ratio.conclusive


def test_no_pair_is_no_ratio() -> None:
    assert paired_ratio([[], []]) is None


def test_a_group_weighs_the_same_however_often_it_was_repeated() -> None:
    ratio = paired_ratio([[(4.0, 1.0)] * 9, [(1.0, 1.0)]])
    assert ratio is not None
    assert ratio.value == pytest.approx(2.0)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        noise = rng.normal(0.0, 0.1, (4, 3))
        ratio = paired_ratio([[(math.exp(x), 1.0) for x in row] for row in noise])
        assert ratio is not None
        assert ratio.low is not None
        assert ratio.high is not None
        covered += ratio.low <= 1.0 <= ratio.high
    assert 0.92 <= covered / 400 <= 0.98


@given(st.lists(st.lists(st.tuples(positive, positive), min_size=3, max_size=5), min_size=2, max_size=4), st.floats(0.1, 10))
def test_scaling_one_side_scales_the_ratio_and_its_bounds(groups: list[list[tuple[float, float]]], factor: float) -> None:
    plain = paired_ratio(groups)
    scaled = paired_ratio([[(a * factor, b) for a, b in group] for group in groups])
    assert plain is not None
    assert scaled is not None
    assert scaled.value == pytest.approx(plain.value * factor, rel=1e-6)
    assert scaled.low == pytest.approx((plain.low or math.nan) * factor, rel=1e-6)
