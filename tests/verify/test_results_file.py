"""Scores from elsewhere: both sides answer the same items, or nothing is compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import parse_contract
from swiftsure.verify.results_file import read_results

CONTRACT = parse_contract(
    'kind = "fast"\nunit = "tokens"\nsizes = [10, 100]\n[[task]]\nname = "qa"\nmargin = 0.1\n[[task]]\nname = "own"\noutput = "score"\n'
)


def files(folder: Path, base: str, other: str, suffix: str = ".csv") -> list[str]:
    for name, text in (("a", base), ("b", other)):
        (folder / f"{name}{suffix}").write_text(text)
    return [f"qa={folder}/a{suffix},{folder}/b{suffix}"]


def test_csv_items_pair_by_id_whatever_their_order_with_cluster_and_size(tmp_path: Path) -> None:
    base = "id,score,cluster,size,comment\n1,1,doc,5,x\n2,0,doc,50,\n"
    found = read_results(files(tmp_path, base, "id,score\n2,1\n1,0.5\n"), CONTRACT)["qa"]
    assert [(i.id, i.baseline, i.candidate, i.cluster, i.group) for i in found] == [
        ("1", 1.0, 0.5, "doc", "up to 10 tokens"),
        ("2", 0.0, 1.0, "doc", "over 10 to 100 tokens"),
    ]


def test_json_lines_do_as_well(tmp_path: Path) -> None:
    line = json.dumps({"id": 7, "score": True}) + "\n"
    assert read_results(files(tmp_path, line, line, ".jsonl"), CONTRACT)["qa"][0].baseline == 1.0


@pytest.mark.parametrize(
    ("base", "other", "message"),
    [
        ("id,score\n1,1\n2,1\n", "id,score\n1,1\n", "1 items have a score on one side alone, first '2'"),
        ("id,score\n1,1\n1,0\n", "id,score\n1,1\n", "item '1' comes twice"),
        ("id,score\n1,good\n", "id,score\n1,1\n", "score must be a number, got 'good'"),
        ("id,score\n1,nan\n", "id,score\n1,1\n", "score must be finite, got nan"),
        ("id,points\n1,1\n", "id,score\n1,1\n", "there is no score under 'score'"),
        ("id,score\n", "id,score\n1,1\n", "holds no results"),
    ],
)
def test_what_does_not_pair_or_is_no_score_is_refused(tmp_path: Path, base: str, other: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_results(files(tmp_path, base, other), CONTRACT)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("qa", "--results takes NAME=BASELINE_FILE,CANDIDATE_FILE"),
        ("qa=a.csv", "--results takes"),
        ("other=a.csv,b.csv", "names task 'other'; the contract's are qa, own"),
        ("own=a.csv,b.csv", "has its scores from an output already"),
        ("qa=none.csv,none.csv", "none.csv cannot be read"),
    ],
)
def test_what_names_no_task_or_no_file_is_refused(value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_results([value], CONTRACT)
