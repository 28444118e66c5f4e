"""The upstream measurement around a stand-in for transformers: an interpreter that writes what the child process would."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

import swiftsure
from swiftsure.errors import NotActiveError, SwiftsureError, UsageError
from swiftsure.verify.upstream.agreement import Agreement, UpstreamResult, compare, measure_upstream, run_transformers

VOCAB = 8


def logits_of(ids: list[int]) -> NDArray[np.float32]:
    """A model in which token t is followed by t + 1."""
    rows = np.zeros((len(ids), VOCAB), dtype=np.float32)
    rows[np.arange(len(ids)), (np.array(ids) + 1) % VOCAB] = 3.0
    return rows


STAND_IN = f"""#!{sys.executable}
import json, sys
from pathlib import Path
import numpy as np

assert sys.argv[1] == "-I", sys.argv
job = json.loads(Path(sys.argv[3]).read_text())
items = []
for index, prompt in enumerate(job["prompts"]):
    forced = job["forced"]
    tokens = forced[index] if forced else [(prompt[-1] + 1 + j) % {VOCAB} for j in range(job["new_tokens"])]
    ids = [*prompt, *tokens[:-1]]
    rows = np.zeros((len(ids), {VOCAB}), dtype=np.float32)
    rows[np.arange(len(ids)), (np.array(ids) + 1) % {VOCAB}] = 3.0
    np.save(Path(job["output"]) / f"rows_{{index}}.npy", rows[len(prompt) - 1 :])
    items.append({{"tokens": tokens, "ttft_s": 0.5, "decode_s": 2.0}})
