"""``swiftsure prove``: the main job from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

KEYS = {
    "mode", "verdict", "reason", "decode_tokens_per_s", "ttft_s", "end_to_end_s", "peak_rss_bytes", "memory_ratio", "bits_compared",
    "bits_differing", "levers", "speedup", "worst", "by_kind", "by_size",
}  # fmt: skip


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "the cat sat on the mat and", "max_tokens": 24}, {"prompt": "hello", "temperature": 0.7, "max_tokens": 24}]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_prove_prints_a_table_and_writes_json_and_a_report(swiftsure: Run, tiny: Path, prompts: Path, tmp_path: Path) -> None:
    report, path = tmp_path / "report", tmp_path / "prove.json"
    result = swiftsure("prove", tiny, "--modes", "default,exact", "--prompts", prompts, "--rounds", "1", "--json", path, "--report", report)
    assert result.code == 0, result.err
    words = [line.split() for line in result.out.splitlines()]
    verdicts = {line[0]: line[1] for line in reversed(words) if len(line) > 1 and line[1].isupper()}  # the table comes first
    assert [verdicts[mode] for mode in ("default", "exact", "fast", "big")] == ["PROVED", "PROVED", "FAILED", "NOT_ACTIVE"]
    facts = json.loads(path.read_text())
    assert {"modes", "machine", "pins", "upstream"} <= facts.keys()
    assert all(mode.keys() >= KEYS for mode in facts["modes"])
    assert [(mode["bits_compared"] > 0, mode["bits_differing"]) for mode in facts["modes"][:3]] == [(True, 0)] * 3
    assert (report / "report.html").stat().st_size > 1000
    assert str(report / "report.html") in result.line("report: ")


def test_a_narrow_terminal_loses_no_verdict(
    swiftsure: Run, tiny: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    result = swiftsure("prove", tiny, "--modes", "default,exact", "--prompts", prompts, "--rounds", "1", "--report", tmp_path)
    assert result.code == 0, result.err
    assert result.out.count("PROVED") >= 2
    assert "…" not in result.out


def test_only_a_mode_that_is_named_and_not_active_fails_the_job(swiftsure: Run, tiny: Path, prompts: Path, tmp_path: Path) -> None:
    result = swiftsure("prove", tiny, "--prompts", prompts, "--rounds", "1", "--modes", "default,big", "--report", tmp_path)
    assert result.code == 3
    assert "mode=fast" in result.err


def test_what_cannot_be_written_is_said_before_anything_runs(
    swiftsure: Run, tiny: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, named in (
        (["--json", tmp_path], tmp_path),
        (["--json", tiny / "prove.json"], tiny),
        (["--report", tiny], tiny),
    ):
        monkeypatch.chdir(tmp_path)
        result = swiftsure("prove", tiny, "--prompts", prompts, *arguments)
        assert result.code == 1
        assert result.err.startswith(f"error: {named}: ")
        assert result.out == ""


def test_names_with_markup_are_shown_as_they_are(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": "hello", "name": "[red]one[/nope]", "kind": "<b>[/b]", "max_tokens": 4}))
    result = swiftsure("prove", tiny, "--modes", "default,exact", "--prompts", path, "--rounds", "1", "--report", tmp_path)
    assert result.code == 0, result.err
    assert "<b>[/b]" in result.out
    assert "<b>[/b]" not in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modes", "turbo"], "unknown mode 'turbo'"),
        (["--rounds", "0"], "rounds must be at least 1, got 0"),
        (["--time-budget", "-1"], "time_budget_s must be above 0"),
        (["--prompts", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_a_usage_error_is_refused_before_anything_runs(swiftsure: Run, tiny: Path, arguments: list[str], message: str) -> None:
    result = swiftsure("prove", tiny, *arguments)
    assert result.code == 2
    assert message in result.line("error: ")
