"""``swiftsure bench`` as a user types it, against endpoints that are made up and one that is real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from cli_runner import Result, Run, start

from swiftsure.bench.protocol.store import read_bench
from swiftsure.cli.bench_progress import Countdown

sys.path.append(str(Path(__file__).parents[1] / "bench"))

from slow_endpoint import SlowEndpoint, slow_endpoint

QUICK = ("--quick", "--context", "0", "--users", "1,2", "--model", "m", "--interface", "chat", "--window", "4096")
TRIALS = 18  # 3 prompts, 2 repeats: cold at 1 and 2 users, warm


@pytest.fixture
def endpoint() -> Iterator[SlowEndpoint]:
    with slow_endpoint() as running:
        yield running


def is_busy(err: str) -> bool:
    """Whether the client refused its own figures because this machine was too slow, which it must and which ends with 1."""
    return "was the limit" in err or "too busy to measure" in err


def measured_into(swiftsure: Run, folder: Path, *command: object) -> Result:
    """Runs the command, whose last argument names its folder; again with a new one where this machine was too busy."""
    for _ in range(8):
        shutil.rmtree(folder, ignore_errors=True)
        found = swiftsure("bench", *command, folder)
        if not is_busy(found.err):
            break
    return found


def test_a_round_on_an_endpoint_is_measured_whole(swiftsure: Run, endpoint: SlowEndpoint, tmp_path: Path) -> None:
    found = measured_into(swiftsure, tmp_path, endpoint.url, *QUICK, "--round")
    assert found.code == 0, found.err
    assert "cold, 2 users: 6 of 6, TTFT " in found.err
    bench = read_bench(tmp_path)
    assert Counter(exchange.trial.row for exchange in bench.exchanges if not exchange.trial.warm_up) == {"cold": 12, "warm": 6}
    assert {exchange.output_tokens for exchange in bench.exchanges} == {10}
    assert bench.head["prompts"]["source"] == "built in, quick"


def killed(command: tuple[object, ...], lines: Path, *, after: int) -> int:
    """Starts the command and kills it, as kill -9 does, once it has written so many lines. How many it had written."""
    process = start(*command)
    while (kept := len(whole_lines(lines))) < after:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    return kept


def whole_lines(lines: Path) -> list[bytes]:
    return [line for line in lines.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")] if lines.exists() else []


def test_a_killed_round_goes_on_and_has_every_exchange_once(endpoint: SlowEndpoint, tmp_path: Path) -> None:
    command = ("bench", endpoint.url, *QUICK, "--round", tmp_path)
    lines = tmp_path / "round-1.jsonl"
    kept = killed(command, lines, after=10)
    assert kept < TRIALS
    before = whole_lines(lines)
    process = start(*command)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 or is_busy(err.decode()), err
    assert b"of them measured before" in err
    assert whole_lines(lines)[: len(before)] == before
    bench = read_bench(tmp_path)
    measured = [exchange.trial for exchange in bench.exchanges if not exchange.trial.warm_up]
    assert len(measured) == len(set(measured)) == TRIALS
    assert bench.rounds == (1,)
    assert bench.head["rounds"][0]["ended"]


def test_a_round_pauses_when_its_time_is_over_and_goes_on(swiftsure: Run, tmp_path: Path) -> None:
    with slow_endpoint(gap_s=0.02) as slower:
        command = ("bench", slower.url, *QUICK, "--round", tmp_path)
        paused = start(
            *command, "--for", "2", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
        )  # as nohup in a script has it
        _, err = paused.communicate(timeout=60)
        assert paused.returncode == 1
        assert b"paused: what was measured is in" in err
        rest = swiftsure(*command)
        assert rest.code == 0 or is_busy(rest.err), rest.err
    assert sum(not exchange.trial.warm_up for exchange in read_bench(tmp_path).exchanges) == TRIALS


def test_other_settings_and_a_fourth_round_are_refused(swiftsure: Run, endpoint: SlowEndpoint, tmp_path: Path) -> None:
    command = ("bench", endpoint.url, *QUICK, "--round", tmp_path)
    measured_into(swiftsure, tmp_path, endpoint.url, *QUICK, "--repeats", "1", "--rounds", "1", "--round")
    other = swiftsure(*command, "--repeats", "2")
    assert (other.code, "settings.repeats was 1, is 2" in other.err) == (2, True)
    full = swiftsure(*command, "--repeats", "1", "--rounds", "1")
    assert (full.code, "has all its 1 rounds; --rounds 2 measures one more" in full.err) == (2, True)


def test_a_key_reaches_the_endpoint_and_no_file(
    swiftsure: Run, endpoint: SlowEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    found = swiftsure("bench", endpoint.url, *QUICK, "--repeats", "1", "--users", "1", "--api-key-env", "MY_KEY", "--round", tmp_path)
    assert found.code == 2  # --users is given twice
    found = measured_into(swiftsure, tmp_path, endpoint.url, *QUICK, "--repeats", "1", "--api-key-env", "MY_KEY", "--round")
    assert found.code == 0, found.err
    assert set(endpoint.keys) == {"Bearer sk-very-secret"}
    assert not any(b"sk-very-secret" in path.read_bytes() for path in tmp_path.iterdir())
    assert "sk-very-secret" not in found.err + found.out


def test_an_endpoint_that_refuses_says_so_in_its_own_words(swiftsure: Run, tmp_path: Path) -> None:
    with slow_endpoint(refuses=(404, "no such model: m")) as refusing:
        found = swiftsure("bench", refusing.url, "--model", "m", "--window", "4096", "--round", tmp_path)
    assert found.code == 1
    assert "no such model: m" in found.err
    assert "goes on" not in found.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("ftp://x",), "begins with http:// or https://"),
        (("http://me:pw@x/v1",), "has no user, password, query"),
        (("http://x/v1?key=1",), "has no user, password, query"),
        (("http://x/v1", "--interface", "grpc"), "--interface must be auto, chat, completions or anthropic, got 'grpc'"),
        (("http://x/v1/messages", "--interface", "chat"), "the address ends as that of anthropic does"),
        (("http://x/v1", "--users", "2,1"), "must rise, as in 1,2,4,8, got 2,1"),
        (("http://x/v1", "--users", "one"), "--users takes whole numbers"),
        (("http://x/v1", "--at", "9 o'clock"), "times of day read HH:MM"),
        (("http://x/v1", "--extra", "[]"), "--extra must be a JSON object"),
        (("http://x/v1", "--extra", '{"stream": false}'), "--extra may not hold stream"),
        (("http://x/v1", "--header", "no colon"), "--header takes 'NAME: VALUE'"),
        (("http://x/v1", "--api-key-env", "NO_SUCH_VARIABLE"), "names NO_SUCH_VARIABLE, which is not set"),
        (("http://x/v1", "--for", "0"), "--for must be at least 1 second, got 0"),
        (("http://x/v1", "--rounds", "0"), "--rounds must lie in 1..100, got 0"),
        (("http://x/v1", "--mode", "exact"), "--mode is for the built-in engine"),
        (("model", "--header", "a: b"), "are for endpoints; 'model' names a model"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_sent(swiftsure: Run, arguments: tuple[str, ...], words: str) -> None:
    found = swiftsure("bench", *arguments)
    assert (found.code, words in found.err) == (2, True), found.err


def test_nothing_listening_ends_with_one_and_a_sentence(swiftsure: Run, tmp_path: Path) -> None:
    found = swiftsure("bench", "http://127.0.0.1:1/v1", "--round", tmp_path)
    assert found.code == 1
    assert "http://127.0.0.1:1/v1/models cannot be reached" in found.err


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small round."""
    for _ in range(8):
        folder = tmp_path_factory.mktemp("measured")
        with slow_endpoint() as running:
            process = start("bench", running.url, *QUICK, "--round", folder)
            _, err = process.communicate(timeout=120)
        if not is_busy(err.decode()):
            break
    assert process.returncode == 0, err
    return folder


