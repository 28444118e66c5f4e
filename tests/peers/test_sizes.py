"""Sizes, identity, the record and the page, on peers that only count; and the budget, which decides who goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from benchmarks.peers import page, report
from benchmarks.peers.bridge import Push, groups
from benchmarks.peers.budget import Budget
from benchmarks.peers.cast import Cast
from benchmarks.peers.contract import Contender
from benchmarks.peers.identity import identity
from benchmarks.peers.measure import Prompt, take_turns
from benchmarks.peers.sizes import Cell, Plan, measure_sizes, size_ratios

PROMPTS = (Prompt(name="a", ids=(1, 2, 3)), Prompt(name="b", ids=(4,) * 5))
PLAN = Plan(contexts=(4, 16), prefills=(4, 8), repeats=2, rounds=5, tokens=3, pause_s=0)
CONTENDERS = (
    Contender(name="counts", variant="counts"),
    Contender(name="drafts", variant="counts", plain="counts", choices=(2, 5), shares_passes="the passes are those of counts"),
    Contender(name="wanders", variant="wanders", plain="counts"),
    Contender(name="dies", variant="dies-late"),
    Contender(name="refuses", variant="refuses"),
)


@pytest.fixture
def cast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cast]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    import fake_peer

    module: Any = SimpleNamespace(__name__="fake_peer", CONTENDERS=CONTENDERS, ENVIRONMENT=None, prepare=fake_peer.prepare)
    modules: dict[str, ModuleType] = {"fake": module}
    with Cast(modules, {"fake": Path(sys.executable)}, cache=tmp_path, model_path=Path("m.gguf"), folder=tmp_path / "float32") as opened:
        for member in opened.members:
            opened.load(member, [1, 2], threads=2, context=64)
        yield opened


def run(cast: Cast) -> dict[str, Any]:
    """A whole comparison, in the order of ``benchmarks.peers.run``."""
    budget = Budget(run_s=100, peer_s=100, cell_s=100)
    for member in cast.members:
        if member.reason:
            budget.fail(member.contender.name, member.reason)
    workers = {member.contender.name: member.worker for member in cast.members if member.worker is not None}
    turns = take_turns(workers, PROMPTS, budget, repeats=1, max_tokens=8, pause_s=0)
    found = identity(CONTENDERS, workers, PROMPTS, turns, budget, max_tokens=8)
    cells = measure_sizes({name: worker for name, worker in workers.items() if name != "drafts"}, list(range(16)), PLAN, budget)
    return report.record(
        cast.members,
        PROMPTS,
        turns=turns,
        base="counts",
        choices={"drafts": {"draft_tokens": 5, "decode_tokens_per_s": {"2": 1.0, "5": 2.0}}},
        identity=found,
        cells=cells,
        peak_rss_bytes={"counts": 5_000_000},
        budget=budget,
        machine={"cpu_model": "cpu", "usable_cpus": 2, "system": "system"},
        model={"name": "none"},
        settings={"threads": 2, "sizes": {"contexts": list(PLAN.contexts), "prefills": list(PLAN.prefills)}},
    )


def test_a_whole_run_has_a_result_or_a_reason_in_every_cell(cast: Cast, tmp_path: Path) -> None:
    result = json.loads(json.dumps(run(cast)))
    by_name = {one["name"]: one for one in result["contenders"]}
    counts, wanders, dies, refuses = (by_name[name] for name in ("counts", "wanders", "dies", "refuses"))
    assert (tmp_path / "models" / "fake" / "float32" / "prepared").exists()
    assert counts["startup_s"] > 0
    assert counts["sizes"]["16"]["decode_tokens_per_s"] > 0
    assert len(counts["sizes"]["4"]["ttft_s"]) == PLAN.repeats
    assert len(counts["sizes"]["16"]["decode"]) == PLAN.rounds
    assert counts["sizes"]["8"]["decode"] == []  # only its prefill was asked for
    assert wanders["sizes"]["16"]["base_over_this"]["decode"]["conclusive"]
    assert dies["sizes"]["8"]["prefill_tokens_per_s"] is not None
    assert dies["sizes"]["16"]["reason"] == dies["reason"] == "the process ended with status 3"
    assert refuses["reason"] == "RuntimeError: mode fast is not active"
    assert refuses["medians"] is None
    assert counts["identity"]["rows"]["equal_rows"] == counts["identity"]["rows"]["rows"] - len(PROMPTS)
    assert counts["identity"]["batch"] == {"texts": 4, "leave": 1, "first_at": 2}
    assert wanders["identity"]["batch"] == {"reason": "one sequence at a time"}
    assert wanders["text_first_differs_at"] == {"a": 5, "b": 5}
    assert by_name["drafts"]["identity"]["rows"] == {"reason": "the passes are those of counts"}

    words = report.tables(result)
    assert "6/8 equal, max 0.75, best 2" in words
    assert "3/4 as alone, first left at token 2" in words
    assert "leaves counts on 2/2 prompts, at token 5 first" in words
    assert "RuntimeError: mode fast is not active" in words
    assert "[1] the process ended with status 3" in words

    page.write(result, tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text()
    assert html.count("<svg") == 2 * 3  # two plots for each engine that was measured at a size
    assert "RuntimeError: mode fast is not active" in html


def test_a_turn_that_would_take_too_long_is_not_begun() -> None:
    now = [0.0]
    budget = Budget(run_s=100, peer_s=50, cell_s=30, clock=lambda: now[0])
    assert budget.why_not("p", 30) is None
    assert budget.why_not("p", 31) == "too slow: a turn of about 31 s, 30 s allowed"
    budget.spend("p", "c", 9)
    assert budget.repeat("p", "c", 1)
    assert not budget.repeat("p", "c", 2)  # past a third of the cell's seconds
    budget.spend("p", "c", 32)
    assert budget.why_not("p", 10) == "too slow: 41 of its 50 s were spent"
    assert budget.why_not("q", 10) is None
    now[0] = 95
    assert budget.why_not("q", 10) == "the run's 100 s were over"
    budget.fail("q", "it died")
    budget.fail("q", "and again")
    assert budget.why_not("q") == "it died"


def test_ratios_of_sizes_pair_turns_and_borrow_noise_where_pairs_are_few() -> None:
    mood = (1.0, 3.0, 1.0, 2.0, 1.0)
    base, peer = ({4: Cell(size=4), 8: Cell(size=8)} for _ in range(2))
    for speed in mood:
        base[4].decode.append((10, 1 * speed))
        peer[4].decode.append((20, 6 * speed))
    base[8].decode, peer[8].decode = base[4].decode[:3], peer[4].decode[:3]
    found = size_ratios({"base": base, "peer": peer}, "base", "peer", "decode")
    assert found[4] is not None
    assert found[4].value == pytest.approx(3.0)
    assert found[4].conclusive
    assert found[8] is not None
    assert found[8].value == pytest.approx(3.0)
    assert found[8].spread == "noise"


def test_an_engine_that_calls_back_works_only_while_it_is_asked() -> None:
    steps: list[int] = []

    def generate(push: Push) -> None:
        for token in range(5):
            steps.append(token)
            if not push([token]):
                return
        raise ValueError("five is enough")

    stream = groups(generate)
    assert steps == []
    assert next(stream) == [0]
    assert next(stream) == [1]
    assert steps == [0, 1]
    stream.close()
    assert steps == [0, 1]
    with pytest.raises(ValueError, match="five is enough"):
        list(groups(generate))


def test_an_engine_that_does_not_notice_the_end_still_ends() -> None:
    def generate(push: Push) -> None:
        for token in range(3):
            push([token])

    stream = groups(generate)
    assert next(stream) == [0]
    stream.close()
