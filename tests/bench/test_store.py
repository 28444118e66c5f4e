"""The folder of a bench: everything that was measured comes back, whatever the process died of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from exchanges import exchange, facts

from swiftsure.bench.exchange import Arrival, Usage
from swiftsure.bench.protocol.rows import from_row, to_line, to_row
from swiftsure.bench.protocol.store import CELLS, BenchFolder, read_bench, round_file
from swiftsure.errors import UsageError


def measured(folder: Path, count: int = 3) -> None:
    with BenchFolder(folder, {"settings": {}}) as store:
        store.begin_round()
        for repeat in range(count):
            store.append(exchange(repeat=repeat))
        store.add_cell(round=1, row="cold", users=1, prompts=["p"], facts=facts())


def test_an_exchange_survives_its_line_whole() -> None:
    before = exchange(
        text="naïve 東京 \u2028 \ud800",
        error="in_band",
        settings_dropped=("stream_options",),
        arrivals=(Arrival(at_s=0.123456, share="reasoning", characters=3), Arrival(at_s=0.2, share="tool_call", characters=0)),
        usage=Usage(prompt_tokens=5, output_tokens=None, reasoning_tokens=2, cached_tokens=1),
    )
    assert from_row(json.loads(to_line(before))) == before
    assert from_row(to_row(exchange(usage=None, last_token_s=None))) == exchange(usage=None, last_token_s=None)


def test_a_line_is_flat() -> None:
    for name, value in to_row(exchange()).items():
        assert not isinstance(value, dict), name
        assert not (isinstance(value, list) and any(isinstance(item, dict | list) for item in value)), name


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    measured(tmp_path)
    bench = read_bench(tmp_path / "bench.json")
    assert [found.trial.repeat for found in bench.exchanges] == [0, 1, 2]
    assert bench.cells[0].facts == facts()
    assert (bench.cells[0].row, bench.cells[0].part, bench.cells[0].prompts) == ("cold", 1, ("p",))
    assert bench.rounds == (1,)


def test_a_torn_last_line_is_dropped_with_words_and_the_next_one_stands_alone(tmp_path: Path) -> None:
    measured(tmp_path)
    path = tmp_path / round_file(1)
    path.write_bytes(path.read_bytes()[:-20])
    said: list[str] = []
    assert len(read_bench(tmp_path, say=said.append).exchanges) == 2
    assert "the last line was cut off" in said[0]
    with BenchFolder(tmp_path, {}) as store:
        number, known = store.begin_round()
        assert (number, len(known)) == (1, 2)
        store.append(exchange(repeat=2))
    assert [found.trial.repeat for found in read_bench(tmp_path).exchanges] == [0, 1, 2]


def test_a_damaged_line_in_the_middle_is_refused_by_file_and_line(tmp_path: Path) -> None:
    measured(tmp_path)
    path = tmp_path / round_file(1)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{}\n" + lines[2])
    with pytest.raises(UsageError, match=r"round-1.jsonl, line 2: an exchange of schema"):
        read_bench(tmp_path)


def test_a_round_that_ended_is_followed_by_the_next(tmp_path: Path) -> None:
    for expected in (1, 2):
        with BenchFolder(tmp_path, {}) as store:
            assert store.begin_round() == (expected, ())
            store.append(exchange(round=expected))
            store.end_round()
    assert read_bench(tmp_path).rounds == (1, 2)


def test_a_cell_that_was_interrupted_has_parts(tmp_path: Path) -> None:
    measured(tmp_path)
    measured(tmp_path)
    assert [cell.part for cell in read_bench(tmp_path).cells] == [1, 2]
    assert len((tmp_path / CELLS).read_text().splitlines()) == 2


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    with BenchFolder(tmp_path, {}), pytest.raises(UsageError, match="another process is measuring"):
        BenchFolder(tmp_path, {})


@pytest.mark.parametrize(
    ("text", "words"), [("{", "cannot be read"), ("[]", "got 'list'"), ('{"schema": "x"}', "must be of schema swiftsure.bench/1")]
)
def test_a_folder_of_something_else_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_bench(tmp_path)
    with pytest.raises(UsageError, match="holds no bench"):
        read_bench(tmp_path / "elsewhere")
