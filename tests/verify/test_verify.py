"""The run itself, with subjects that are made of a function."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swiftsure.errors import SwiftsureError, UsageError
from swiftsure.signals import Terminated
from swiftsure.verify.contracts.contract import Contract, parse_contract
from swiftsure.verify.subjects.base import Activation, Case, Trial
from swiftsure.verify.verify import VerifyOptions, verify

EXACT = parse_contract('kind = "exact"\nowner = "someone"\n')
CASES = [Case(id=name) for name in "abc"]


class Fake:
    """Answers each case by ``answer``; counts what was asked, in a list that both sides may share."""

    def __init__(
        self, spec: str, answer: Callable[[Case], float] = lambda case: 1.0, *, state: str = "active", log: list[str] | None = None
    ):
        self.spec, self._answer, self._state = spec, answer, state
        self.log = log if log is not None else []
        self.closed = False

    def start(self) -> Activation:
        return Activation(state=self._state, reason="as it was told")  # type: ignore[arg-type]

    def run(self, case: Case) -> Trial:
        self.log.append(f"{self.spec} {case.id}")
        return Trial(case=case, status="ran", outputs={"y": np.array([self._answer(case)])}, wall_s=1.0)

    def pins(self) -> Mapping[str, Any]:
        return {"version": "1"}

    def close(self) -> None:
        self.closed = True


def raising(error: BaseException, at: str) -> Callable[[Case], float]:
    def answer(case: Case) -> float:
        if case.id == at:
            raise error
        return 1.0

    return answer


def run(base: Fake, other: Fake, contract: Contract = EXACT, **options: Any) -> Any:
    found = verify(contract, base, other, CASES, VerifyOptions(**options))
    assert base.closed
    assert other.closed
    return found


def test_sides_take_turns_and_the_first_of_a_pair_alternates() -> None:
    log: list[str] = []
    fast = parse_contract('kind = "fast"\nowner = "someone"\n[fast.outputs.y]\nabsolute = 1\n')
    run(Fake("base", log=log), Fake("other", log=log), fast, repeats=2)
    assert log[:4] == ["base a", "other a", "other a", "base a"]


def test_exact_asks_the_baseline_twice_even_without_repeats() -> None:
    base = Fake("base")
    assert run(base, Fake("other")).kind == "PASS"
    assert base.log == ["base a", "base a", "base b", "base b", "base c", "base c"]


@pytest.mark.parametrize(
    ("error", "words"), [(KeyboardInterrupt(), "interrupted after 1 of 3"), (Terminated(), "ended by SIGTERM after 1 of 3")]
)
def test_an_interrupted_run_is_not_finished_and_keeps_what_it_found(error: BaseException, words: str) -> None:
    found = run(Fake("base"), Fake("other", raising(error, "b")))
    assert (found.kind, found.exit_code) == ("NOT_FINISHED", 3)
    assert words in found.record["verdict"]["reasons"][0]
    assert [seen["case"] for seen in found.record["observations"]] == ["a"]


def test_a_difference_that_was_seen_fails_though_the_run_was_interrupted() -> None:
    def answer(case: Case) -> float:
        if case.id == "b":
            raise KeyboardInterrupt
        return 2.0

    assert run(Fake("base"), Fake("other", answer)).kind == "FAIL"


def test_a_subject_that_breaks_ends_the_run_not_finished() -> None:
    found = run(Fake("base"), Fake("other", raising(SwiftsureError("the launcher broke"), "b")))
    assert found.record["verdict"]["reasons"] == ["ended at case b, 1 of 3 done: the launcher broke"]


def test_a_candidate_that_is_not_active_is_never_run() -> None:
    base, other = Fake("base"), Fake("other", state="not_active")
    found = run(base, other)
    assert (found.kind, base.log, other.log) == ("NOT_ACTIVE", [], [])


def test_the_digest_of_the_contract_is_written_before_anything_is_started(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Looking(Fake):
        def start(self) -> Activation:
            seen.append(json.loads((tmp_path / "record.json").read_text()))
            return super().start()

    run(Looking("base"), Fake("other"), folder=tmp_path)
    assert seen[0]["contract"]["digest"] == EXACT.digest
    assert seen[0]["verdict"]["kind"] == "NOT_FINISHED"
    assert (tmp_path / "contract.toml").read_text() == EXACT.source


def test_cases_of_one_name_and_no_repeats_are_refused() -> None:
    with pytest.raises(UsageError, match="ids of their own"):
        verify(EXACT, Fake("a"), Fake("b"), [Case(id="x"), Case(id="x")], VerifyOptions())
    with pytest.raises(UsageError, match="--repeats must be at least 1, got 0"):
        VerifyOptions(repeats=0)