result = {{"versions": {{"transformers": "5.0", "torch": "2.0", "python": "3"}}, "load_s": 1.0, "peak_rss_bytes": 7, "items": items}}
(Path(job["output"]) / "result.json").write_text(json.dumps(result))
"""


def interpreter(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    return interpreter(tmp_path, STAND_IN)


def test_speeds_are_medians_and_every_row_is_compared(stand_in: str, tmp_path: Path) -> None:
    result = measure_upstream(tmp_path / "m.gguf", [[1, 2, 3, 4], [5], [6, 7]], 5, 2, python=stand_in, default_logits=logits_of)
    assert result.agreement == Agreement(
        rows=15, largest_difference=0.0, mean_kl=pytest.approx(0.0, abs=1e-12), top1_agreement=1.0, decided_rows=15, decided_differing=0
    )
    assert (result.ttft_s, result.decode_tokens_per_s, result.prefill_tokens_per_s) == (0.5, 2.0, 4.0)
    assert (result.prompts, result.new_tokens, result.threads, result.peak_rss_bytes) == (3, 5, 2, 7)
    facts = json.loads(json.dumps(result.to_dict()))
    assert facts["library"] == "transformers"
    assert facts["versions"]["torch"] == "2.0"
    assert facts["agreement"]["rows"] == 15
    assert "transformers 5.0, torch 2.0, float32" in result.line()
    assert "0 of 15 decided rows differ" in result.line()


def test_a_difference_is_counted_where_it_matters(stand_in: str, tmp_path: Path) -> None:
    def ours(ids: list[int]) -> NDArray[np.float32]:
        rows = logits_of(ids)
        rows[-1] = rows[-1][::-1]  # another best token in the last row
        rows[0, 0] += 0.25
        return rows

    with run_transformers(tmp_path / "m.gguf", prompts=[[1]], new_tokens=4, threads=1, python=stand_in) as run:
        agreement = compare(run, ours)
    assert agreement.rows == 4
    assert agreement.largest_difference == 3.0
    assert agreement.top1_agreement == 0.75
    assert (agreement.decided_rows, agreement.decided_differing) == (4, 1)
    assert agreement.mean_kl > 0.1


def test_a_given_continuation_is_scored_as_given(stand_in: str, tmp_path: Path) -> None:
    with run_transformers(tmp_path, prompts=[[1, 2]], forced=[[7, 7, 7]], threads=1, python=stand_in) as run:
        assert run.items[0].tokens == (7, 7, 7)
        assert np.array_equal(run.items[0].rows(), logits_of([1, 2, 7, 7])[1:])


def test_another_vocabulary_is_refused(stand_in: str, tmp_path: Path) -> None:
    with (
        run_transformers(tmp_path / "m.gguf", prompts=[[1]], new_tokens=2, threads=1, python=stand_in) as run,
        pytest.raises(SwiftsureError, match=r"\(2, 8\), we give \(2, 7\): not the same vocabulary"),
    ):
        compare(run, lambda ids: logits_of(ids)[:, :7])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "#!/bin/sh\necho \"No module named 'torch'\" >&2\nexit 4\n",
            NotActiveError,
            r"NOT MEASURED \(No module named 'torch' in ",
        ),
        ("#!/bin/sh\necho boom >&2\nexit 1\n", SwiftsureError, "transformers ended with status 1: boom"),
        ("#!/bin/sh\nkill -9 $$\n", SwiftsureError, "transformers ended with status -9: no message"),
    ],
    ids=["library missing", "failed", "killed"],
)
def test_a_run_that_fails_says_why(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        measure_upstream(tmp_path / "m.gguf", [[1]], 2, 1, python=interpreter(tmp_path, text), default_logits=logits_of)


def test_an_interpreter_that_is_not_there_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotActiveError, match=r"upstream: NOT MEASURED \(.*nowhere: No such file or directory\)"):
        measure_upstream(tmp_path / "m.gguf", [[1]], 2, 1, python=str(tmp_path / "nowhere"), default_logits=logits_of)


@pytest.mark.parametrize(("prompts", "new_tokens"), [([], 4), ([[1], []], 4), ([[1]], 1)], ids=["no prompt", "empty prompt", "one token"])
def test_nothing_to_measure_is_a_usage_error(tmp_path: Path, prompts: list[list[int]], new_tokens: int) -> None:
    with pytest.raises(UsageError):
        measure_upstream(tmp_path / "m.gguf", prompts, new_tokens, 1, default_logits=logits_of)


def test_the_line_shows_the_share_of_equal_best_tokens() -> None:
    agreement = Agreement(rows=200, largest_difference=0.0123, mean_kl=1e-7, top1_agreement=0.995, decided_rows=190, decided_differing=0)
    result = UpstreamResult(
        versions={"transformers": "5", "torch": "2"}, dtype="float32", threads=2, prompts=1, new_tokens=2, load_s=1.0, ttft_s=1.0,
        prefill_tokens_per_s=1.0, decode_tokens_per_s=1.0, peak_rss_bytes=1, agreement=agreement,
    )  # fmt: skip
    assert "largest logit difference 0.012, mean KL 1e-07, same best token 99.50% of 200 rows" in result.line()


def test_a_logit_that_is_no_number_is_not_taken_for_agreement(stand_in: str, tmp_path: Path) -> None:
    def ours(ids: list[int]) -> NDArray[np.float32]:
        rows = logits_of(ids)
        rows[0, 0] = np.nan
        return rows

    with run_transformers(tmp_path / "m.gguf", prompts=[[1]], new_tokens=4, threads=1, python=stand_in) as run:
        assert np.isnan(compare(run, ours).largest_difference)


def test_our_side_runs_on_the_instruction_set_and_threads_asked_for(stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    @contextmanager
    def load(model: str, *, mode: str, threads: int, isa: str | None) -> Iterator[SimpleNamespace]:
        asked.extend((model, mode, threads, isa))
        yield SimpleNamespace(logits=logits_of)

    monkeypatch.setattr(swiftsure, "load", load, raising=False)
    measure_upstream(tmp_path / "m.gguf", [[1]], 2, 3, python=stand_in, isa="portable")
    assert asked == [str(tmp_path / "m.gguf"), "default", 3, "portable"]
