"""The ceiling of arithmetic."""

from __future__ import annotations

import pytest

from swiftsure.errors import UsageError
from swiftsure.records.arithmetic_peak import ArithmeticPeak, measure_arithmetic_peak


def test_the_rate_is_that_of_the_median_pass() -> None:
    peak = ArithmeticPeak(kind="float", isa="avx2", threads=2, pass_ops_per_s=(1e9, 5e9, 3e9))
    assert peak.ops_per_s == 3e9
    assert peak.to_dict() == {"kind": "float", "isa": "avx2", "threads": 2, "passes": 3, "gop_per_s": 3.0}


def test_a_peak_is_measured_with_as_many_passes_as_asked() -> None:
    peak = measure_arithmetic_peak("integer", isa="portable", threads=2, passes=3)
    assert len(peak.pass_ops_per_s) == 3
    assert peak.ops_per_s > 0


def test_no_threads_are_refused() -> None:
    with pytest.raises(UsageError, match="threads must be at least 1, got 0"):
        measure_arithmetic_peak("integer", isa="portable", threads=0)
