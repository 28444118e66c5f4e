"""``swiftsure profile``: where a token's time goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

CASES = ("--rows", "1,4", "--context", "32", "--prefill", "48", "--repeats", "2", "--threads", "2")


def test_the_table_fits_eighty_columns_and_names_every_kind_of_work(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("profile", tiny, *CASES, "--layers")
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.partition(":")[0] for line in lines if ": " in line and " ms, " in line and line[0] in "dp"] == [
        "decode, 1 row at context 32",
        "decode, 4 rows at context 32",
        "prefill of 48 tokens",
    ]
    first = lines[: lines.index("")]
    names = [line.split()[0] for line in first[2 : first.index(next(line for line in first if line.startswith("all "))) + 1]]
    assert names == [
        "embed+select",
        "norms+quantize",
        "qkv",
        "rope+cache",
        "attention",
        "o",
        "gate_up",
        "activation",
        "down",
        "head",
        "barriers+idle",
        "interrupted",
        "plan+call",
        "sampling",
        "python",
        "all",
    ]
    assert any(line.startswith("limits with 2 threads") for line in lines)
    assert result.line("ACTIVE ")
    assert result.line("EXIT ").startswith("EXIT mode=default status=ok items=3/3")


def test_json_record_and_page_hold_the_same_figures(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    record, page = tmp_path / "record.json", tmp_path / "out" / "page.html"
    result = swiftsure("profile", tiny, *CASES, "--mode", "exact", "--json", "--record", record, "--html", page)
    printed, written = json.loads(result.out), json.loads(record.read_text())
    assert printed["results"] == written["results"]
    assert (written["command"], written["mode"], written["threads"]) == ("profile", "exact", 2)
    for case in written["results"]["cases"]:
        assert sum(row["share"] for row in case["operations"]) == pytest.approx(1)
        assert case["timed_median_ms"] > 0 < case["untimed_median_ms"]
        assert len(case["threads"]) == 2
    assert "drafting" in [row["name"] for row in written["results"]["cases"][0]["operations"]]
    assert page.read_text().count("<svg") == 3


def test_a_prefill_alone_times_no_decode_pass(swiftsure: Run, tiny: Path) -> None:
    result = swiftsure("profile", tiny, "--prefill", "40", "--repeats", "1", "--json")
    facts = json.loads(result.out)["results"]
    assert [case["case"] for case in facts["cases"]] == ["prefill of 40 tokens"]
    assert facts["generation"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--rows", "1,two"], 2, "--rows takes whole numbers such as 1,4,8, got '1,two'"),
        (["--rows", "0"], 2, "--rows must be at least 1, got 0"),
        (["--rows", "33"], 2, "a decode pass takes 1 to 32 rows, got 33"),
        (["--context", "-1"], 2, "--context must be at least 0, got -1"),
        (["--prefill", "0"], 2, "--prefill must be at least 1, got 0"),
        (["--repeats", "0"], 2, "--repeats must be at least 1, got 0"),
        (["--context", "100000"], 2, "100001"),
        (["--isa", "sse9"], 2, "sse9"),
    ],
)
def test_what_cannot_be_timed_is_refused_with_rule_and_value(
    swiftsure: Run, tiny: Path, arguments: list[str], code: int, message: str
) -> None:
    result = swiftsure("profile", tiny, *arguments)
    assert result.code == code
    assert message in result.line("error: ")
