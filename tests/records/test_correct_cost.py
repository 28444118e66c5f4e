from __future__ import annotations

import math

import numpy as np
import pytest

from swiftsure.records.correct_cost import correct_cost
from swiftsure.records.statistics import student_t


def test_twice_as_fast_and_half_as_often_right_costs_the_same() -> None:
    right = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0]
    half = [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0]
    found = correct_cost(baseline_s=[2.0] * 12, candidate_s=[1.0] * 12, baseline=right, candidate=half)
    assert found is not None
    assert (found.items, found.baseline.value, found.candidate.value) == (12, pytest.approx(2.4), pytest.approx(2.4))
    assert found.ratio.value == pytest.approx(1.0)
    assert found.ratio.low is not None
    assert found.ratio.high is not None
    assert found.ratio.low < 1 < found.ratio.high


def test_the_interval_is_students_t_on_the_logarithm_linearised_over_clusters() -> None:
    rng = np.random.default_rng(1)
    times, scores, names = rng.uniform(1, 2, 40), (rng.random(40) < 0.6).astype(float), [i // 4 for i in range(40)]
    found = correct_cost(baseline_s=times, candidate_s=times, baseline=scores, candidate=scores, clusters=names)
    assert found is not None
    moves = [(times[i : i + 4].sum() / times.sum() - scores[i : i + 4].sum() / scores.sum()) for i in range(0, 40, 4)]
    reach = student_t(0.975, 9) * math.sqrt(10 / 9 * sum(move**2 for move in moves))
    assert found.baseline.high == pytest.approx(times.sum() / scores.sum() * math.exp(reach))
    assert (found.ratio.low, found.ratio.value, found.ratio.high) == (1.0, 1.0, 1.0)  # both sides move together


def test_too_little_makes_a_figure_without_an_interval_and_nothing_right_none_at_all() -> None:
    few = correct_cost(baseline_s=[1.0] * 4, candidate_s=[1.0] * 4, baseline=[1] * 4, candidate=[0] * 4)
    assert few is not None
    assert (few.baseline.value, few.baseline.low) == (1.0, None)
    assert (few.candidate.value, few.ratio.value) == (None, None)
    four_right = correct_cost(baseline_s=[1.0] * 9, candidate_s=[1.0] * 9, baseline=[1] * 9, candidate=[1, 1, 1, 1, 0, 0, 0, 0, 0])
    assert four_right is not None
    assert (four_right.candidate.low, four_right.ratio.low) == (None, None)
    assert four_right.baseline.low is not None


def test_without_time_there_is_no_cost_and_lengths_must_agree() -> None:
    assert correct_cost(baseline_s=[0.0], candidate_s=[1.0], baseline=[1], candidate=[1]) is None
    assert correct_cost(baseline_s=[], candidate_s=[], baseline=[], candidate=[]) is None
    with pytest.raises(ValueError, match="one entry for each of 2 items"):
        correct_cost(baseline_s=[1.0, 1.0], candidate_s=[1.0], baseline=[1, 1], candidate=[1, 1])
