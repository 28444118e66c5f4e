from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.verify.compare.logit_files import BitComparison, compare_logit_files

VOCAB = 7


def compare(tmp_path: Path, a: NDArray[np.float32], b: NDArray[np.float32], vocab_size: int = VOCAB) -> BitComparison:
    a.astype("<f4").tofile(tmp_path / "a")
    b.astype("<f4").tofile(tmp_path / "b")
    return compare_logit_files(tmp_path / "a", tmp_path / "b", vocab_size=vocab_size)


def rows(count: int) -> NDArray[np.float32]:
    return np.random.default_rng(count).normal(size=(count, VOCAB)).astype(np.float32)


def test_equal_files_have_no_differing_bit(tmp_path: Path) -> None:
    result = compare(tmp_path, rows(5), rows(5))
    assert result.equal
    assert result.bits_compared == 5 * VOCAB * 32
    assert result.first is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 150 * VOCAB * 32 - 1), min_size=1, max_size=40))
def test_every_flipped_bit_is_counted_and_the_first_is_located(tmp_path: Path, flips: set[int]) -> None:
    a = rows(150)  # more rows than are read at once
    b = a.copy()
    words = b.reshape(-1).view(np.uint32)
    for flip in flips:
        words[flip // 32] ^= np.uint32(1 << (flip % 32))
    result = compare(tmp_path, a, b)
    assert result.bits_differing == len(flips)
    assert not result.equal
    first = min(flips) // 32
    assert result.first is not None
    assert (result.first.row, result.first.token_id) == divmod(first, VOCAB)


def test_minus_zero_differs_from_zero(tmp_path: Path) -> None:
    a, b = np.zeros((1, VOCAB), np.float32), np.zeros((1, VOCAB), np.float32)
    b[0, 3] = -0.0
    result = compare(tmp_path, a, b)
    assert result.bits_differing == 1
    assert result.first is not None
    assert result.first.describe() == "row 0, token 3: 0.0 (0x00000000) against -0.0 (0x80000000)"


def test_the_same_nan_is_equal_and_another_nan_is_not(tmp_path: Path) -> None:
    a = np.full((1, VOCAB), np.nan, np.float32)
    assert compare(tmp_path, a, a.copy()).equal
    b = a.copy()
    b.view(np.uint32)[0, 0] |= 1
    assert compare(tmp_path, a, b).bits_differing == 1


def test_missing_rows_are_not_equal_though_what_is_there_is(tmp_path: Path) -> None:
    result = compare(tmp_path, rows(4), rows(4)[:3])
    assert (result.rows_compared, result.rows_missing, result.bits_differing) == (3, 1, 0)
    assert not result.equal


def test_half_a_row_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="b holds 8 bytes, not whole rows of 28"):
        compare(tmp_path, rows(1), np.zeros((1, 2), np.float32))
