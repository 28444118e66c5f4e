"""Amdahl's law, with the figures that everybody quotes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.service import service, service_of_record


@pytest.mark.parametrize(("forward", "after", "gain"), [(41, 69, 1.45), (90, 31.95, 3.13)])
def test_4_1_times_faster_forward_is_less_end_to_end(forward: float, after: float, gain: float) -> None:
    found = service(forward_s=forward, total_s=100, speedup=4.1)
    assert found.after_s == pytest.approx(after, abs=0.005)
    assert found.end_to_end == pytest.approx(gain, abs=0.005)


def test_no_speed_of_a_part_exceeds_what_the_rest_allows() -> None:
    assert service(forward_s=41, total_s=100, speedup=1e9).end_to_end == pytest.approx(100 / 59)
    assert service(forward_s=41, total_s=100, speedup=2).most == pytest.approx(100 / 59)
    assert service(forward_s=5, total_s=5, speedup=2).most is None


def test_a_part_that_becomes_slower_makes_the_whole_slower() -> None:
    assert service(forward_s=50, total_s=100, speedup=0.5).end_to_end == pytest.approx(100 / 150)


@pytest.mark.parametrize(
    ("forward", "total", "speedup"), [(-1, 10, 2), (11, 10, 2), (1, 0, 2), (1, 10, 0), (1, float("inf"), 2), (1, 10, float("nan"))]
)
def test_what_cannot_be_is_refused(forward: float, total: float, speedup: float) -> None:
    with pytest.raises(UsageError):
        service(forward_s=forward, total_s=total, speedup=speedup)


def test_phases_come_from_a_run_record_with_or_without_their_unit(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"phases_s": {"load": 59, "decode": 41}}))
    assert service_of_record(file, "decode", 4.1).end_to_end == pytest.approx(100 / 69)
    with pytest.raises(UsageError, match="has no phase 'prefill'; it has load, decode"):
        service_of_record(file, "prefill", 2)
    for content, message in (("{}", "no measured phases"), ("[", "not JSON"), ('{"phases_s": {"a": -1}}', "phase a must be seconds")):
        file.write_text(content)
        with pytest.raises(UsageError, match=message):
            service_of_record(file, "a", 2)
