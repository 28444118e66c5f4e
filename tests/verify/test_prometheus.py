from __future__ import annotations

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.prometheus import samples

PAGE = """# TYPE mode_active gauge
mode_active{isa="avx2",mode="exact",note="a } b, \\"c\\""} 1.0
mode_active{mode="fast"} 0
mode_active_total 7
plain 3 1700000000
"""


@pytest.mark.parametrize(
    ("metric", "values"),
    [
        ("mode_active", ["1.0", "0"]),
        ('mode_active{mode="exact"}', ["1.0"]),
        ('mode_active{mode="exact",isa="avx2"}', ["1.0"]),
        ('mode_active{mode="big"}', []),
        ("mode", []),
        ("plain", ["3"]),
        ('plain{mode="exact"}', []),
    ],
)
def test_a_sample_has_the_name_and_at_least_the_labels_that_are_asked_for(metric: str, values: list[str]) -> None:
    assert samples(PAGE, metric) == values


@pytest.mark.parametrize("metric", ["", "a b", 'a{b="c"', "a{b=c}", "a{}"])
def test_what_is_no_metric_is_refused(metric: str) -> None:
    with pytest.raises(UsageError, match="a metric is written as name or name"):
        samples(PAGE, metric)
