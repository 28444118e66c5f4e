"""``swiftsure verify`` and ``swiftsure gate`` on small programs of another field: they scale an array."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Result, Run

from swiftsure.verify.judging.verdict import EXIT_CODES

PROGRAM = r"""
import json
import random
import struct
import sys

source, output, change = sys.argv[1], sys.argv[2], sys.argv[3]
values = json.load(open(source))
if change == "inactive":
    print("NOT ACTIVE mode=quick reason=no such instruction")
    sys.exit(3)
if change == "broken":
    sys.exit("the disk is full")
if change != "silent":
    print("ACTIVE mode=quick")
result = [2.0 * value for value in values]
if change == "ulp":
    result[1] = struct.unpack("<f", struct.pack("<I", struct.unpack("<I", struct.pack("<f", result[1]))[0] + 1))[0]
if change == "random":
    result[0] = random.random()
if change == "far" and len(values) > 50:
    result[-1] += 1
header = repr({"descr": "<f4", "fortran_order": False, "shape": (len(result),)}).encode()
header += b" " * (117 - len(header)) + b"\n"
with open(output + "/y.npy", "wb") as file:
    file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(result)}f", *result))
with open(output + "/score.txt", "w") as file:
    file.write("1")
print("PHASE name=forward s=0.001")
"""
TASK = '[[task]]\nname = "right"\noutput = "score"\nmargin = 0.2\nleast_items = {items}\n'


class Bench:
    """A folder with the program, inputs and contracts, and the command that compares two of its variants."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self.run = folder, run
        (folder / "program.py").write_text(PROGRAM)
        (folder / "cases").mkdir()
        for number, length in enumerate((4, 5, 100)):
            (folder / "cases" / f"{number}.json").write_text(json.dumps([*range(1, length + 1)]))

    def contract(self, text: str, owner: str = 'owner = "someone"\n') -> Path:
        path = self.folder / "contract.toml"
        path.write_text(owner + text)
        return path

    def verify(self, contract: Path, change: str, *more: str, base: str = "none") -> Result:
        baseline, candidate = (
            f"cmd:{sys.executable} -I -S {self.folder}/program.py {{input}} {{output}}/ {name}" for name in (base, change)
        )
        report = ("--report", str(self.folder / "run"), "--inputs", str(self.folder / "cases"))
        return self.run("verify", "--baseline", baseline, "--candidate", candidate, "--contract", contract, *report, *more)

    def record(self) -> Any:
        return json.loads((self.folder / "run" / "record.json").read_text())


@pytest.fixture
def bench(tmp_path: Path, swiftsure: Run) -> Bench:
    return Bench(tmp_path, swiftsure)


EXACT = 'kind = "exact"\n'
BIG = 'kind = "big"\n[[big.size]]\nsize = 1000\n'
FAST = 'kind = "fast"\nsizes = [100, 1000]\n[fast.outputs.y]\nabsolute = 0.001\n'


@pytest.mark.verdict("PASS", "a program that gives the same bits")
def test_equal_bits_pass_with_exit_0_and_leave_record_page_and_contract(bench: Bench, promised: str) -> None:
    result = bench.verify(bench.contract(EXACT), "same", "--json", str(bench.folder / "copy.json"))
    assert result.code == 0
    assert result.out.startswith(f"{promised}: ")
    record = bench.record()
    assert record == json.loads((bench.folder / "copy.json").read_text())
    assert (bench.folder / "run" / "contract.toml").read_text() == (bench.folder / "contract.toml").read_text()
    assert record["candidate"]["activation"]["evidence"] == "ACTIVE mode=quick"
    assert record["contract"]["digest"] in result.line("contract ")
    page = (bench.folder / "run" / "report.html").read_text()
    assert "PASS" in page
    assert "optimized" not in (page + result.out).lower()


@pytest.mark.verdict("FAIL", "one value one unit in the last place away, named with its place")
def test_a_planted_ulp_fails_with_exit_1_and_is_located(bench: Bench, promised: str) -> None:
    result = bench.verify(bench.contract(EXACT), "ulp")
    assert result.code == 1
    assert result.out.startswith(f"{promised}: ")
    assert "case 0.json: y [1]: 4.0 (0x40800000) against 4.0000005 (0x40800001), 1 ulp apart; 1 of 5 elements differ" in result.out


def reached(verdict: str, how: str, text: str, change: str, base: str = "none") -> Any:
    """A contract, a candidate and a baseline that end with this verdict."""
    return pytest.param(text, change, base, marks=pytest.mark.verdict(verdict, how), id=how)


