"""``swiftsure bench tiers``: the curve, the ways to board, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

SMALL = ("--rows", "1,3", "--requests", "6", "--prompt-tokens", "12", "--tokens", "8", "--rounds", "1", "--mode", "exact", "--threads", "2")


def test_table_record_and_page_tell_the_same(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    record, page = tmp_path / "record.json", tmp_path / "page.html"
    result = swiftsure("bench", "tiers", tiny, *SMALL, "--price-hour", "2", "--flood", "0,0.5", "--record", record, "--html", page)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    written = json.loads(record.read_text())
    found = written["results"]
    assert (written["command"], written["mode"]) == ("bench tiers", "exact")
    assert [one["seats"] for one in found["curve"]] == [1, 3]
    assert [(one["seats"], one["boarding"]) for one in found["boarding"]] == [
        (1, "continuous"),
        (3, "at_once"),
        (3, "continuous"),
        (3, "full"),
    ]
    assert all(one["requests"] == 6 for one in (*found["curve"], *found["boarding"]))
    for one in found["curve"]:
        assert one["cost_per_million"] == pytest.approx(2 / 3600 / one["total_tokens_per_s"] * 1e6)
    assert found["claim"]["sentence"] in lines
    assert page.read_text().count("<svg") == 8
    assert found["claim"]["sentence"].partition(" comes")[0].partition(" does")[0].strip('"') in page.read_text()
    assert result.line("EXIT ").startswith("EXIT mode=exact status=ok items=20/20")
    for one in found["floods"]:
        assert one["allowed"] == one["slack"] + 0.1
        kept = {moved <= one["allowed"] for moved in one["rounds_moved"]}
        assert one["verdict"] == {(True,): "kept", (False,): "broken", (False, True): "unsure"}[tuple(sorted(kept))]
        assert one["alone"]["standard_tokens_per_s"] == 0 < one["standard_alone_tokens_per_s"]
        assert one["alone"]["gaps"] > 0 < one["flood"]["gaps"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rows", "4,1", "--mode", "exact"), "rows must be different numbers from 1 to 64 in rising order, got 4,1"),
        (("--rows", "x"), "--rows takes whole numbers such as 1,4,8, got 'x'"),
        (("--rows", "1,8", "--requests", "4"), "requests must be at least 8, got 4"),
        (("--flood", "a"), "--flood takes shares such as 0.1,0.3,0.5, got 'a'"),
        (("--flood", "0.1,11"), "priority_slack must be a share from 0 to 10, got 11.0"),
        (("--load", "0"), "load must be a number above 0, got 0.0"),
        (("--mode", "default"), "bench tiers measures requests that share passes, which mode default does not have here; take mode exact"),
        (("--mode", "exact", "--tokens", "600"), "664 tokens, prompt and answer, do not fit the context of 640 tokens"),
        (("--mode", "exact", "--tokens", "200"), "need 160 key-value blocks at once, there are 20"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_the_reason(swiftsure: Run, tiny: Path, options: tuple[str, ...], says: str) -> None:
    result = swiftsure("bench", "tiers", tiny, *options)
    assert result.code == 2
    assert says in result.err