def test_a_round_ends_with_its_figures_and_its_page(swiftsure: Run, measured: Path) -> None:
    summary = json.loads((measured / "summary.json").read_text())
    assert summary["settings"]["about"]["target"]["model"] == "m"
    assert "round 1: first token after" in summary["settings"]["about"]["cold_start"]
    page = (measured / "report.html").read_text()
    assert "cold, 2 users" in page
    shown = swiftsure("bench", "report", measured, "--price-in", "1", "--price-out", "5", "--table", measured / "all.csv")
    assert shown.code == 0
    assert "The first token comes after" in shown.out
    assert "cost: no prices were given" not in shown.out
    assert len((measured / "all.csv").read_text().splitlines()) == len(read_bench(measured).exchanges) + 1


def test_requirements_decide_the_exit_code(swiftsure: Run, measured: Path) -> None:
    kept = swiftsure("bench", "report", measured, "--require", "ttft_p50<5s decode_p50>1")
    assert (kept.code, kept.out.count("kept")) == (0, 2)
    broken = swiftsure("bench", "report", measured, "--require", "cold.ttft_p50@2<1ms")
    assert (broken.code, "broken" in broken.out) == (1, True)
    unknown = swiftsure("bench", "report", measured, "--require", "speed>1")
    assert (unknown.code, "no figure is called 'speed'" in unknown.err) == (2, True)
    half = swiftsure("bench", "report", measured, "--price-in", "1")
    assert (half.code, "belong together" in half.err) == (2, True)


