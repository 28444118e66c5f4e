from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.verify.compare import tolerance
from swiftsure.verify.compare.elements import BFLOAT16, RAW
from swiftsure.verify.compare.tolerance import Distance, array_distance, compare_numbers


def distance(a: Any, b: Any) -> Distance:
    found = compare_numbers(a, b)
    assert found.distance is not None, found.reason
    return found.distance


def test_the_document_s_example_is_a_thousandth_apart() -> None:
    found = distance(np.float32([1.000, 2.000]), np.float32([1.000, 2.001]))
    assert (found.elements, found.differing) == (2, 1)
    assert found.absolute.largest == pytest.approx(1e-3, rel=1e-3)
    assert found.relative.largest == pytest.approx(5e-4, rel=1e-3)
    assert (found.absolute.where, found.absolute.base) == ("[1]", 2.0)


def test_the_worst_place_is_told_apart_for_absolute_and_relative() -> None:
    found = distance(np.array([[100.0, 1.0]]), np.array([[101.0, 1.5]]))
    assert (found.absolute.where, found.relative.where) == ("[0, 0]", "[0, 1]")


def test_figures_bear_the_names_of_a_contract_s_limits() -> None:
    a = np.arange(1.0, 1001.0)
    b = a.copy()
    b[[3, 5, 700]] += (0.5, 0.25, 100.0)
    figures = distance(a, b).figures()
    assert figures["absolute"] == 100.0
    assert figures["absolute_p99"] == 0.0
    assert figures["absolute_mean"] == pytest.approx(0.10075)
    assert set(figures) == {"absolute", "absolute_p99", "absolute_mean", "relative", "relative_p99", "relative_mean"}


def test_a_nan_on_one_side_alone_is_within_no_limit() -> None:
    found = distance(np.array([1.0, np.nan, np.nan]), np.array([9.0, np.nan, 1.0]))
    assert np.isnan(found.absolute.largest)
    assert found.absolute.where == "[2]"
    assert np.isnan(found.absolute.mean)
    assert not found.absolute.largest <= 1e9


def test_equal_infinities_are_no_distance_and_others_are_infinite() -> None:
    assert distance(np.array([np.inf, 1.0]), np.array([np.inf, 1.0])).absolute.largest == 0.0
    assert distance(np.array([np.inf, 1.0]), np.array([-np.inf, 1.0])).absolute.largest == np.inf
    assert distance(np.array([0.0, 1.0]), np.array([1e-9, 1.0])).relative.largest == np.inf


def test_whole_numbers_are_subtracted_as_such() -> None:
    a, b = np.array([2**63 - 1, -(2**63)]), np.array([2**63 - 2, 2**63 - 1])
    assert distance(a, a).absolute.largest == 0.0
    assert distance(a[:1], b[:1]).absolute.largest == 1.0
    assert distance(a, b).absolute.largest == float(2**64 - 1)


def test_types_may_differ_and_bfloat16_is_widened() -> None:
    bf16 = np.array([0x3F80, 0x4000], "<u2").view(BFLOAT16)
    assert distance(bf16, np.float64([1.0, 2.5])).absolute.largest == 0.5
    assert distance(np.float16([1.0]), np.float32([1.25])).absolute.largest == 0.25
    assert distance(np.array([1 + 1j]), np.array([1 + 2j])).absolute.largest == 1.0


def test_arrays_in_parts_give_what_arrays_in_one_part_give(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, (1 << 20) + 5))
    b = a + rng.normal(size=a.shape) * 1e-3
    whole = distance(a, b)
    expected = np.abs(b - a)
    assert whole.absolute.largest == expected.max()
    assert whole.absolute.mean == pytest.approx(expected.mean())
    assert whole.absolute.p99 == np.quantile(expected, 0.99, method="inverted_cdf")
    assert whole.absolute.where == str([int(i) for i in np.unravel_index(expected.argmax(), a.shape)])
    monkeypatch.setattr(tolerance, "_EXACT_QUANTILES", 1 << 18)
    sampled = array_distance(a, b)
    assert sampled.absolute.p99 == np.quantile(expected.reshape(-1)[:: -(-a.size // (1 << 18))], 0.99, method="inverted_cdf")
    assert sampled.absolute.largest == whole.absolute.largest


def test_json_is_compared_leaf_by_leaf() -> None:
    found = distance({"name": "a", "scores": [1, 2.0, {"x": 3}]}, {"name": "a", "scores": [1.0, 2.0, {"x": 3.5}]})
    assert (found.elements, found.absolute.where, found.absolute.largest) == (3, "$.scores[2].x", 0.5)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ({"a": 1}, {"b": 1}, "$ differs in more than a number"),
        ({"a": "x"}, {"a": "y"}, "$.a differs in more than a number"),
        ([1, 2], [1], "$ differs in more than a number"),
        ([True], [1], "$[0] differs in more than a number"),
        ([10**400], [1], "$[0]: an integer beyond float64"),
        (["x"], ["x"], "there is no number"),
        (np.zeros(2), np.zeros(3), "shape (2,) against (3,)"),
        (np.zeros(0), np.zeros(0), "there is no element"),
        (np.zeros(2, RAW), np.zeros(2, RAW), "elements of type bytes are no numbers"),
        (np.array(["a"]), np.array(["a"]), "elements of type <U1 are no numbers"),
        (np.zeros(2), "text", "$ differs in more than a number"),
    ],
)
def test_what_has_no_distance_says_why(a: Any, b: Any, reason: str) -> None:
    found = compare_numbers(a, b)
    assert found.distance is None
    assert found.reason == reason


def test_texts_have_the_share_of_characters_that_stay() -> None:
    assert compare_numbers("abcd", "abxd").text_kept == 0.75
    assert compare_numbers("", "").text_kept == 1.0


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 10))
def test_a_shift_is_the_distance_of_every_element(values: list[float], shift: float) -> None:
    a = np.array(values)
    found = distance(a, a + shift)
    assert found.absolute.largest == pytest.approx(shift, abs=1e-9)
    assert found.absolute.mean <= found.absolute.largest * (1 + 1e-12)
    assert found.absolute.p99 <= found.absolute.largest
