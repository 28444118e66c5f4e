"""Contracts: how far distributions may move, and who finds out when they moved farther."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from swiftsure.errors import UsageError
from swiftsure.records.paired import compare_counts
from swiftsure.verify.compare.divergence import Divergence, compare_distributions
from swiftsure.verify.contracts.contract import Contract, load_contract
from swiftsure.verify.contracts.limits import Limits
from swiftsure.verify.contracts.sections import TaskRules
from swiftsure.verify.proving.client import WorkerClient
from swiftsure.verify.proving.mode_run import ModeRun
from swiftsure.verify.proving.summary import judge
from swiftsure.verify.tolerance import judged, judged_tasks, measure_contract, measure_tasks, owed_contracts

WORKER = str(Path(__file__).parent / "dishonest_worker.py")
LIMITS = Limits(kl_mean=0.03, kl_p99=0.25, kl_max=2.0, top1_agreement=0.9, perplexity_ratio=1.03)


def divergence(**values: float) -> Divergence:
    same = {
        "positions": 9,
        "kl_mean": 0.0,
        "kl_p99": 0.0,
        "kl_max": 0.0,
        "worst_position": 0,
        "top1_agreement": 1.0,
        "perplexity_ratio": 1.0,
    }
    return Divergence(**(same | values))  # type: ignore[arg-type]  # an int among floats


def write(path: Path, rows: np.ndarray) -> Path:
    path.write_bytes(rows.astype("<f4").tobytes())
    return path


def test_divergence_is_that_of_the_plain_formulas_in_float64(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(0, 4, (150, 300)).astype(np.float32)
    b = (a + rng.normal(0, 0.2, a.shape)).astype(np.float32)
    ids = rng.integers(0, 300, 150)
    found = compare_distributions(write(tmp_path / "a", a), write(tmp_path / "b", b), list(ids), vocab_size=300).over(10, 150)
    log_p, log_q = (x - np.log(np.exp(x).sum(1, keepdims=True)) for x in (a.astype(np.float64), b.astype(np.float64)))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(1)[10:]
    following = np.arange(10, 149)
    extra = log_p[following, ids[following + 1]] - log_q[following, ids[following + 1]]
    assert found.kl_mean == pytest.approx(kl.mean(), rel=1e-4)
    assert found.kl_p99 == pytest.approx(np.quantile(kl, 0.99), rel=1e-4)
    assert found.kl_max == pytest.approx(kl.max(), rel=1e-4)
    assert found.worst_position == 10 + int(kl.argmax())
    assert found.top1_agreement == (a[10:].argmax(1) == b[10:].argmax(1)).mean()
    assert found.perplexity_ratio == pytest.approx(math.exp(extra.mean()), rel=1e-5)


def test_equal_distributions_do_not_diverge_even_when_logits_are_shifted(tmp_path: Path) -> None:
    a = np.random.default_rng(2).normal(0, 3, (5, 64))
    found = compare_distributions(write(tmp_path / "a", a), write(tmp_path / "b", a + 7), [1, 2, 3, 4, 5], vocab_size=64).over(0, 5)
    assert found.kl_max < 1e-5
    assert found.top1_agreement == 1
    assert found.perplexity_ratio == pytest.approx(1, abs=1e-5)


def test_a_logit_that_is_not_finite_is_within_no_limit(tmp_path: Path) -> None:
    a = np.zeros((2, 8))
    b = a.copy()
    b[1, 3] = np.nan
    found = compare_distributions(write(tmp_path / "a", a), write(tmp_path / "b", b), [1, 2], vocab_size=8).over(0, 2)
    assert any("kl_max" in breach for breach in LIMITS.broken_by(found))


def test_files_of_other_sizes_are_refused(tmp_path: Path) -> None:
    a = write(tmp_path / "a", np.zeros((2, 8)))
    with pytest.raises(ValueError, match="holds 64 bytes, expected 3 rows of 32"):
        compare_distributions(a, a, [1, 2, 3], vocab_size=8)


@pytest.mark.parametrize(
    ("values", "breach"),
    [
        ({"kl_mean": 0.031}, "kl_mean 0.031 against a limit of 0.03"),
        ({"kl_p99": 0.26}, "kl_p99 0.26 against a limit of 0.25"),
        ({"kl_max": 2.1}, "kl_max 2.1 against a limit of 2"),
        ({"top1_agreement": 0.89}, "top1_agreement 0.89 against a limit of 0.9"),
        ({"perplexity_ratio": 1.04}, "perplexity_ratio 1.04 against a limit of 1.03"),
    ],
)
def test_each_limit_can_be_broken_alone(values: dict[str, float], breach: str) -> None:
    assert LIMITS.broken_by(divergence(**values)) == [breach]


def test_a_contract_is_broken_by_one_text_at_one_size_and_names_both() -> None:
    contract = Contract(kind="fast", texts={"prose": "", "code": ""}, sizes=(128, 512), outputs={"logits": LIMITS})
    good, bad = divergence(), divergence(kl_mean=0.5)
    found = judged(contract, {"prose": {128: good, 512: good}, "code": {128: bad, 512: good}})
    assert found["breaches"] == ["code up to 128 tokens: kl_mean 0.5 against a limit of 0.03"]
    assert not found["kept"]
    assert (found["worst"]["text"], found["worst"]["size"]) == ("code", 128)


def test_kept_tolerances_without_a_task_result_are_inconclusive() -> None:
    run = ModeRun(name="fast")
    run.proof.bits_compared = 8
    run.contract = judged(Contract(kind="fast", texts={}, sizes=(128,), outputs={"logits": LIMITS}), {"prose": {128: divergence()}})
    assert judge(run) == ("INCONCLUSIVE", "task not measured")


def test_the_contract_of_fast_reaches_2048_tokens_of_prose_and_of_code() -> None:
    contract = load_contract("fast")
    assert set(contract.texts) == {"prose", "code"}
    assert contract.sizes[-1] == 2048
    assert contract.ranges(600) == [(128, 0, 128), (512, 128, 512), (2048, 512, 600)]


def test_a_contract_of_a_mode_without_limits_is_refused() -> None:
    text = 'kind = "fast"\nsizes = [128, 512]\n[texts]\nprose = "visit.txt"\n[fast.outputs.logits]\nkl_mean = 0.1\n'
    assert load_contract("fast", text).sizes == (128, 512)
    with pytest.raises(UsageError, match="needs sizes and limits of the output logits"):
        load_contract("fast", text.replace("kl_mean = 0.1", ""))


@pytest.fixture
def runs(tiny_path: Path) -> Iterator[dict[str, ModeRun]]:
    """default, and a worker that plays fast by loading default; it drifts when asked to by a text."""
    with ExitStack() as stack:
        found = {}
        for name in ("default", "fast"):
            command = (sys.executable, WORKER, "drift", "fast")
            run = ModeRun(name=name, client=stack.enter_context(WorkerClient(name, on_line=lambda _: None, command=command)))
            run.loaded = run.worker().ask("load", model=str(tiny_path), mode=name, options={"threads": 1, "offline": True, "cache": False})
            found[name] = run
        yield found


def test_distributions_that_drift_break_the_contract_at_every_size_they_drift(runs: dict[str, ModeRun], tmp_path: Path) -> None:
    advanced: list[int] = []
    [(run, owed)] = owed_contracts(runs)
    measure_contract(runs["default"], run, owed, tmp_path, advanced.append)
    contract = run.contract
    assert advanced == [1, 1]
    assert not contract["kept"]
    assert {size for by_size in contract["by_text"].values() for size in by_size} == {"128", "512", "2048"}  # of 640 tokens
    assert contract["by_text"]["prose"]["128"]["kl_max"] == 0  # the drift begins later
    assert contract["by_text"]["prose"]["2048"]["kl_mean"] > 0.03
    assert not list(tmp_path.iterdir())


def entry(lost: int, gained: int, items: int) -> dict[str, object]:
    compared = compare_counts(both=items // 2, lost=lost, gained=gained, neither=items - items // 2 - lost - gained, margin=0.03)
    return {"name": "words", **compared.to_dict()}


def task_run(*entries: dict[str, object]) -> ModeRun:
    run = ModeRun(name="fast")
    run.proof.bits_compared = 8
    run.contract = judged(Contract(kind="fast", texts={}, sizes=(128,), outputs={"logits": LIMITS}), {"prose": {128: divergence()}})
    run.contract |= judged_tasks(entries)
    return run


def test_kept_tolerances_and_a_task_that_is_no_worse_are_proved() -> None:
    assert judge(task_run(entry(9, 8, 900))) == ("PROVED", None)


def test_a_task_that_is_worse_by_more_than_the_margin_fails_the_mode() -> None:
    verdict, reason = judge(task_run(entry(9, 8, 900), entry(90, 10, 900)))
    assert verdict == "FAILED"
    assert reason is not None
    assert reason.startswith("worse than default by more than the contract's margin: task words: -8.9 points (95 % interval ")


def test_too_few_items_are_inconclusive_and_say_how_many_would_decide() -> None:
    verdict, reason = judge(task_run(entry(3, 1, 60)))
    assert verdict == "INCONCLUSIVE"
    assert reason is not None
    assert "items of its kind would decide" in reason


def test_the_contract_of_fast_names_a_task_with_a_margin_and_enough_items() -> None:
    [task] = load_contract("fast").tasks
    assert (task.suite, task.margin) == ("words", 0.03)
    assert task.asked >= task.least_items >= 500


def test_both_modes_answer_the_items_and_unbroken_tolerances_come_first(runs: dict[str, ModeRun]) -> None:
    contract = dataclasses.replace(load_contract("fast"), tasks=(TaskRules(name="words", margin=0.03, least_items=12),))
    fast, advanced = runs["fast"], list[int]()
    measure_tasks(runs["default"], fast, contract, advanced.append)
    assert (fast.contract, advanced) == ({}, [])
    fast.contract = {"kept": True}
    measure_tasks(runs["default"], fast, contract, advanced.append)
    [task] = fast.contract["tasks"]
    assert sum(advanced) == task["items"] == 12
    assert task["lost"] == task["gained"] == 0  # the worker plays fast by loading default
    assert fast.contract["task"].startswith("task words is undecided: +0.0 points against a margin of 3; about ")
