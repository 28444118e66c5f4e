"""Each kind of subject through a whole verification."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.engine.load_options import LoadOptions
from swiftsure.verify.contracts.contract import parse_contract
from swiftsure.verify.subjects.base import Case
from swiftsure.verify.subjects.parse import SubjectOptions, subject_from_spec
from swiftsure.verify.verification import Verification
from swiftsure.verify.verify import VerifyOptions, verify
from verify.subjects.programs import command
from verify.subjects.stand_in import chunk, standing_in

EXACT = 'kind = "exact"\nname = "x"\nowner = "me"\n[activation]\nrequired = false\n'
BIG = """
kind = "big"
name = "x"
owner = "me"
sizes = [10, 100]
[big]
memory_limit_bytes = 201326592
accuracy_output = "output"
[[big.size]]
size = 10
[[big.size]]
size = 100
[activation]
required = false
"""
PROMPTS = [Case(id="a", request={"prompt": "abc abc abc abc", "max_tokens": 8}), Case(id="b", request={"prompt": "one", "max_tokens": 4})]


def verified(contract: str, baseline: str, candidate: str, cases: list[Case], **options: object) -> Verification:
    owed = parse_contract(contract)
    made = SubjectOptions(**options)  # type: ignore[arg-type]
    sides = [subject_from_spec(spec, made) for spec in (baseline, candidate)]
    return verify(owed, sides[0], sides[1], cases, VerifyOptions())


def reasons(found: Verification) -> str:
    return "\n".join(found.record["verdict"]["reasons"])


def test_mode_exact_passes_against_mode_default(tiny_path: Path) -> None:
    found = verified(EXACT, "mode:default", "mode:exact", PROMPTS, model=str(tiny_path), load=LoadOptions(threads=1), logits=True)
    assert found.kind == "PASS", reasons(found)
    assert found.record["candidate"]["activation"]["state"] == "active"


def test_the_same_file_passes_as_a_file(tiny_path: Path) -> None:
    found = verified(EXACT, "mode:default", f"file:{tiny_path}", PROMPTS, model=str(tiny_path), load=LoadOptions(threads=1), logits=True)
    assert found.kind == "PASS", reasons(found)


def test_two_endpoints_are_compared_and_the_first_difference_is_named() -> None:
    with standing_in() as base, standing_in() as candidate:
        same = verified(EXACT, f"url:{base.url}", f"url:{candidate.url}", PROMPTS)
        assert same.kind == "PASS", reasons(same)
        candidate.pieces = [chunk("Help"), chunk(finish="stop")]
        other = verified(EXACT, f"url:{base.url}", f"url:{candidate.url}", PROMPTS)
    assert other.kind == "FAIL"
    assert "text character 3 (line 1, column 4)" in reasons(other)


@pytest.fixture
def sized(tmp_path: Path) -> list[Case]:
    cases = []
    for megabytes in (8, 400):
        path = tmp_path / f"{megabytes}.txt"
        path.write_text(str(megabytes))
        cases.append(Case(id=path.name, path=path, size=megabytes / 5))
    return cases


def test_a_size_that_does_not_fit_the_limit_is_out_of_memory_and_the_smaller_one_runs(tmp_path: Path, sized: list[Case]) -> None:
    spec = "cmd:" + command(tmp_path, "x = bytearray(b'x') * (int(source.read_text()) << 20); target.write_text('1')")
    found = verified(BIG, spec, spec, sized, memory_limit_bytes=201326592)
    statuses = [observation["candidate"][0]["status"] for observation in found.record["observations"]]
    assert statuses == ["ran", "out_of_memory"]
    assert found.kind == "FAIL", reasons(found)
    assert "out of memory" in reasons(found)


def test_a_planted_unit_in_the_last_place_is_named(tmp_path: Path) -> None:
    body = "import numpy as np\nx = np.ones((3, 4), np.float32)\n{plant}\ntarget.mkdir(); np.save(target / 'scores.npy', x)"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    plant = "x[1, 2] = np.nextafter(x[1, 2], np.float32(2))"
    base, candidate = (command(tmp_path / name, body.format(plant=text)) for name, text in (("a", ""), ("b", plant)))
    found = verified(EXACT, f"cmd:{base}", f"cmd:{candidate}", [Case(id="one", request={"prompt": "x"})])
    assert found.kind == "FAIL"
    assert "scores [1, 2]: 1.0 (0x3f800000) against 1.0000001 (0x3f800001), 1 ulp apart" in reasons(found)
