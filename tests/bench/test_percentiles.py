"""The bench has one definition of a percentile, and its bootstrap follows it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from swiftsure.bench.figures.estimate import Sample
from swiftsure.bench.percentiles import percentile


@pytest.mark.parametrize("count", [1, 2, 5, 10, 20, 99, 100, 101, 1000])
def test_it_is_hyndman_and_fans_second_kind(count: int) -> None:
    values = [random.Random(count).random() for _ in range(count)]
    for percent in (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100):
        assert percentile(values, percent) == pytest.approx(np.quantile(values, percent / 100, method="averaged_inverted_cdf"), abs=1e-12)


def test_a_share_that_is_met_exactly_lies_between_its_neighbours_and_any_other_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile(range(1, 101), 99) == 99.5
    assert percentile(range(1, 100), 99) == 99
    assert percentile([7.0], 95) == 7.0
    with pytest.raises(ValueError, match="at least 1 value, got 0"):
        percentile([], 50)


def test_what_was_not_reached_is_later_than_all_else() -> None:
    assert percentile([1.0, math.inf, 2.0], 50) == 2.0
    assert percentile([1.0, math.inf], 50) == math.inf
    assert percentile([math.inf, math.inf], 50) == math.inf


@pytest.mark.parametrize("count", [5, 8, 20, 40])
def test_the_bootstrap_of_equal_weights_has_the_same_percentiles(count: int) -> None:
    values = np.array([random.Random(count).random() for _ in range(count)])
    sample = Sample([str(i) for i in range(count)], [1] * count, resamples=200, seed=0)
    sample.weights = np.ones((200, count))
    for percent in (10, 50, 75, 90, 95):
        (estimate,) = sample.percentiles(values, [percent])
        assert estimate.value == percentile(values, percent)
        assert (estimate.low, estimate.high) in ((estimate.value, estimate.value), (None, None))
