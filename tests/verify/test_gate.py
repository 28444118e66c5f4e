"""The gate: what a record, a date and the metrics of a running server together allow."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import Contract, parse_contract
from swiftsure.verify.contracts.sections import MetricLimit
from swiftsure.verify.gate import decide_gate, metric_value, read_metrics
from swiftsure.verify.verification import Verification

TODAY = datetime.date(2026, 12, 2)
PAGE = """# HELP errors_total x
# TYPE errors_total counter
errors_total{kind="a"} 3
errors_total{kind="b"} 4
fused_calls_total 12
not_errors_total 99
"""


def contract(text: str = "") -> Contract:
    return parse_contract(f'kind = "exact"\nowner = "someone"\n{text}')


def record(owed: Contract, kind: str = "PASS", **more: Any) -> Verification:
    verdict = {"kind": kind, "reasons": ["so it was"], "exit_code": {"PASS": 0, "FAIL": 1}.get(kind, 3), "items_needed": None}
    return Verification(record={"verdict": verdict, "contract": {"digest": owed.digest}, "candidate": {"spec": "mode:fast"}} | more)


@pytest.mark.parametrize(("kind", "code"), [("PASS", 0), ("FAIL", 1), ("HOLD", 3), ("COMPARED_ONLY", 3), ("NOT_ACTIVE", 3)])
def test_the_verdict_of_the_record_decides(kind: str, code: int) -> None:
    owed = contract()
    assert decide_gate(record(owed, kind), owed, TODAY).verdict.exit_code == code


def test_a_recheck_date_that_has_come_holds_and_goes_back_only_where_the_contract_says_so() -> None:
    due = contract("recheck = 2026-12-02\n")
    found = decide_gate(record(due), due, TODAY)
    assert (found.verdict.kind, found.fallback) == ("HOLD", None)
    asked = contract('recheck = 2026-12-02\n[recovery]\nwhen = ["recheck"]\nto = "mode:default"\n')
    found = decide_gate(record(asked), asked, TODAY)
    assert (found.fallback, found.to) == ("recheck", "mode:default")
    later = contract("recheck = 2026-12-03\n")
    assert decide_gate(record(later), later, TODAY).verdict.kind == "PASS"


def test_a_reason_that_record_and_gate_share_is_said_once() -> None:
    owed = parse_contract('kind = "exact"\n')
    words = "nobody owns it: the contract names no owner"
    verdict = {"kind": "HOLD", "reasons": ["no tolerance is set", words], "exit_code": 3, "items_needed": None}
    assert decide_gate(record(owed, verdict=verdict), owed, TODAY).verdict.reasons == ("no tolerance is set", words)


def test_nobody_owning_it_holds() -> None:
    owed = parse_contract('kind = "exact"\n')
    assert decide_gate(record(owed), owed, TODAY).verdict.kind == "HOLD"


@pytest.mark.parametrize(
    ("limits", "kind", "words"),
    [
        ('name = "errors_total"\nat_most = 7', "PASS", ""),
        ('name = "errors_total"\nat_most = 6', "FAIL", "metric errors_total is 7, at most 6 is allowed"),
        ('name = "fused_calls_total"\nat_least = 13', "FAIL", "metric fused_calls_total is 12, at least 13 is needed"),
        ('name = "absent_total"\nat_most = 1', "HOLD", "metric absent_total is missing"),
        ("pattern = 'kind=\"b\"} (\\d+)'\nat_most = 3", "FAIL", "is 4, at most 3"),
    ],
)
def test_metrics_of_a_running_server_are_held_to_their_limits(limits: str, kind: str, words: str) -> None:
    owed = contract(f"[recovery]\nwhen = ['metric']\n[[recovery.metric]]\n{limits}\n")
    found = decide_gate(record(owed), owed, TODAY, PAGE)
    assert found.verdict.kind == kind
    assert words in " ".join(found.verdict.reasons)
    assert found.fallback == (None if kind == "PASS" else "metric")


def test_an_activation_metric_below_its_least_is_not_active() -> None:
    owed = contract('[activation]\nurl = "http://a"\nmetric = "fused_calls_total"\nat_least = 100\n')
    found = decide_gate(record(owed), owed, TODAY, PAGE)
    assert (found.verdict.kind, found.fallback) == ("NOT_ACTIVE", "not_active")
    assert found.fallback_line() == (
        "FALLBACK from=mode:fast to=default reason=not_active:_metric_fused_calls_total_is_12,_at_least_100_is_needed"
    )


def test_looking_at_metrics_that_no_contract_limits_is_no_pass() -> None:
    owed = contract()
    assert decide_gate(record(owed), owed, TODAY, PAGE).verdict.kind == "HOLD"


def test_a_metric_that_is_no_number_is_within_no_limit() -> None:
    value = metric_value("x NaN\n", MetricLimit(metric="x", at_most=1.0))
    assert value is not None
    assert not value <= 1.0


@pytest.mark.parametrize("url", ["ftp://a", "localhost:9", "http://127.0.0.1:9/metrics"])
def test_metrics_that_cannot_be_read_are_said_to_be(url: str) -> None:
    with pytest.raises(UsageError, match=r"begins with http|cannot be read"):
        read_metrics(url)
