"""Tasks of the suite over endpoints: what is asked, what counts as unanswered, and what endpoints cannot answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.contracts.contract import parse_contract
from swiftsure.verify.subjects.endpoint import UrlSubject
from swiftsure.verify.suites import measure_suites
from verify.subjects.stand_in import StandIn, standing_in

TASK = '[[task]]\nname = "sums"\nsuite = "{suite}"\nmargin = 0.1\nleast_items = 6\n'


def measured(suite: str, base: StandIn, other: StandIn) -> tuple[dict[str, Any], list[str]]:
    contract = parse_contract('kind = "fast"\n' + TASK.format(suite=suite))
    sides = {"baseline": UrlSubject(base.url), "candidate": UrlSubject(other.url)}
    try:
        for side in sides.values():
            side.start()
        return measure_suites(contract, sides, lambda done, total: None)
    finally:
        for side in sides.values():
            side.close()


def completion(text: str) -> list[Any]:
    return [json.dumps({"choices": [{"text": text}], "usage": {"prompt_tokens": 12}}).encode()]


def test_endpoints_answer_tasks_of_texts_over_completions() -> None:
    with standing_in() as base, standing_in() as other:
        base.kind = other.kind = "application/json"
        base.pieces, other.pieces = completion(" 7"), completion(" none")
        items, remarks = measured("arithmetic", base, other)
    assert [len(items["sums"]), remarks] == [6, []]
    assert {item.candidate for item in items["sums"]} == {0.0}
    assert len(base.asked) == len(other.asked) == 6
    asked = base.asked[0]
    assert asked["model"] == "tiny"
    assert asked["temperature"] == 0
    assert "messages" not in asked
    assert [one["prompt"] for one in base.asked] == [one["prompt"] for one in other.asked]


def test_an_item_that_only_the_candidate_declines_is_wrong() -> None:
    with standing_in() as base, standing_in() as other:
        base.kind = other.kind = "application/json"
        base.pieces = completion(" 7")
        other.status, other.pieces = 503, [b'{"error": {"message": "busy"}}']
        items, remarks = measured("arithmetic", base, other)
        assert {item.candidate for item in items["sums"]} == {0.0}
        assert remarks == []


def test_a_baseline_that_answers_nothing_is_named_with_its_words() -> None:
    with standing_in() as base, standing_in() as other:
        base.status, base.pieces = 404, [b"no such page"]
        with pytest.raises(UsageError, match=r"the baseline answered none of 6 items; the first, .*: status 404: no such page"):
            measured("arithmetic", base, other)


def test_a_task_of_likelihoods_stays_unmeasured_over_endpoints_and_that_is_said() -> None:
    with standing_in() as base, standing_in() as other:
        items, remarks = measured("words", base, other)
    assert items == {}
    assert remarks == ["Task sums: words needs likelihoods, and endpoints give texts; they answer arithmetic, copying, json, needle, code."]