@pytest.mark.parametrize(
    ("text", "change", "base"),
    [
        reached("NOT_ACTIVE", "a baseline that differs from itself owes no bits", EXACT, "random", "random"),
        reached("NOT_ACTIVE", "a candidate that says NOT ACTIVE and ends with 3", EXACT, "inactive"),
        reached("NOT_ACTIVE", "a candidate whose log lacks the contract's pattern", EXACT + '[activation]\nlog = "turbo"\n', "same"),
        reached("HOLD", "a candidate that nothing shows to be active", EXACT, "silent"),
        reached("HOLD", "a fast contract without a tolerance", 'kind = "fast"\n' + TASK.format(items=1), "ulp"),
        reached("NOT_FINISHED", "a case that the baseline does not answer", EXACT, "same", "broken"),
        reached("COMPARED_ONLY", "outputs within tolerance, and no task in the contract", FAST, "ulp"),
        reached("COMPARED_ONLY", "a size that runs, and no score that says whether it is accurate", BIG, "same"),
        reached("INCONCLUSIVE", "three cases of a hundred that are asked", FAST + TASK.format(items=100), "ulp"),
        reached("FAIL", "a tolerance that one large input alone breaks", FAST + TASK.format(items=100), "far"),
    ],
)
def test_every_other_verdict_is_reached_by_a_real_run(bench: Bench, text: str, change: str, base: str, promised: str) -> None:
    result = bench.verify(bench.contract(text), change, base=base)
    assert bench.record()["verdict"]["kind"] == promised
    assert result.code == EXIT_CODES[promised]
    assert result.out.startswith(f"{promised}: ")


def test_what_commands_print_is_kept_beside_the_report_and_renewed_by_the_next_run(bench: Bench) -> None:
    mine = bench.folder / "run" / "logs" / "candidate" / "notes"
    mine.mkdir(parents=True)
    for _ in range(2):
        bench.verify(bench.contract(EXACT), "same")
        folders = [Path(bench.record()[side]["pins"]["logs"]) for side in ("baseline", "candidate")]
        assert [len(list(folder.glob("*/stdout.txt"))) for folder in folders] == [6, 3]  # exact asks the baseline twice
    assert (folders[1] / "00001-0.json" / "stdout.txt").read_text().startswith("ACTIVE mode=quick\nPHASE name=forward")
    assert mine.is_dir()


def test_a_large_input_alone_beyond_its_tolerance_is_named_as_the_worst_case(bench: Bench) -> None:
    result = bench.verify(bench.contract(FAST), "far")
    assert "y absolute 1 against a limit of 0.001 at 2.json (over 100 to 1,000 bytes)" in result.out


def test_sizes_and_clusters_come_from_a_list_beside_the_inputs(bench: Bench) -> None:
    (bench.folder / "cases" / "cases.csv").write_text("file,size,cluster\n0.json,7,a\n2.json,70,a\n")
    bench.verify(bench.contract(EXACT + 'unit = "residues"\n'), "same")
    assert [(seen["case"], seen["size"], seen["cluster"]) for seen in bench.record()["observations"]] == [
        ("0.json", 7, "a"),
        ("2.json", 70, "a"),
    ]


def test_repeats_alternate_and_give_an_interval(bench: Bench) -> None:
    bench.verify(bench.contract(EXACT), "same", "--repeats", "3")
    record = bench.record()
    assert [len(seen["candidate"]) for seen in record["observations"]] == [3, 3, 3]
    assert record["speeds"][0]["low"] is not None


def test_the_page_is_written_again_from_the_record(bench: Bench) -> None:
    bench.verify(bench.contract(EXACT), "ulp")
    page = bench.folder / "run" / "report.html"
    before = page.read_text()
    page.unlink()
    result = bench.run("verify", "report", bench.folder / "run")
    assert result.code == 0
    assert page.read_text() == before


def test_a_time_limit_of_nothing_and_inputs_without_a_printable_name_are_usage_errors(bench: Bench) -> None:
    result = bench.verify(bench.contract(EXACT), "same", "--time-limit", "0")
    assert (result.code, "time_limit_s must be above 0, got 0" in result.line("error: ")) == (2, True)
    Path(os.fsdecode(os.fsencode(bench.folder) + b"/cases/\xff.json")).write_text("[1]")
    result = bench.verify(bench.contract(EXACT), "same")
    assert (result.code, "must be printable UTF-8, got '\\udcff.json'" in result.line("error: ")) == (2, True)


