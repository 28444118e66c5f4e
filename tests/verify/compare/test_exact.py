from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from swiftsure.verify.compare.elements import BFLOAT16, RAW, ulps_apart
from swiftsure.verify.compare.exact import ExactComparison, OutputComparison, compare_arrays, compare_outputs, compare_trials
from swiftsure.verify.subjects.base import Case, Trial

FLOATS = [np.float16, np.float32, np.float64]


def compare(a: Any, b: Any) -> OutputComparison:
    return compare_outputs({"x": a}, {"x": b}, case="c").outputs["x"]


def test_the_document_s_example_differs_and_is_located() -> None:
    base, candidate = np.float32([1.000, 2.000]), np.float32([1.000, 2.001])
    found = compare_outputs({"scores": base}, {"scores": candidate}, case="pair")
    assert not found.equal
    assert found.describe() == (
        "case pair: scores [1]: 2.0 (0x40000000) against 2.001 (0x40001062), 4,194 ulps apart; 1 of 2 elements differ"
    )


def test_the_same_outputs_are_equal_and_counted() -> None:
    found = compare_outputs({"a": np.zeros((3, 4)), "b": "text"}, {"a": np.zeros((3, 4)), "b": "text"}, case="c")
    assert found.equal
    assert (found.compared, found.differing, found.bits_compared) == (16, 0, 12 * 64)


def test_minus_zero_differs_from_zero() -> None:
    found = compare(np.float32([0.0]), np.float32([-0.0]))
    assert found.differing == 1
    assert found.bits_differing == 1
    assert found.first is not None
    assert (found.first.base, found.first.candidate) == ("0.0 (0x00000000)", "-0.0 (0x80000000)")


def test_a_nan_with_the_same_bits_is_equal_and_another_is_not() -> None:
    a = np.full(3, np.nan, np.float32)
    assert compare(a, a.copy()).equal
    b = a.copy()
    b.view(np.uint32)[1] |= 1
    found = compare(a, b)
    assert found.first is not None
    assert (found.first.where, found.first.ulps) == ("[1]", None)
    assert found.largest_ulps is None


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_planted_ulp_is_located_and_measured(dtype: type) -> None:
    a = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(dtype)
    b = a.copy()
    b[4, 2, 1] = np.nextafter(b[4, 2, 1], dtype(9))
    found = compare(a, b)
    assert found.first is not None
    assert (found.first.where, found.first.ulps, found.largest_ulps, found.differing) == ("[4, 2, 1]", 1, 1, 1)


def test_the_largest_distance_is_told_beside_the_first() -> None:
    a = np.ones(5, np.float32)
    b = a.copy()
    b[1] = np.nextafter(np.float32(1), np.float32(2))
    b[3] = 2.0
    found = compare(a, b)
    assert found.first is not None
    assert (found.first.ulps, found.largest_ulps, found.differing) == (1, 1 << 23, 2)


def test_bfloat16_has_ulps_of_its_own() -> None:
    a = np.array([0x3F80, 0x3F80], "<u2").view(BFLOAT16)
    b = np.array([0x3F80, 0x3F82], "<u2").view(BFLOAT16)
    found = compare(a, b)
    assert found.first is not None
    assert found.first.describe() == "x [1]: 1.0 (0x3f80) against 1.015625 (0x3f82), 2 ulps apart"


def test_raw_bytes_are_compared() -> None:
    a, b = (np.frombuffer(data, np.uint8).view(RAW) for data in (b"abc", b"abd"))
    found = compare(a, b)
    assert found.first is not None
    assert found.first.describe() == "x [2]: 0x63 against 0x64"


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (np.zeros(2, np.float32), np.zeros(2, np.float64), "x: dtype float32 against float64"),
        (np.zeros(2, "<f4"), np.zeros(2, ">f4"), "x: dtype float32 against >f4"),
        (np.zeros(2, np.int64), np.zeros(2, np.uint64), "x: dtype int64 against uint64"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "x: shape (2, 3) against (3, 2)"),
        (np.zeros(()), np.zeros(1), "x: shape () against (1,)"),
        (np.zeros(2), "text", "x: type float64 array against text"),
        ({"a": 1}, [1], "x: type JSON object against JSON array"),
    ],
)
def test_what_cannot_be_laid_side_by_side_differs_by_name(a: Any, b: Any, words: str) -> None:
    found = compare(a, b)
    assert found.first is not None
    assert found.first.describe() == words


def test_missing_extra_and_reordered_names_differ() -> None:
    a, b = np.zeros(2), np.ones(2)
    assert words(compare_outputs({"a": a, "b": b}, {"a": a})) == "b: only the baseline has it"
    assert words(compare_outputs({"a": a}, {"a": a, "b": b})) == "b: only the candidate has it"
    assert words(compare_outputs({"a": a, "b": b}, {"b": b, "a": a})) == "names: order a, b against b, a"


def words(found: ExactComparison) -> str:
    assert found.first is not None
    assert not found.equal
    return found.first.describe()


def test_layout_in_memory_does_not_count_but_logical_order_does() -> None:
    a = np.arange(12.0).reshape(3, 4)
    assert compare(a, np.asfortranarray(a)).equal
    assert not compare(a, np.arange(12.0).reshape(4, 3).T.copy()).equal


def test_arrays_longer_than_a_part_are_compared_to_their_end() -> None:
    a = np.zeros((3, 1 << 20), np.uint8)
    b = a.copy()
    b[2, -1] = 1
    found = compare_arrays("x", a, b)
    assert found.first is not None
    assert (found.first.where, found.differing) == (f"[2, {(1 << 20) - 1}]", 1)
    assert compare_arrays("x", np.asfortranarray(a), np.asfortranarray(b)).first == found.first


