from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.verify.compare.ranking import compare_rankings


def test_the_same_order_is_kept_whatever_the_values() -> None:
    a = np.array([3.0, 1.0, 2.0, 9.0])
    found = compare_rankings(a, np.exp(a))
    assert (found.spearman, found.kendall_top, found.top_kept, found.neighbours_kept) == (1.0, 1.0, 1.0, 1.0)


def test_the_reverse_order_is_the_opposite() -> None:
    a = np.arange(10.0)
    found = compare_rankings(a, -a)
    assert (found.spearman, found.kendall_top, found.neighbours_kept) == pytest.approx((-1.0, -1.0, 0.0))


def test_figures_are_those_of_the_textbook() -> None:
    # Spearman 1 - 6 * sum d^2 / (n (n^2 - 1)) with d = 0, 1, 1, 0, 0; one of ten pairs turned round.
    found = compare_rankings(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([1.0, 3.0, 2.0, 4.0, 5.0]))
    assert found.spearman == pytest.approx(1 - 6 * 2 / (5 * 24))
    assert found.kendall_top == pytest.approx((9 - 1) / 10)
    assert found.neighbours_kept == 0.75


def test_ties_share_their_rank_and_count_in_tau_b() -> None:
    # x = 1, 2, 2, 3 and y = 1, 2, 3, 4: ranks 1, 2.5, 2.5, 4; five pairs agree, one is tied in x.
    found = compare_rankings(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.spearman == pytest.approx(4.5 / np.sqrt(4.5 * 5.0))
    assert found.kendall_top == pytest.approx(5 / np.sqrt(5 * 6))


def test_only_the_top_counts_for_the_top() -> None:
    a = np.arange(100.0)
    b = a.copy()
    b[:50] = b[:50][::-1]
    found = compare_rankings(a, b, top=10)
    assert (found.top, found.kendall_top, found.top_kept) == (10, 1.0, 1.0)
    assert found.spearman < 1
    b[99] = -1.0
    assert compare_rankings(a, b, top=10).top_kept == 0.9


def test_the_worst_row_stands_beside_the_mean() -> None:
    a = np.stack([np.arange(5.0), np.arange(5.0)])
    found = compare_rankings(a, np.stack([a[0], -a[1]]))
    assert (found.rows, found.spearman, found.spearman_worst) == (2, pytest.approx(0.0), pytest.approx(-1.0))


def test_nothing_to_order_is_kept_and_a_lost_order_is_not() -> None:
    assert compare_rankings(np.ones(3), np.ones(3)).spearman == 1.0
    assert compare_rankings(np.arange(3.0), np.ones(3)).spearman == 0.0


def test_a_nan_has_no_rank() -> None:
    assert np.isnan(compare_rankings(np.array([1.0, np.nan]), np.array([1.0, 2.0])).spearman_worst)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        compare_rankings(np.zeros(2), np.zeros(3))


@settings(deadline=None)
@given(st.permutations(range(8)))
def test_figures_stay_in_their_ranges(order: list[int]) -> None:
    found = compare_rankings(np.arange(8.0), np.array(order, np.float64))
    assert -1 - 1e-12 <= found.spearman <= 1 + 1e-12
    assert -1 <= found.kendall_top <= 1
    assert 0 <= found.neighbours_kept <= 1
