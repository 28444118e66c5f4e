"""A round from its plan to its last line on disk, with an endpoint that is made up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest
from exchanges import exchange, facts

from swiftsure.bench.exchange import ClientFacts, Exchange, Prompt, Request, Trial, Usage
from swiftsure.bench.protocol.begin import begin_folder
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.plan import Material, left_of, plan_round, requests_of
from swiftsure.bench.protocol.rounds import Asked, RoundRunner, head_of
from swiftsure.bench.protocol.session import Outside, measure_rounds
from swiftsure.bench.protocol.settings import RoundSettings, differences
from swiftsure.bench.protocol.start import start
from swiftsure.bench.protocol.state import CellState, RoundState
from swiftsure.bench.protocol.store import BenchFolder, read_bench
from swiftsure.bench.protocol.times import next_moment, times_of_day, wait_until
from swiftsure.bench.target import Target
from swiftsure.errors import EndpointError, UsageError

PROMPTS = tuple(Prompt(name=name, kind="own", text=f"Prompt {name}", max_tokens=64) for name in "abc")
SETTINGS = RoundSettings(repeats=2, users=(1, 4), context_tokens=1000)
TARGET = Target(url="http://nowhere/v1", model="m", api_key="secret-key", headers={"x-team": "secret-team"})


class Endpoint:
    """Answers everything at once; ``answers_until``: the number of requests after which it is gone, or its process killed."""

    def __init__(self, answers_until: int | None = None, *, dies: BaseException | None = None, saturated: str | None = None) -> None:
        self.asked: list[tuple[Target, Request]] = []
        self._until, self._dies, self._saturated = answers_until, dies, saturated

    def __call__(
        self,
        target: Target,
        requests: Sequence[Request],
        *,
        users: int | None,
        on_exchange: Callable[[Exchange], None],
        processes: int | None = None,
    ) -> ClientFacts:
        for request in requests:
            gone = self._until is not None and len(self.asked) >= self._until
            if gone and self._dies is not None:
                raise self._dies
            self.asked.append((target, request))
            found = exchange(usage=Usage(prompt_tokens=1000, output_tokens=10))
            changes: dict[str, Any] = {"error": "connect", "error_words": "refused"} if gone else {}
            on_exchange(replace(found, trial=request.trial, **changes))
        return facts(wanted_users=users, saturated=self._saturated)


class Watcher:
    def __init__(self) -> None:
        self.cells: list[str] = []
        self.saturated: list[str | None] = []

    def begin_round(self, state: RoundState) -> None:
        self.number = state.number

    def changed(self, state: RoundState) -> None:
        assert state.current is not None

    def end_cell(self, state: RoundState, cell: CellState) -> None:
        self.cells.append(cell.name)
        self.saturated.append(cell.saturated)


def asked(**changes: Any) -> Asked:
    values: dict[str, Any] = {"target": TARGET, "prompts": PROMPTS, "source": "own.txt", "settings": SETTINGS}
    return Asked(**{**values, **changes})


def run(folder: Path, endpoint: Endpoint, wanted: Asked | None = None) -> tuple[RoundState, Watcher]:
    """As the command does it: a new folder begins with a first request, a known one must agree."""
    wanted = wanted or asked()
    with BenchFolder(folder, {}) as store:
        first = begin_folder(
            store,
            wanted.identity(),
            find=lambda: Found(target=TARGET, window=8192, window_from="test"),
            interfaces=("chat",),
            measure=endpoint,
            head=lambda found, begun: head_of(wanted, found, begun),
        )
        watcher = Watcher()
        return RoundRunner(store, wanted, measure=endpoint, watcher=watcher).run(first=first), watcher


def test_a_round_has_every_prompt_in_every_cell_as_often_as_asked() -> None:
    cells = plan_round(SETTINGS, ["a", "b", "c"], 2)
    assert [(cell.row, cell.users) for cell in cells] == [("cold", 1), ("warm", 1), ("context", 1), ("cold", 4)]
    for cell in cells:
        assert Counter(trial.prompt for trial in cell.trials) == {"a": 2, "b": 2, "c": 2}
        assert {trial.round for trial in cell.trials} == {2}
    assert [trial.prompt for trial in cells[0].trials] == list("abcabc")
    assert [trial.prompt for trial in cells[1].trials] == list("aabbcc")
    assert [cell.row for cell in plan_round(RoundSettings(warm=False, context_tokens=0), ["a"], 1)] == ["cold"] * 4


def test_the_opening_wave_is_one_request_a_user_of_rising_length() -> None:
    cell = plan_round(SETTINGS, ["a", "b", "c"], 1)[3]
    requests = requests_of(cell, cell.trials, [], Material(prompts=PROMPTS, context=None))
    assert [request.trial.warm_up for request in requests] == [True] * 4 + [False] * 6
    assert [request.prompt.max_tokens for request in requests[:4]] == [16, 32, 48, 64]


def test_warm_prompts_are_sent_once_unmeasured_and_then_as_they_are() -> None:
    cell = plan_round(SETTINGS, ["a", "b"], 1)[1]
    requests = requests_of(cell, cell.trials, [], Material(prompts=PROMPTS, context=None))
    assert [(request.prompt.text, request.trial.warm_up) for request in requests[:3]] == [
        ("Prompt a", True),
        ("Prompt a", False),
        ("Prompt a", False),
    ]


def test_context_is_cold_too() -> None:
    cell = plan_round(SETTINGS, ["a"], 1)[2]
    texts = [request.prompt.text or "" for request in requests_of(cell, cell.trials, [], Material(prompts=PROMPTS, context="LONG"))]
    assert all("LONG" in text for text in texts[1:])
    assert len({text[:18] for text in texts}) == len(texts)


def test_what_was_measured_is_not_asked_again_and_warm_ups_go_on_counting() -> None:
    cell = plan_round(SETTINGS, ["a", "b", "c"], 1)[0]
    known = [exchange(prompt="a", repeat=1, warm_up=True), exchange(prompt="a", repeat=1)]
    left = left_of(cell, known)
    assert len(left) == 5
    opening = requests_of(cell, left, known, Material(prompts=PROMPTS, context=None))[0]
    assert opening.trial == Trial(round=1, row="cold", users=1, prompt="b", repeat=1, warm_up=True)


def test_a_round_is_measured_whole_and_its_folder_says_what_it_is(tmp_path: Path) -> None:
    state, watcher = run(tmp_path, Endpoint())
    assert (state.done, state.total) == (24, 24)
    assert watcher.cells == ["cold, 1 user", "warm, 1 user", "context, 1 user", "cold, 4 users"]
    bench = read_bench(tmp_path)
    assert bench.exchanges[0].trial.row == "start"
    assert sum(not found.trial.warm_up for found in bench.exchanges) == 24
    assert len(bench.cells) == 4
    assert bench.head["rounds"][0]["ended"] is not None
    assert bench.head["target"] | {"window_from": None} == {
        "url": "http://nowhere/v1", "interface": "chat", "model": "m", "mode": None, "window": 8192, "window_from": None,
    }  # fmt: skip
    assert bench.head["characters_per_token"]["measured"]


def test_no_key_and_no_header_is_written(tmp_path: Path) -> None:
    run(tmp_path, Endpoint())
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"x-team" in written
    assert b"secret" not in written


@pytest.mark.parametrize("ended", [1, 2, 9, 13, 20])
def test_a_round_that_was_cut_off_goes_on_where_it_was(tmp_path: Path, ended: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, Endpoint(ended, dies=KeyboardInterrupt()))
    run(tmp_path, Endpoint())
    measured = [found.trial for found in read_bench(tmp_path).exchanges if not found.trial.warm_up]
    assert len(measured) == len(set(measured)) == 24
    assert read_bench(tmp_path).rounds == (1,)


def test_the_next_start_after_a_whole_round_is_the_next_round_with_a_cold_start_of_its_own(tmp_path: Path) -> None:
    run(tmp_path, Endpoint())
    state, _ = run(tmp_path, Endpoint())
    assert state.number == 2
    assert [found.trial.round for found in read_bench(tmp_path).exchanges if found.trial.row == "start"] == [1, 2]


def test_an_endpoint_that_is_gone_ends_the_round_and_nothing_of_its_absence_is_kept(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match=r"5 connections in a row failed \(refused\)"):
        run(tmp_path, Endpoint(8))
    assert all(found.error is None for found in read_bench(tmp_path).exchanges)
    run(tmp_path, Endpoint())
    assert sum(not found.trial.warm_up for found in read_bench(tmp_path).exchanges) == 24


def test_other_settings_are_refused_one_by_one(tmp_path: Path) -> None:
    run(tmp_path, Endpoint())
    other = asked(settings=replace(SETTINGS, repeats=3), prompts=PROMPTS[:2], target=replace(TARGET, model="n"))
    with pytest.raises(UsageError, match=r"model was 'm', is 'n'; prompts_sha256 was .*; settings.repeats was 2, is 3"):
        run(tmp_path, Endpoint(), other)
    assert differences({"a": {"b": None}}, {"a": {"b": 1}}) == ["a.b was not given, is 1"]


def test_a_saturated_client_is_told_of_and_kept(tmp_path: Path) -> None:
    _, watcher = run(tmp_path, Endpoint(saturated="the loop lagged"))
    assert watcher.saturated == ["the loop lagged"] * 4
    assert read_bench(tmp_path).cells[0].facts.saturated == "the loop lagged"


def test_the_first_request_finds_the_interface_and_the_length_of_tokens() -> None:
    def only_completions(
        target: Target, requests: Sequence[Request], *, users: int | None, on_exchange: Any, processes: Any = None
    ) -> ClientFacts:
        found = exchange(trial=requests[0].trial, usage=Usage(prompt_tokens=750))
        on_exchange(found if target.interface == "completions" else replace(found, error="http_4xx", status=404))
        return facts()

    begun = start(TARGET, ("chat", "completions"), round=1, window=None, measure=only_completions)
    assert begun.interface == "completions"
    assert 3.9 < begun.characters_per_token < 4.1
    with pytest.raises(EndpointError, match="does not answer a first request; chat: 404"):
        start(TARGET, ("chat",), round=1, window=None, measure=only_completions)


def test_the_time_left_is_reckoned_from_what_is_known() -> None:
    cells = [CellState(cell=cell) for cell in plan_round(SETTINGS, ["a"], 1)]
    state = RoundState(1, cells)
    assert state.left_s() is None
    state.add(exchange(prompt="a", last_token_s=2.0))
    assert state.left_s() == pytest.approx(2.0 + 4.0 + 4.0 + 4.0 / 4)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"repeats": 0}, "repeats must lie in 1..1000, got 0"),
        ({"users": ()}, "at least one level"),
        ({"users": (4, 2)}, "must rise, as in 1,2,4,8, got 4,2"),
        ({"users": (0,)}, "users must lie in 1..1024, got 0"),
        ({"context_tokens": 5}, "context must lie in 256"),
        ({"max_tokens": 0}, "max_tokens must lie in"),
    ],
)
def test_settings_that_say_nothing_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        RoundSettings(**values)


def test_rounds_over_the_day_begin_at_the_next_of_the_times() -> None:
    times = times_of_day("21:00,9:00, 15:00")
    assert times == (time(9), time(15), time(21))
    now = datetime(2026, 12, 1, 16, 30).astimezone()
    assert next_moment(now, times) == (datetime(2026, 12, 1, 21).astimezone(), time(21))
    assert next_moment(now, times[:2]) == (datetime(2026, 12, 2, 9).astimezone(), time(9))
    for bad in ("25:00", "9", "09:00,09:00", "", "9:00;15:00"):
        with pytest.raises(UsageError):
            times_of_day(bad)


def test_waiting_goes_by_the_wall_clock() -> None:
    clock = [datetime(2026, 12, 1, 8, 59, 57, tzinfo=UTC)]
    told: list[float] = []

    def sleep(seconds: float) -> None:
        clock[0] += timedelta(seconds=seconds)

    wait_until(clock[0] + timedelta(seconds=2.5), now=lambda: clock[0], sleep=sleep, tick=told.append)
    assert told == [2.5, 1.5, 0.5]


def test_rounds_begin_at_their_times_of_day_and_not_before(tmp_path: Path) -> None:
    """Real waits of two and a half seconds: a clock that goes 24 times as fast as the machine's, and sleeps that are as much shorter."""
    began, fast = perf_counter(), 24
    nine = datetime(2026, 12, 1, 8, 59).astimezone()
    moments: list[datetime] = []

    def now() -> datetime:
        return nine + timedelta(seconds=fast * (perf_counter() - began))

    class Clocked(Watcher):
        def begin_round(self, state: RoundState) -> None:
            moments.append(now())

    waited: list[int] = []
    outside = Outside(
        find=lambda: Found(target=TARGET, window=8192, window_from="test"),
        interfaces=("chat",),
        measure=Endpoint(),
        watcher=Clocked(),
        say=lambda words: None,
        waited=lambda: waited.append(1),
        now=now,
        sleep=lambda seconds: sleep(seconds / fast),
    )
    times = times_of_day("09:00,09:01,09:02")
    states = list(measure_rounds(tmp_path, asked(), outside, rounds=3, times=times))
    assert [state.number for state in states] == [1, 2, 3]
    assert [moment - nine >= timedelta(minutes=n + 1) for n, moment in enumerate(moments)] == [True] * 3
    assert len(waited) == 3
    assert perf_counter() - began >= 3 * 60 / fast
    assert [entry["at"] for entry in read_bench(tmp_path).head["rounds"]] == ["09:00", "09:01", "09:02"]
    starts = [found.trial.round for found in read_bench(tmp_path).exchanges if found.trial.row == "start"]
    assert starts == [1, 2, 3]