@pytest.mark.parametrize(("dtype", "signalling"), [(np.float16, 0x7C01), (np.float32, 0x7F800001), (np.complex64, 0x7F800001)])
def test_a_signalling_nan_is_compared_like_any_other(dtype: type[Any], signalling: int) -> None:
    infinite = np.full(2, np.inf, dtype)
    damaged = infinite.copy()
    bits = damaged.view(np.uint16 if dtype is np.float16 else np.uint32)
    bits[-1] = signalling
    found = compare(infinite, damaged)
    assert found.differing == 1
    assert found.first is not None
    assert found.first.where == "[1]"


@settings(deadline=None)
@given(
    st_np.array_shapes(min_dims=0, max_dims=3, max_side=6).flatmap(
        lambda shape: st.tuples(
            st_np.arrays(st.sampled_from([np.float16, np.float32, np.float64, np.int8, np.int64, np.complex64, np.bool_]), shape),
            st.sets(st.integers(0, max(0, int(np.prod(shape)) * 16 - 1)), max_size=8),
        )
    )
)
def test_every_flipped_bit_is_counted_and_the_first_element_is_located(given_pair: tuple[Any, set[int]]) -> None:
    a, flips = given_pair
    b = a.copy(order="C")
    raw = b.reshape(-1).view(np.uint8)
    flips = {flip for flip in flips if flip // 8 < raw.size}
    for flip in flips:
        raw[flip // 8] ^= 1 << (flip % 8)
    found = compare(a, b)
    assert found.bits_differing == len(flips)
    touched = sorted({flip // 8 // a.dtype.itemsize for flip in flips})
    assert found.differing == len(touched)
    assert found.equal == (not flips)
    if flips:
        assert found.first is not None
        index = np.unravel_index(touched[0], a.shape)
        assert found.first.where == f"[{', '.join(str(int(i)) for i in index)}]"


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1), st.integers(1, 100))
def test_ulps_count_the_steps_between_neighbours(values: list[float], steps: int) -> None:
    a = np.array(values, np.float32)
    a = a[np.abs(a) < 1e38]
    b = a.copy()
    for _ in range(steps):
        b = np.nextafter(b, np.float32(np.inf), dtype=np.float32)
    crossed_zero = (a < 0) & (b >= 0) | (a.view(np.uint32) == 0x80000000)  # -0.0 lies between the smallest negative and 0.0
    assert np.all((ulps_apart(a, b) == steps) | crossed_zero)
    assert np.array_equal(ulps_apart(a, b), ulps_apart(b, a))


def test_texts_are_located_by_character_line_and_column() -> None:
    found = compare("one\ntwo three", "one\ntwo Three!")
    assert found.first is not None
    assert found.first.where == "character 8 (line 2, column 5)"
    assert (found.compared, found.differing) == (14, 2)


def test_a_text_that_ends_early_differs_at_its_end() -> None:
    found = compare("abc", "ab")
    assert found.first is not None
    assert (found.first.where, found.first.candidate) == ("character 2 (line 1, column 3)", "the end")


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        ({"s": [{"n": 1}, {"n": 2}]}, {"s": [{"n": 1}, {"n": 3}]}, "x $.s[1].n: int 2 against int 3"),
        ({"v": 1}, {"v": 1.0}, "x $.v: type int 1 against float 1.0"),
        ({"v": 1}, {"v": True}, "x $.v: type int 1 against bool True"),
        ({"v": None}, {"v": 0}, "x $.v: type NoneType None against int 0"),
        ({"v": 0.0}, {"v": -0.0}, "x $.v: 0.0 (0x0000000000000000) against -0.0 (0x8000000000000000), 1 ulp apart"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "x $: order a, b against b, a"),
        ({"a": 1, "b": 2}, {"a": 1}, "x $.b: only the baseline has it"),
        ([1], [1, 2], "x $[1]: only the candidate has it"),
        ({"t": "abc"}, {"t": "abd"}, "x $.t, character 2 (line 1, column 3): 'abc' against 'abd'"),
    ],
)
def test_json_is_located_by_its_path(a: Any, b: Any, words: str) -> None:
    found = compare(a, b)
    assert found.first is not None
    assert found.first.describe() == words


def test_the_same_nan_in_json_is_equal() -> None:
    assert compare({"v": [float("nan"), float("inf")]}, {"v": [float("nan"), float("inf")]}).equal


def test_json_nested_deeper_than_python_calls_is_compared() -> None:
    a: Any = [1]
    b: Any = [2]
    for _ in range(50_000):
        a, b = [a], [b]
    assert compare(a, b).differing == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_json_equals_itself(value: Mapping[str, Any]) -> None:
    import copy

    assert compare(value, copy.deepcopy(value)).equal


@settings(deadline=None)
@given(JSON, JSON)
def test_json_differs_exactly_when_its_text_does(a: Any, b: Any) -> None:
    import json

    assert compare([a], [b]).equal == (json.dumps(a) == json.dumps(b))


def test_a_trial_that_did_not_run_is_never_equal() -> None:
    case = Case(id="c")
    ran = Trial(case=case, status="ran", outputs={"x": "y"})
    broke = Trial(case=case, status="out_of_memory", reason="too large")
    assert compare_trials(ran, broke).not_compared == "the candidate out of memory: too large"
    assert not compare_trials(broke, broke).equal
    assert not compare_trials(Trial(case=case, status="ran"), Trial(case=case, status="ran")).equal
    assert compare_trials(ran, ran).equal
