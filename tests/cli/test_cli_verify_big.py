"""``swiftsure verify`` by a contract of kind big, under a memory limit that holds: what runs, and apart from it what is accurate."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Result, Run

from swiftsure.verify.subjects.memory_limit import BY_CGROUP, BY_RLIMIT
from tiny_models import TinyModel, TinySpec

MB = 1_000_000
LIMIT = 200 * MB
HELD = 60 * MB
PROGRAM = f"""
import sys
import time

size, output, side = int(open(sys.argv[1]).read()), sys.argv[2], sys.argv[3]
print("ACTIVE mode=big")
if side == "default" and size > 10:
    sys.exit("REFUSED reason=default takes at most 10 residues")
if size == 500:
    sys.exit("REFUSED reason=500 residues do not divide by this block size")
if size == 4000:
    held = bytearray(2 * {LIMIT})
if size == 8000:
    time.sleep(600)
held = b"x" * {HELD} if side == "big" else b""
open(output + "/score.txt", "w").write("1" if size <= 1000 else "0")
"""
CONTRACT = f"""
kind = "big"
owner = "someone"
unit = "residues"
[big]
memory_limit_bytes = {LIMIT}
time_limit_s = 5
trained_context = 1000
accuracy_output = "score"
"""
ASKED = {10: 6, 500: 1, 1000: 6, 2000: 6, 4000: 1, 8000: 1}


@pytest.fixture
def measured(tmp_path: Path, swiftsure: Run) -> tuple[Result, dict[str, Any], str]:
    """One run over all sizes: what was printed, the record and the page."""
    (tmp_path / "fold.py").write_text(PROGRAM)
    (tmp_path / "cases").mkdir()
    rows = ["file,size"]
    for size, cases in ASKED.items():
        for number in range(cases):
            (tmp_path / "cases" / f"{size}-{number}.txt").write_text(str(size))
            rows.append(f"{size}-{number}.txt,{size}")
    (tmp_path / "cases" / "cases.csv").write_text("\n".join(rows) + "\n")
    attempts = {500, 4000, 8000}
    bars = [f"[[big.size]]\nsize = {size}\naccuracy = 0.6\nmust_run = {str(size not in attempts).lower()}\n" for size in ASKED]
    (tmp_path / "big.toml").write_text(CONTRACT + "".join(bars))
    sides = (f"cmd:{sys.executable} -I -S {tmp_path}/fold.py {{input}} {{output}}/ {side}" for side in ("default", "big"))
    options = [word for name, spec in zip(("--baseline", "--candidate"), sides, strict=True) for word in (name, spec)]
    folder = tmp_path / "run"
    result = swiftsure("verify", *options, "--contract", tmp_path / "big.toml", "--inputs", tmp_path / "cases", "--report", folder)
    return result, json.loads((folder / "record.json").read_text()), (folder / "report.html").read_text()


@pytest.mark.verdict("FAIL", "a size that runs within its memory limit and is not accurate")
def test_each_size_says_how_it_ended_and_apart_from_that_whether_it_was_accurate(
    measured: tuple[Result, dict[str, Any], str], promised: str
) -> None:
    result, record, page = measured
    sizes = {row["size"]: row for row in record["sizes"]}
    ends = {"ran", "refused", "out_of_memory", "timed_out", "failed"}
    counted = {size: {name: row[name] for name in ends if row[name]} for size, row in sizes.items()}
    assert counted == {
        10: {"ran": 6},
        500: {"refused": 1},
        1000: {"ran": 6},
        2000: {"ran": 6},
        4000: {"out_of_memory": 1},
        8000: {"timed_out": 1},
    }
    assert {size: row["accuracy"] for size, row in sizes.items()} == {10: 1, 500: None, 1000: 1, 2000: 0, 4000: None, 8000: None}
    assert [size for size, row in sizes.items() if row["beyond_trained"]] == [2000, 4000, 8000]
    assert (result.code, record["verdict"]["kind"]) == (1, promised)
    words = [finding["words"] for finding in record["findings"] if finding["verdict"] == "FAIL"]
    assert len(words) == 1
    assert words[0].startswith("2,000 residues (beyond the trained context): accuracy 0 over 6 items")
    for column in ("refused", "out of memory", "timed out", "accuracy", "peak memory", "x baseline", "(beyond trained)"):
        assert column in page


def test_the_limit_is_real_peaks_are_measured_and_times_are_compared_only_where_default_fits(
    measured: tuple[Result, dict[str, Any], str],
) -> None:
    _, record, _ = measured
    limit = record["candidate"]["pins"]["memory_limit"]
    assert limit["bytes"] == LIMIT
    assert limit["by"] in (BY_CGROUP, BY_RLIMIT)
    sizes = {row["size"]: row for row in record["sizes"]}
    assert all(HELD < sizes[size]["peak_bytes"] < LIMIT for size in (10, 1000, 2000))
    assert sizes[4000]["peak_bytes"] < LIMIT  # it never held what it asked for
    assert f"{LIMIT:,} bytes" in sizes[4000]["reason"]
    assert sizes[10]["time_ratio"] > 0
    assert {size: row["time_ratio"] for size, row in sizes.items() if size > 10} == {
        500: None,
        1000: None,
        2000: None,
        4000: None,
        8000: None,
    }
    assert {size: row["baseline_ran"] for size, row in sizes.items()} == {10: 6, 500: 0, 1000: 0, 2000: 0, 4000: 0, 8000: 0}


class TestModels:
    """The built-in engine in its own process under the limit."""

    @pytest.fixture
    def verify(self, tmp_path: Path, swiftsure: Run) -> Any:
        """Runs the model against itself under so many bytes, on a prompt that fits its context and one that does not."""
        model = TinyModel(TinySpec(seed=11, context=128)).write_gguf(tmp_path / "tiny.gguf")
        prompts = [{"prompt": "one two three", "max_tokens": 4}, {"prompt": "one two three " * 200, "max_tokens": 4}]
        (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

        def call(limit_bytes: int) -> dict[str, Any]:
            bars = "".join(f"[[big.size]]\nsize = {size}\nmust_run = false\n" for size in (128, 100_000))
            big = f"[big]\nmemory_limit_bytes = {limit_bytes}\ntrained_context = 128\n"
            (tmp_path / "big.toml").write_text(f'kind = "big"\nowner = "someone"\nunit = "tokens"\n{big}{bars}')
            both = ("--baseline", "mode:default", "--candidate", "mode:exact", "-m", model)
            files = ("--contract", tmp_path / "big.toml", "--prompts", tmp_path / "prompts.jsonl", "--report", tmp_path / "run")
            assert swiftsure("verify", *both, *files).code == 3
            return dict(json.loads((tmp_path / "run" / "record.json").read_text()))

        return call

    def test_a_prompt_within_the_context_runs_within_the_limit_and_one_beyond_it_is_refused(self, verify: Any) -> None:
        record = verify(1000 * MB)
        fits, beyond = record["sizes"]
        assert (fits["ran"], beyond["ran"], beyond["refused"]) == (1, 0, 1)
        assert (fits["beyond_trained"], beyond["beyond_trained"]) == (False, True)
        assert 0 < fits["peak_bytes"] < 1000 * MB
        assert fits["time_ratio"] > 0
        assert beyond["time_ratio"] is None
        assert "128" in beyond["reason"]
        assert record["candidate"]["pins"]["memory_limit"]["bytes"] == 1000 * MB

    def test_a_model_that_the_limit_has_no_room_for_is_out_of_memory_at_every_size(self, verify: Any) -> None:
        record = verify(20 * MB)
        assert [(row["ran"], row["out_of_memory"]) for row in record["sizes"]] == [(0, 1), (0, 1)]