def test_a_task_says_what_a_correct_result_costs_on_each_side(bench: Bench) -> None:
    for number in range(3, 9):
        (bench.folder / "cases" / f"{number}.json").write_text("[1, 2, 3, 4]")
    result = bench.verify(bench.contract(FAST + TASK.format(items=5)), "ulp")
    cost = bench.record()["tasks"]["right"]["seconds_per_correct"]
    assert cost["items"] == 9
    assert cost["ratio"]["value"] == pytest.approx(cost["baseline"]["value"] / cost["candidate"]["value"])
    assert all(side["low"] <= side["value"] <= side["high"] for side in (cost["baseline"], cost["candidate"], cost["ratio"]))
    assert "a correct result, the baseline" in result.out
    assert "Time per correct result" in (bench.folder / "run" / "report.html").read_text()


@pytest.mark.parametrize("kind", ["exact", "fast", "big", "upstream"])
def test_init_writes_a_contract_once(swiftsure: Run, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "c.toml"
    assert swiftsure("verify", "init", kind, "-o", file).code == 0
    assert swiftsure("verify", "init", kind).out == file.read_text()
    assert "not overwritten" in swiftsure("verify", "init", kind, "-o", file).line("error: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--baseline is missing"),
        (["--baseline", "cmd:true {input} {output}", "--candidate", "cmd:true {input} {output}"], "--contract is missing"),
        (["init", "huge"], "a contract is one of exact, fast, big, upstream, got 'huge'"),
        (["service", "--forward", "4"], "--speedup is missing"),
        (["service", "--speedup", "4"], "give --forward and --total, or --record"),
        (
            ["service", "--forward", "5", "--total", "4", "--speedup", "2"],
            "forward must be at least 0 and at most the total of 4 s, got 5 s",
        ),
        (["report", "nowhere"], "there is no record of a verification at 'nowhere'"),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(swiftsure: Run, arguments: list[str], message: str) -> None:
    result = swiftsure("verify", *arguments)
    assert result.code == 2
    assert message in result.line("error: ")


def test_a_contract_that_is_not_understood_is_a_usage_error_before_anything_runs(bench: Bench) -> None:
    result = bench.verify(bench.contract("kind = 'exact'\nspeed = 3\n"), "same")
    assert result.code == 2
    assert "unknown speed" in result.line("error: ")
    assert not (bench.folder / "run").exists()


@pytest.mark.parametrize(("forward", "whole"), [("41", "69 s, 1.45x"), ("90", "31.95 s, 3.13x")])
def test_service_says_what_a_faster_part_makes_of_the_whole(swiftsure: Run, forward: str, whole: str) -> None:
    result = swiftsure("verify", "service", "--forward", forward, "--total", "100", "--speedup", "4.1")
    assert result.code == 0
    assert f"whole: {whole} end to end" in result.out


class TestGate:
    def test_a_pass_goes_on_and_a_failure_goes_back_openly_and_leaves_a_line(self, bench: Bench) -> None:
        contract, log = bench.contract(EXACT), bench.folder / "log" / "gate.jsonl"
        for change in ("same", "ulp"):
            bench.verify(contract, change)
            result = bench.run(
                "gate", bench.folder / "run", "--contract", contract, "--on-fail", "default", "--log", log, "--who", "release manager"
            )
            assert result.code == (0 if change == "same" else 1)
        assert result.line("FALLBACK ").startswith("FALLBACK from=cmd:")
        assert " to=default reason=case_0.json:_y_[1]" in result.line("FALLBACK ")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert [(line["verdict"], line["action"], line["who"]) for line in lines] == [
            ("PASS", "go on", "release manager"),
            ("FAIL", "fallback", "release manager"),
        ]

    def test_a_contract_that_was_changed_after_measuring_holds(self, bench: Bench) -> None:
        contract = bench.contract(EXACT)
        bench.verify(contract, "same")
        contract.write_text(contract.read_text() + "# softer\n")
        result = bench.run("gate", bench.folder / "run", "--contract", contract)
        assert result.code == 3
        assert "the record was judged by another contract" in result.out

    def test_a_failed_record_of_another_contract_says_both(self, bench: Bench) -> None:
        contract = bench.contract(EXACT)
        bench.verify(contract, "ulp")
        contract.write_text(contract.read_text() + "# softer\n")
        result = bench.run("gate", bench.folder / "run", "--contract", contract)
        assert result.code == 1
        assert "besides: the record was judged by another contract" in result.out

    @pytest.mark.parametrize("argument", [[], ["--contract", "none.toml"], ["--on-fail", "exact"]])
    def test_a_gate_without_its_contract_is_a_usage_error(self, bench: Bench, argument: list[str]) -> None:
        assert bench.run("gate", bench.folder, *argument).code == 2

    def test_a_run_that_never_ended_does_not_pass(self, bench: Bench) -> None:
        contract = bench.contract(EXACT)
        bench.verify(contract, "inactive")
        assert bench.run("gate", bench.folder / "run" / "record.json", "--contract", contract).code == 3


class TestModes:
    """Modes of the built-in engine."""

    @pytest.fixture
    def prompts(self, tmp_path: Path) -> Path:
        path = tmp_path / "prompts.jsonl"
        path.write_text('{"prompt": "one two three", "max_tokens": 6}\n{"prompt": "four five", "max_tokens": 4}\n')
        return path

    @pytest.mark.verdict("PASS", "mode exact of the built-in engine: text, tokens and every logit have default's bits")
    def test_mode_exact_keeps_the_bits_of_default(self, swiftsure: Run, tiny: Path, prompts: Path, tmp_path: Path, promised: str) -> None:
        contract = tmp_path / "exact.toml"
        contract.write_text('kind = "exact"\nowner = "someone"\nunit = "characters"\n')
        both = ("--baseline", "mode:default", "--candidate", "mode:exact", "-m", tiny)
        result = swiftsure("verify", *both, "--contract", contract, "--prompts", prompts, "--report", tmp_path / "run")
        assert (result.code, result.out[: len(promised)]) == (0, promised)
        seen = json.loads((tmp_path / "run" / "record.json").read_text())["observations"]
        assert [case["size"] for case in seen] == [13, 9]
        assert all(case["exact"]["bits_compared"] > 0 for case in seen)

    @pytest.mark.model
    def test_without_inputs_or_prompts_two_modes_are_compared_on_the_prompts_of_prove(
        self, swiftsure: Run, smollm2_path: Path, tmp_path: Path
    ) -> None:
        contract = tmp_path / "fast.toml"
        contract.write_text('kind = "fast"\nowner = "someone"\n[fast.outputs.logits]\nkl_mean = 0.02\n')
        both = ("--baseline", "mode:default", "--candidate", "mode:fast", "-m", smollm2_path)
        result = swiftsure("verify", *both, "--contract", contract, "--report", tmp_path / "run")
        assert result.line("neither --inputs nor --prompts: ").startswith(
            "neither --inputs nor --prompts: the 12 prompts of swiftsure prove"
        )
        seen = json.loads((tmp_path / "run" / "record.json").read_text())
        assert "limiter-greedy" in [case["case"] for case in seen["observations"]]
        assert (result.code, seen["verdict"]["kind"]) == (3, "INCONCLUSIVE")
        assert "name some in [texts] of the contract" in seen["verdict"]["reasons"][0]

    def test_endpoints_and_commands_need_inputs_of_their_own(self, swiftsure: Run, tmp_path: Path) -> None:
        contract = tmp_path / "exact.toml"
        contract.write_text('kind = "exact"\n')
        result = swiftsure("verify", "--baseline", "mode:default", "--candidate", "url:http://127.0.0.1:9/v1", "--contract", contract)
        assert (result.code, "give --inputs DIR or --prompts FILE" in result.err) == (2, True)

    def test_a_suite_that_there_is_not_is_refused_before_anything_runs(
        self, swiftsure: Run, tiny: Path, prompts: Path, tmp_path: Path
    ) -> None:
        contract = tmp_path / "fast.toml"
        contract.write_text('kind = "fast"\n[[task]]\nname = "a"\nsuite = "chess"\nmargin = 0.1\n')
        both = ("--baseline", "mode:default", "--candidate", "mode:fast", "-m", tiny)
        result = swiftsure("verify", *both, "--contract", contract, "--prompts", prompts, "--report", tmp_path / "run")
        assert result.code == 2
        assert "got 'chess'" in result.line("error: ")

    @pytest.mark.model
    @pytest.mark.verdict("INCONCLUSIVE", "mode fast of the built-in engine on thirty items of a task, which do not show three points")
    def test_a_suite_is_answered_by_both_modes_item_by_item(
        self, swiftsure: Run, smollm2_path: Path, tmp_path: Path, promised: str
    ) -> None:
        contract = tmp_path / "fast.toml"
        contract.write_text(
            'kind = "fast"\nowner = "someone"\nunit = "tokens"\nsizes = [16]\n'
            '[texts]\nprose = "visit.txt"\n[fast.outputs.logits]\nkl_max = 2.0\n'
            '[[task]]\nname = "next word"\nsuite = "words"\nmargin = 0.03\nleast_items = 30\n'
        )
        both = ("--baseline", "mode:default", "--candidate", "mode:fast", "-m", smollm2_path)
        result = swiftsure("verify", *both, "--contract", contract, "--report", tmp_path / "run")
        record = json.loads((tmp_path / "run" / "record.json").read_text())
        assert record["tasks"]["next word"]["whole"]["items"] == 30
        assert record["verdict"]["kind"] == promised
        assert record["verdict"]["items_needed"] > 30
        assert result.code == 3
