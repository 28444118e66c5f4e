from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from swiftsure.verify.compare.divergence import compare_distributions, compare_logits
from swiftsure.verify.compare.elements import BFLOAT16

VOCAB, ROWS = 11, 130  # more rows than are read at once


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    base = rng.normal(size=(ROWS, VOCAB)).astype(np.float32)
    return base, base + rng.normal(size=base.shape).astype(np.float32) * np.float32(0.1), rng.integers(0, VOCAB, ROWS)


def test_arrays_give_what_files_give(pair: tuple[np.ndarray, np.ndarray, np.ndarray], tmp_path: Path) -> None:
    base, other, ids = pair
    base.tofile(tmp_path / "a")
    other.tofile(tmp_path / "b")
    files = compare_distributions(tmp_path / "a", tmp_path / "b", ids.tolist(), vocab_size=VOCAB).over(0, ROWS)
    assert compare_logits(base, other, ids).over(0, ROWS) == files
    assert files.kl_mean > 0


def test_bfloat16_logits_are_widened(pair: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    base, _, ids = pair
    bits = (base.view(np.uint32) >> 16).astype("<u2").view(BFLOAT16)
    rounded = ((base.view(np.uint32) >> 16) << 16).view(np.float32)
    assert compare_logits(rounded, bits, ids).over(0, ROWS).kl_max == 0.0


def test_other_shapes_are_refused(pair: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    base, other, ids = pair
    with pytest.raises(ValueError, match="two arrays of 130 rows"):
        compare_logits(base, other[:-1], ids)
    with pytest.raises(ValueError, match="two arrays of 129 rows"):
        compare_logits(base, other, ids[:-1])
