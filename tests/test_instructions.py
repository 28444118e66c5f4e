"""Instruction counts: the counting itself, and the trend."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks import instructions

ROOT = Path(__file__).resolve().parents[1]
LINES = ["avx2\tmatmul, rows 1\t1100", "avx2\targmax\t50", "avx2\tnew one\t7", "amx\tNOT\tthis processor does not run amx"]
BEFORE = {
    "created": "2026-12-02T03:00:00+00:00",
    "csrc": "0123456789abcdef",
    "compiler": "GCC: 12.2.0",
    "counts": {"avx2": {"matmul, rows 1": 1000, "argmax": 50, "old one": 9}},
}
KNOWN = """
#include <cstdio>
#include "single_step.h"
int main() {
    for (int i = 0; i < 2; ++i)
        std::printf("%d\\n", static_cast<int>(single_step::count([](void*) { asm volatile(".rept 1234\\n nop\\n .endr"); }, nullptr)));
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64" or platform.system() != "Linux", reason="single steps are written for x86-64 on Linux")
def test_a_call_of_known_length_counts_its_instructions_and_its_return(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs c++ to build the counting program")
    source, program = tmp_path / "known.cpp", tmp_path / "known"
    source.write_text(KNOWN)
    subprocess.run([compiler, "-std=c++20", "-O2", f"-I{ROOT / 'benchmarks/kernels'}", str(source), "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout == "1235\n1235\n"


def test_lines_become_counts_and_reasons() -> None:
    counts, missing = instructions.parse(LINES)
    assert counts == {"avx2": {"matmul, rows 1": 1100, "argmax": 50, "new one": 7}}
    assert missing == {"amx": "this processor does not run amx"}
    with pytest.raises(ValueError, match="with tabs between, got 'avx2 7'"):
        instructions.parse(["avx2 7"])


def test_the_table_states_changes_what_is_new_what_is_gone_and_what_was_not_measured() -> None:
    lines = instructions.table(*instructions.parse(LINES), BEFORE)
    assert [line.split()[-1] for line in lines[1:5]] == ["+10.0%", "50", "new", "gone"]
    assert lines[5] == "amx         NOT MEASURED: this processor does not run amx"
    assert lines[6] == "change: since 2026-12-02T03:00:00+00:00, csrc 0123456789ab, GCC: 12.2.0"
    assert max(map(len, lines)) <= 80
    assert instructions.table(*instructions.parse(LINES), None)[1].endswith("new")


def test_entries_are_kept_in_order_and_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "instructions.json"
    assert instructions.load(path) == []
    made = instructions.entry(*instructions.parse(LINES), "GCC: 12.2.0")
    instructions.write(path, [BEFORE, made])
    kept = instructions.load(path)
    assert kept[0] == BEFORE
    assert kept[1]["not_measured"] == {"amx": "NOT MEASURED: this processor does not run amx"}
    assert kept[1]["counts"]["avx2"]["argmax"] == 50
    assert kept[1]["machine"]["architecture"] == platform.machine()
    path.write_text(json.dumps({"schema": "other/1"}))
    with pytest.raises(ValueError, match="must have the schema"):
        instructions.load(path)


def test_the_trend_on_record_counts_every_instruction_set_or_says_why_not() -> None:
    entries = instructions.load(instructions.RESULTS)
    assert entries
    for kept in entries:
        measured = {isa for isa, kernels in kept["counts"].items() if all(count > 0 for count in kernels.values())}
        assert measured | set(kept["not_measured"]) >= {"portable", "avx2", "avx512", "avx512_vnni", "amx"}


def test_a_part_of_the_instruction_sets_is_not_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        instructions.main(["--record", "--isa", "avx2"])
    assert "leave --isa out" in capsys.readouterr().err
