"""The comparison with other engines: workers, turns, ratios and words, on a peer that only counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers.__main__ import main
from benchmarks.peers.adapters import adapters
from benchmarks.peers.budget import Budget
from benchmarks.peers.contract import Contender, Environment, compare_rows
from benchmarks.peers.environments import python_for
from benchmarks.peers.measure import Prompt, Turn, fastest_choice, first_difference, others_overall, ratio, take_turns, texts_against
from benchmarks.peers.neighbours import CpuClock, others_share, read_clock, wait_until_quiet
from benchmarks.peers.options import parse
from benchmarks.peers.process import PeerError, Worker

PROMPTS = (Prompt(name="a", ids=(1, 2, 3)), Prompt(name="b", ids=(9,) * 10))
PLACE = {"model_path": "x", "folder": "y", "cache": "z"}
ROOMY = {"run_s": 1000.0, "peer_s": 1000.0, "cell_s": 1000.0}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Worker]]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    started: list[Worker] = []

    def start_one(variant: str) -> Worker:
        worker = Worker(variant, Path(sys.executable), log=tmp_path / f"{variant}.log")
        started.append(worker)
        assert worker.ask("load", adapter="fake_peer", variant=variant, place=PLACE, threads=2, context=64)["threads"] == 2
        return worker

    yield start_one
    for worker in started:
        worker.close()


def test_a_worker_answers_and_keeps_the_engines_own_output_apart(start: Callable[[str], Worker], tmp_path: Path) -> None:
    worker = start("counts")
    run = worker.ask("generate", ids=[4], max_tokens=3)
    assert run["token_ids"] == [5, 6, 7]
    assert 0 < run["ttft_s"] <= run["ttft_s"] + run["decode_s"] <= run["total_s"]
    assert worker.ask("peak_rss_bytes") > 1_000_000
    assert "engines print where they like" in (tmp_path / "counts.log").read_text()


def test_a_peers_exception_is_told_by_name_and_the_worker_goes_on(start: Callable[[str], Worker]) -> None:
    worker = start("raises")
    with pytest.raises(PeerError, match="raises: generate: ValueError: out of tokens"):
        worker.ask("generate", ids=[4], max_tokens=3)
    assert worker.ask("rows", ids=[1, 2, 3])["rows"] == 3


def test_a_peer_that_dies_is_told_with_its_status(start: Callable[[str], Worker]) -> None:
    with pytest.raises(PeerError, match="dies: generate: the process ended with status 3"):
        start("dies").ask("generate", ids=[4], max_tokens=3)


def test_a_python_that_does_not_start_is_told() -> None:
    with pytest.raises(PeerError, match="no Python at /nowhere"):
        python_for("llama_cpp", Environment(requirements=("x==1",)), {"llama_cpp": Path("/nowhere")}, cache=Path("/unused"))


def test_an_environment_that_cannot_be_built_is_told_and_never_taken_for_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PeerError, match=r"no-such-peer==1.*ended with status"):
        python_for("nobody", Environment(requirements=("no-such-peer==1",)), {}, cache=tmp_path)
    assert not list(tmp_path.glob("nobody-*/complete"))


def test_an_environment_that_is_complete_is_used_again(tmp_path: Path) -> None:
    environment = Environment(requirements=("some-peer==1",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "benchmarks.peers.environments._run", lambda command, environment=None: Path(command[-1]).mkdir(parents=True, exist_ok=True)
        )
        patch.chdir(tmp_path)
        first = python_for("peer", environment, {}, cache=tmp_path)
        patch.setattr("benchmarks.peers.environments._run", lambda *_: pytest.fail("built twice"))
        assert python_for("peer", environment, {}, cache=tmp_path) == first
        patch.setattr(
            "benchmarks.peers.environments._run", lambda command, environment=None: Path(command[-1]).mkdir(parents=True, exist_ok=True)
        )
        assert python_for("peer", Environment(requirements=("some-peer==2",)), {}, cache=tmp_path) != first


def test_turns_alternate_over_all_contenders_and_count_from_their_own_clock(start: Callable[[str], Worker]) -> None:
    workers = {name: start(name) for name in ("counts", "wanders")}
    waits: list[int] = []
    turns = take_turns(
        workers,
        PROMPTS,
        Budget(**ROOMY),
        repeats=3,
        max_tokens=11,
        pause_s=0,
        clock=lambda: read_clock([worker.pid for worker in workers.values()]),
        wait_for_quiet=lambda: waits.append(1),
    )
    assert len(waits) == 3 * 2
    assert all(0 <= (turn.others_cpu_share or 0) <= 1 for turn in turns)
    assert others_overall(turns) is not None
    assert [turn.contender for turn in turns[:4]] == ["counts", "wanders", "wanders", "counts"]
    assert len(turns) == 3 * 2 * 2
    assert turns[0].decode_tokens_per_s == pytest.approx(10 / turns[0].decode_s)
    assert turns[0].prefill_tokens_per_s == pytest.approx(3 / turns[0].ttft_s)


def test_a_contender_that_fails_takes_no_more_turns_and_the_others_go_on(start: Callable[[str], Worker]) -> None:
    workers = {name: start(name) for name in ("counts", "dies-late")}
    budget = Budget(**ROOMY)
    turns = take_turns(workers, PROMPTS, budget, repeats=2, max_tokens=4, pause_s=0)
    assert [turn.prompt for turn in turns if turn.contender == "dies-late"] == ["a"]
    assert len([turn for turn in turns if turn.contender == "counts"]) == 4
    assert budget.failed("dies-late") == "the process ended with status 3"


def test_every_draft_length_is_tried_and_the_fastest_stays(start: Callable[[str], Worker]) -> None:
    worker = start("counts")
    best, rates = fastest_choice(worker, (1, 4), PROMPTS, 200)
    assert set(rates) == {1, 4}
    assert best == max(rates, key=lambda choice: rates[choice])
    worker.ask("begin", ids=[1], max_tokens=50)
    assert worker.ask("more", tokens=1)["tokens"] == best


def test_a_worker_that_does_not_answer_is_ended_and_told(start: Callable[[str], Worker]) -> None:
    worker = start("hangs")
    with pytest.raises(PeerError, match=r"hangs: generate: no answer within 0\.2 s"):
        worker.ask("generate", ids=[1], max_tokens=2, answer_s=0.2)
    with pytest.raises(PeerError, match="the process ended"):
        worker.ask("peak_rss_bytes")


def make_turn(contender: str, prompt: str, repeat: int, decode_s: float, token_ids: tuple[int, ...] = (1, 2, 3)) -> Turn:
    return Turn(
        contender=contender, prompt=prompt, repeat=repeat, prompt_tokens=4, token_ids=token_ids, ttft_s=0.1, decode_s=decode_s, total_s=1.0
    )


def test_ratios_pair_neighbours_so_that_a_slow_moment_cancels() -> None:
    slow = (1.0, 9.0, 1.0, 4.0)  # the machine's mood, the same for both sides of a pair
    turns = [make_turn(name, "p", i, cost * mood) for i, mood in enumerate(slow) for name, cost in (("base", 1.0), ("peer", 3.0))]
    found = ratio(turns, "base", "peer", "decode_tokens_per_s")
    assert found is not None
    assert found.value == pytest.approx(3.0)


def test_a_text_that_leaves_the_plain_one_is_found_at_its_first_token() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 5, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2
    turns = [make_turn("plain", "p", 0, 1.0), make_turn("lookup", "p", 0, 1.0), make_turn("lookup", "p", 1, 1.0, (1, 7, 3))]
    assert texts_against(turns, Contender(name="lookup", variant="", plain="plain")) == {"p": 1}
    assert texts_against(turns, Contender(name="plain", variant="")) == {"p": None}


def test_rows_are_compared_bit_by_bit() -> None:
    zeros = np.zeros((3, 4), np.float32)
    other = zeros.copy()
    other[0, 0] = -0.0  # equal by value, not by bits
    other[2, 3] = 0.5
    found = compare_rows(zeros, other)
    assert (found.rows, found.equal_rows, found.largest_difference, found.different_best_tokens) == (3, 1, 0.5, 1)


def test_neighbours_are_what_is_busy_and_not_ours(tmp_path: Path) -> None:
    def clock(busy_ticks: int, idle_ticks: int, own_ticks: int) -> CpuClock:
        (tmp_path / "7").mkdir(exist_ok=True)
        (tmp_path / "stat").write_text(f"cpu  {busy_ticks} 0 0 {idle_ticks} 0 0 0 0 5 5\ncpu0 1 1 1 1\n")
        (tmp_path / "7" / "stat").write_text(f"7 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 {own_ticks} 0 0 0 20 0\n")
        return read_clock([7], tmp_path)

    assert others_share(clock(100, 100, 50), clock(400, 200, 250)) == pytest.approx((300 - 200) / 400)
    assert others_share(clock(100, 100, 50), clock(100, 100, 50)) == 0.0

    later = iter([clock(100, 100, 50), clock(300, 100, 50), clock(300, 100, 50), clock(300, 300, 50)])
    assert wait_until_quiet(lambda: next(later), share=0.1, at_most_s=60, look_s=0)
    assert not wait_until_quiet(lambda: clock(1, 1, 1), share=0.1, at_most_s=0, look_s=0)


def test_every_adapter_says_what_it_needs_without_importing_its_engine() -> None:
    found = adapters()
    assert {"swiftsure", "llama_cpp", "openvino_genai", "transformers", "vllm", "onnxruntime_genai"} <= set(found)
    names = [contender.name for module in found.values() for contender in module.CONTENDERS]
    assert len(names) == len(set(names))
    for module in found.values():
        assert all(contender.plain is None or contender.plain in names for contender in module.CONTENDERS)
        assert module.ENVIRONMENT is None or all("==" in pin for pin in module.ENVIRONMENT.requirements)
        assert all(contender.shares_passes is None or contender.plain is not None for contender in module.CONTENDERS)
    assert not {"llama_cpp", "openvino_genai", "vllm", "onnxruntime_genai"} & set(sys.modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--peers", "nobody"],
        ["--python", "llama_cpp"],
        ["--prompts", "none"],
        ["--repeats", "0"],
        ["--max-tokens", "1"],
        ["--pause", "-1"],
        ["--wait", "-1"],
        ["--contexts", "128,0"],
        ["--budget", "0"],
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert "got" in capsys.readouterr().err


@pytest.mark.model
def test_swiftsure_alone_runs_end_to_end_and_keeps_its_bits(smollm2_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    run = ["--model", str(smollm2_path), "--peers", "swiftsure", "--prompts", "limiter-greedy", "--repeats", "1", "--pause", "0"]
    assert main([*run, "--max-tokens", "8", "--contexts", "32,64", "--prefill", "64", "--json", str(path)]) == 0
    default, exact, fast = json.loads(path.read_text())["contenders"]
    for one in (default, exact):
        rows, batch = one["identity"]["rows"], one["identity"]["batch"]
        assert rows["equal_rows"] == rows["rows"] > 50
        assert (batch["texts"], batch["leave"]) == (2, 0)
        assert one["text_first_differs_at"] == {"limiter-greedy": None}
        assert one["sizes"]["64"]["decode_tokens_per_s"] > 0
        assert one["sizes"]["32"]["peak_rss_bytes"] > 10_000_000
    assert fast["medians"] is not None or "NOT ACTIVE" in fast["reason"]
    assert "swiftsure exact" in capsys.readouterr().out
    assert "<svg" in path.with_suffix(".html").read_text()
