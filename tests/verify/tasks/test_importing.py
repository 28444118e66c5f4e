from __future__ import annotations

import json
from pathlib import Path

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.tasks.comparing import compare_suites
from swiftsure.verify.tasks.importing import Columns, read_results
from swiftsure.verify.tasks.items import ItemResult
from swiftsure.verify.tasks.run import SuiteResult


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_samples_of_lm_eval_pair_by_document_and_its_hash(tmp_path: Path) -> None:
    sample = {"doc_id": 7, "doc": {"q": "x"}, "target": "1", "filter": "none", "doc_hash": "ab" * 32, "acc": 1.0, "acc_norm": 0.0}
    [found] = read_results(write(tmp_path / "samples_arc_easy_2026-01-01T00.jsonl", sample))
    assert (found.id, found.task, found.score) == ("7:abababababab", "none", 1.0)
    [named] = read_results(tmp_path / "samples_arc_easy_2026-01-01T00.jsonl", Columns(score="acc_norm"))
    assert named.score == 0.0


def test_any_csv_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", "target,ok,model,family", "t1,true,rf3,a", "t2,0,rf3,a")
    found = read_results(path, Columns(id="target", score="ok", cluster="family", group="model"))
    assert [(r.id, r.score, r.cluster, r.task) for r in found] == [("t1", 1.0, "a", "rf3"), ("t2", 0.0, "a", "rf3")]


def test_what_the_suite_wrote_is_read_back(tmp_path: Path) -> None:
    results = (ItemResult(task="t", id="1", cluster="c", score=0.5, size=9, wall_s=0.25, answer="x, y"),)
    for name in ("items.jsonl", "items.csv"):
        [found] = read_results(SuiteResult(subject="s", results=results).write(tmp_path / name))
        assert (found.task, found.id, found.cluster, found.score, found.size, found.wall_s) == ("t", "1", "c", 0.5, 9, 0.25)


def test_two_files_are_compared_pooled_and_by_setting(tmp_path: Path) -> None:
    rows = [{"id": i, "score": int(i % 2 == 0), "group": "long" if i < 100 else "short"} for i in range(1000)]
    worse = [row | {"score": 0} if row["id"] < 60 else row for row in rows]
    sides = [
        SuiteResult(subject=name, results=tuple(read_results(write(tmp_path / name, *these))))
        for name, these in (("a.jsonl", rows), ("b.jsonl", worse))
    ]
    compared = compare_suites(*sides, margin=0.05)
    assert compared.found.lost == 30
    assert compared.found.worst_group == "long"
    assert compared.found.groups["long"].decision == "inferior"
    assert "INFERIOR at 5 points" in compared.lines()[1]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "line 1 is not JSON"),
        ([[1]], "line 1: a result must be an object"),
        ([{"score": 1}], "line 1: there is no id under 'id'; columns are score"),
        ([{"id": 1}], "line 1: there is no score under 'score'; columns are id"),
        ([{"id": 1, "score": "good"}], "score must be a number, got 'good'"),
        ([{"id": 1, "score": "nan"}], "score must be finite, got nan"),
        ([{"doc_id": 1, "resps": []}], "none of the known metrics acc, "),
        ([], "holds no results"),
    ],
)
def test_what_is_not_understood_is_named_with_its_line(tmp_path: Path, lines: list[object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_results(write(tmp_path / "r.jsonl", *lines))


def test_a_file_of_another_kind_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"results are .jsonl, .json or .csv, got r.txt"):
        read_results(tmp_path / "r.txt")
    with pytest.raises(UsageError, match="cannot be read"):
        read_results(tmp_path / "r.csv")
