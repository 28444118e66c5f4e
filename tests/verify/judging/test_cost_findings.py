"""Time and memory beside the baseline."""

from __future__ import annotations

from typing import Any

import pytest
from trials import OWNED, array, contract_of, verdict_of

from swiftsure.verify.contracts.contract import Contract
from swiftsure.verify.judging.costs import amdahl, memory, speeds
from swiftsure.verify.judging.observation import Observation, observe
from swiftsure.verify.subjects.base import Case, Trial

PLAIN = contract_of(OWNED + 'kind = "exact"\nsizes = [10, 100]\n')


def timed(
    contract: Contract, forward: float, other: float, speedup: float, *, size: float = 5, name: str = "a", ratio: float = 1.0
) -> Observation:
    """A case of the baseline with two phases; in the candidate the first is ``speedup`` times faster."""
    case = Case(id=name, size=size)

    def one(forward_s: float, peak: int) -> Trial:
        phases = {"forward": forward_s, "other": other}
        return Trial(case=case, status="ran", outputs={"y": array(1)}, wall_s=forward_s + other, phases_s=phases, peak_bytes=peak)

    return observe(case, [one(forward, 1000)] * 3, [one(forward / speedup, int(1000 * ratio))] * 3, contract)


def test_a_forward_4_1_times_faster_of_41_in_100_s_gives_1_45_end_to_end_measured_and_by_amdahl() -> None:
    seen = [timed(PLAIN, 41, 59, 4.1, name=str(i)) for i in range(3)]
    found = speeds(seen, PLAIN)
    whole = next(speed for speed in found if speed.phase == "whole")
    law = amdahl(seen, PLAIN, found)
    assert whole.candidate_s == pytest.approx(69)
    assert whole.speedup == pytest.approx(100 / 69)
    assert law is not None
    assert (law.speedup, law.end_to_end) == (pytest.approx(4.1), pytest.approx(100 / 69))


def test_the_speed_of_cases_is_a_geometric_mean_with_the_worst_beside_it() -> None:
    seen = [timed(PLAIN, 1, 0, 2, name="slow"), timed(PLAIN, 1, 0, 8, name="quick", size=50)]
    found = speeds(seen, PLAIN)
    whole = found[0]
    assert (whole.phase, whole.speedup, whole.worst, whole.worst_case) == ("whole", pytest.approx(4), pytest.approx(2), "slow")
    assert [speed.range for speed in found if speed.range != "all sizes"] == ["up to 10 bytes", "over 10 to 100 bytes"]


def test_a_candidate_that_uses_3_2_times_the_memory_says_so() -> None:
    found = memory([timed(PLAIN, 1, 1, 1, name="a"), timed(PLAIN, 1, 1, 1, name="b", ratio=3.2)])
    assert found is not None
    assert found.words() == "uses 3.2x the memory of the baseline, the most at b"


@pytest.mark.parametrize(
    ("rules", "speedup", "ratio", "kind", "words"),
    [
        ("[time]\nleast_forward_share = 0.5\n", 4.1, 1, "HOLD", "CPU or I/O dominates: forward is 41% of the whole time, below 50%"),
        ("[time]\nleast_forward_share = 0.4\n", 4.1, 1, "PASS", ""),
        ("[time]\nleast_speedup = 1.4\n", 4.1, 1, "PASS", ""),
        ("[time]\nleast_speedup = 1.5\n", 4.1, 1, "FAIL", "end to end 1.45x"),
        ("[time.limits_s]\nwhole = 60\n", 4.1, 1, "FAIL", "whole: 69 s against a limit of 60 s"),
        ("[time.limits_s]\ndecode = 60\n", 4.1, 1, "INCONCLUSIVE", "phase decode was not measured on both sides"),
        ('[time]\nphases = ["forward", "load"]\n', 4.1, 1, "INCONCLUSIVE", "no time of phase load was stated"),
        ("[memory]\nmost_ratio = 1.5\n", 1, 3.2, "FAIL", "uses 3.2x the memory of the baseline"),
        ("[memory]\nmost_bytes = 2000\n", 1, 3.2, "FAIL", "peak memory 3,200 bytes, at most 2,000 allowed"),
        ("[memory]\nmost_ratio = 4\n", 1, 3.2, "PASS", ""),
    ],
)
def test_limits_of_time_and_memory(rules: str, speedup: float, ratio: float, kind: str, words: str) -> None:
    contract = contract_of(OWNED + f'kind = "exact"\n{rules}')
    seen = [timed(contract, 41, 59, speedup, name=str(i), ratio=ratio) for i in range(3)]
    found: Any = verdict_of(contract, seen)
    assert found.kind == kind
    assert words in " ".join(found.reasons)
