from __future__ import annotations

import json
from pathlib import Path

import pytest

from swiftsure.cli import main
from tiny_models import TinyModel, TinySpec


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(TinySpec(seed=3)).write_gguf(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


def test_two_modes_answer_the_suite_and_items_are_written(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["verify", "tasks", "-m", str(tiny), "--mode", "exact", "--baseline", "default", "--threads", "1"]
    code = main([*arguments, "--task", "words,arithmetic", "--limit", "6", "--out", str(out)])
    printed = capsys.readouterr().out
    assert code == 3  # the same answers, but twelve items decide nothing
    assert "INCONCLUSIVE at 3 points" in printed
    told = json.loads((out / "tasks.json").read_text())
    assert told["comparison"]["items"] == told["comparison"]["items"] <= 12
    assert set(told["seconds_per_correct"]) == {"words", "arithmetic"}
    lines = [(out / f"items-{mode}.jsonl").read_text().splitlines() for mode in ("default", "exact")]
    assert [len(some) for some in lines] == [12, 12]


def test_results_from_elsewhere_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, wrong in (("a.csv", 0), ("b.csv", 100)):
        (tmp_path / name).write_text("id,score\n" + "".join(f"{i},{int(i >= wrong)}\n" for i in range(400)))
    assert main(["verify", "results", str(tmp_path / "a.csv"), str(tmp_path / "a.csv")]) == 0
    assert main(["verify", "results", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 1
    assert "lost 100, gained 0; INFERIOR at 3 points" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tasks", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["tasks", "--margin", "0"], "--margin must lie between 0 and 100 points, got 0"),
        (["tasks", "--task", "poetry"], "a task is one of words"),
        (["tasks", "--mode", "fast", "--baseline", "fast"], "--baseline and --mode must differ, got fast twice"),
    ],
)
def test_bad_arguments_name_rule_and_value(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    assert message in capsys.readouterr().err