def test_a_measurement_is_compared_and_a_claim_held_against_it(swiftsure: Run, measured: Path) -> None:
    same = swiftsure("bench", "compare", measured, measured / "summary.json")
    assert (same.code, "no difference shown" in same.out) == (0, True)
    claim = swiftsure("bench", "claim", "3000 tokens/s per user", "--from", measured)
    assert claim.code in (1, 3)
    assert "3,000 tokens/s per user" in claim.out
    nowhere = swiftsure("bench", "claim", "3000 tokens/s", "--from", measured / "bench.txt")
    assert (nowhere.code, "cannot be read as the results of a bench" in nowhere.err) == (2, True)


def test_scenarios_answer_the_threshold_question_by_their_exit_code(swiftsure: Run, endpoint: SlowEndpoint, tmp_path: Path) -> None:
    of_endpoint = (endpoint.url, "--model", "m", "--interface", "chat", "--window", "8192")
    short = ("--times", "3", "-o", tmp_path / "voice.json")
    voice = measured_into(swiftsure, tmp_path / "v", "scenario", "voice", *of_endpoint, *short, "--into")
    assert (voice.code, voice.out.splitlines()[0]) == (0, "INTERACTIVE: voice")
    assert len(json.loads((tmp_path / "voice.json").read_text())["exchanges"]) == 3
    short = ("--times", "2", "--tool-s", "0", "--within", "0.1", "--json")
    agent = measured_into(swiftsure, tmp_path / "a", "scenario", "agent", *of_endpoint, *short, "--into")
    assert (agent.code, json.loads(agent.out)["verdict"]) == (1, "BACKGROUND")
    for wrong in (("chess",), ("voice", "--context", "5")):
        assert swiftsure("bench", "scenario", wrong[0], endpoint.url, *wrong[1:]).code == 2


def test_a_load_is_swept_and_its_folder_reported_again(swiftsure: Run, endpoint: SlowEndpoint, tmp_path: Path) -> None:
    options = ("--model", "m", "--interface", "chat", "--max-tokens", "10")
    users = ("--users", "1..2", "--per-user", "1")
    swept = measured_into(swiftsure, tmp_path / "users", "load", endpoint.url, *users, *options, "--into")
    assert swept.code == 0, swept.err
    assert "  2 users: " in swept.err
    assert "the knee was not reached" in swept.err
    assert "sweep, 2 users" in swept.out
    rate = ("--rate", "20", "--seconds", "1", "--arrivals", "constant")
    assert measured_into(swiftsure, tmp_path / "rate", "load", endpoint.url, *rate, *options, "--into").code == 0
    again = swiftsure("bench", "report", tmp_path / "rate")
    assert (again.code, "sweep, 20" in again.out) == (0, True)
    both = swiftsure("bench", "load", endpoint.url, "--users", "1", "--rate", "1")
    assert (both.code, "either --users or --rate, got both" in both.err) == (2, True)


