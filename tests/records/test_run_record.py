from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import SCHEMA, RunRecord, write_json, write_text


def record() -> RunRecord:
    return RunRecord(
        command="run",
        arguments=("run", "-p", "hello"),
        status="ok",
        mode="exact",
        numerics="cpu1",
        isa="avx2",
        threads=2,
        pins={"model": {"sha256": "ab" * 32}},
        machine=read_machine(),
        levers={"speculation": {"state": "on", "occasions": 3}},
        phases_s={"load": 0.5, "decode": 1.25},
        peak_rss_bytes=1000,
        results={"tokens": 12, "rate": float("inf")},
    )


def test_record_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "record.json"
    record().write(path)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert read["schema"] == SCHEMA
    assert read["levers"]["speculation"]["occasions"] == 3
    assert read["phases_s"]["decode"] == 1.25
    assert read["arguments"] == ["run", "-p", "hello"]
    assert read["machine"]["usable_cpus"] >= 1


def test_keys_of_a_record_are_stable() -> None:
    assert list(record().to_dict()) == [
        "schema", "created", "command", "arguments", "status", "mode", "numerics", "isa", "threads", "thread_choice", "pins", "machine",
        "levers", "phases_s", "peak_rss_bytes", "results",
    ]  # fmt: skip


def test_infinity_and_nan_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": [float("nan"), 1.5], "b": {"c": float("-inf")}})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": [None, 1.5], "b": {"c": None}}


def test_a_value_that_cannot_be_written_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"old": True})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "half \ud800")
    assert json.loads(path.read_text()) == {"old": True}
    assert os.listdir(tmp_path) == ["x.json"]


def test_a_reader_never_meets_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    texts = ("a" * 200_000, "b" * 200_000)
    write_text(path, texts[0])
    done = threading.Event()
    seen: set[str] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(20):
        write_text(path, texts[i % 2])
    done.set()
    reader.join()
    assert seen <= set(texts)