def test_a_killed_sweep_goes_on_at_the_load_that_was_cut_off(swiftsure: Run, endpoint: SlowEndpoint, tmp_path: Path) -> None:
    options = ("--users", "1..4", "--per-user", "5", "--model", "m", "--interface", "chat", "--max-tokens", "10", "--into", tmp_path)
    command, lines = ("bench", "load", endpoint.url, *options), tmp_path / "round-1.jsonl"
    kept = killed(command, lines, after=16)  # the first request, 12 of one user, and some of two
    before = whole_lines(lines)
    assert kept < 1 + 12 + 13
    found = swiftsure(*command)
    assert "of 13 requests answered; they are kept, the load begins anew" in found.err
    assert [line.rpartition(", ")[2] for line in found.err.splitlines() if line.startswith("  1 user: ")] == ["measured before"]
    assert whole_lines(lines)[: len(before)] == before
    if not is_busy(found.err):
        assert found.code == 0, found.err
        assert {cell.users: cell.part for cell in read_bench(tmp_path).cells} == {1: 1, 2: 1, 4: 1}
    again = swiftsure(*command)
    assert (again.code, "holds a whole measurement already" in again.err) == (2, True)


def test_a_killed_scenario_goes_on_after_its_last_answer(swiftsure: Run, tmp_path: Path) -> None:
    with slow_endpoint(gap_s=0.03) as slower:
        command = ("bench", "scenario", "agent", slower.url, "--model", "m", "--interface", "chat", "--window", "8192", "--times", "6")
        command = (*command, "--tool-s", "0", "--tokens", "10", "--into", tmp_path)
        lines = tmp_path / "round-1.jsonl"
        kept = killed(command, lines, after=4)
        before = whole_lines(lines)
        assert kept < 1 + 6
        found = swiftsure(*command)
        while is_busy(found.err):
            found = swiftsure(*command)
        assert found.code == 0, found.err
        assert f"{len(before) - 1} answers of an earlier start are taken from" in found.err
    assert whole_lines(lines)[: len(before)] == before
    prompts = [exchange.trial.prompt for exchange in read_bench(tmp_path).exchanges if not exchange.trial.warm_up]
    assert prompts == [f"call-{n}" for n in range(1, 7)]


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "settings", "figure"),
    [
        ("voice", ("--times", "2", "--tokens", "12", "--within", "30"), "first token of the answer, p95"),
        ("agent", ("--times", "2", "--tokens", "12", "--tool-s", "0"), "the whole, without tools"),
        ("rag", ("--times", "1", "--tokens", "4", "--context", "300", "--within", "60"), "TTFT of a new context, p95"),
    ],
)
def test_a_scenario_runs_on_a_real_model(
    swiftsure: Run, smollm2_path: Path, tmp_path: Path, name: str, settings: tuple[str, ...], figure: str
) -> None:
    folder = tmp_path / name
    command = ("bench", "scenario", name, smollm2_path, "--mode", "exact", *settings, "--into", folder, "--json")
    found = swiftsure(*command, "--output", tmp_path / "answer.json")
    answer = json.loads(found.out)
    assert {"INTERACTIVE": 0, "BACKGROUND": 1}[answer["verdict"]] == found.code, found.err
    decided = next(one for one in answer["figures"] if one["name"] == figure)
    assert decided["value"] > 0
    assert decided["keeps"] is not None
    assert read_bench(folder).head["answer"] == answer
    exchanges = json.loads((tmp_path / "answer.json").read_text())["exchanges"]
    assert all(exchange["text"] and exchange["error"] is None for exchange in exchanges)


@pytest.mark.parametrize(("columns", "shown"), [(80, "round 1 begins in 0:00:05"), (20, "round 1 begins in 0")])
def test_a_line_that_is_written_over_is_cut_to_the_terminal_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: str
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", str(columns))
    countdown = Countdown("round 1 begins")
    countdown.tick(4.0)
    assert terminal.getvalue() == f"\r{shown}"
    countdown.done()
    assert terminal.getvalue().endswith(f"\r{' ' * len(shown)}\r")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True
