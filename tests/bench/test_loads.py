"""Loads and sweeps over them: what is sent, what is concluded, what stands in the folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swiftsure.bench.client.progress import Progress
from swiftsure.bench.exchange import Arrival, ClientFacts, Exchange, Prompt, Request, Trial
from swiftsure.bench.figures.settings import Slo
from swiftsure.bench.loads.session import LoadAsked, answered_share, measure_loads, step_of
from swiftsure.bench.loads.settings import LoadSettings, requests_of
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.store import BenchFolder, read_bench
from swiftsure.bench.target import Target
from swiftsure.errors import UsageError

PROMPTS = [Prompt(name=name, kind="own", text=f"Tell me of {name}", max_tokens=40) for name in ("one", "two")]
TARGET = Target(url="http://h/v1", model="m")


def test_a_closed_load_opens_with_a_wave_of_staggered_answers_and_sends_cold_prompts() -> None:
    requests = requests_of(LoadSettings(kind="users", first=4, last=4), PROMPTS, 4.0)
    assert [request.prompt.max_tokens for request in requests if request.trial.warm_up] == [10, 20, 30, 40]
    measured = [request for request in requests if not request.trial.warm_up]
    assert (len(measured), {request.trial.users for request in requests}) == (16, {4})
    assert len({request.prompt.text for request in measured}) == 16
    assert len({request.trial for request in requests}) == 20


def test_an_open_load_has_its_rate_and_an_opening_that_is_not_counted() -> None:
    settings = LoadSettings(kind="rate", first=2, last=2, seconds=20, arrivals="constant", warm=True)
    requests = requests_of(settings, PROMPTS, 2.0)
    assert [request.at_s for request in requests] == [n / 2 for n in range(50)]
    assert sum(request.trial.warm_up for request in requests) == 10
    assert {request.trial.rate_per_s for request in requests} == {2.0}
    assert {request.prompt.text for request in requests} == {prompt.text for prompt in PROMPTS}


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"kind": "users", "first": 0, "last": 4}, "users must lie in 1..4096 and rise, got 0 to 4"),
        ({"kind": "rate", "first": 4, "last": 2}, "rate must lie in 0.001..100000 and rise, got 4 to 2"),
        ({"kind": "rate", "first": 1, "last": 5000, "seconds": 60}, "a load may have 100000 requests"),
        ({"kind": "users", "first": 1, "last": 4, "factor": 1.0}, "the factor of a sweep must lie in 1.1..100, got 1"),
    ],
)
def test_loads_that_make_no_sense_are_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why.replace(".", r"\.")):
        LoadSettings(**values)


def exchange(trial: Trial, *, sent_s: float, scheduled_s: float, latency_s: float) -> Exchange:
    arrivals = tuple(Arrival(at_s=latency_s * share, share="answer", characters=40) for share in (0.25, 0.5, 0.75, 1.0))
    return Exchange(
        trial=trial,
        started="2026-12-03T07:00:00.000+00:00",
        scheduled_s=scheduled_s,
        sent_s=sent_s,
        arrivals=arrivals,
        last_token_s=latency_s,
        ended_s=latency_s,
        finish_reason="stop",
        output_tokens=40,
        tokens_by="usage",
    )


def waits(of: Callable[[float], float]) -> list[Exchange]:
    trial = Trial(round=1, row="sweep", users=1, prompt="one", repeat=0, rate_per_s=1.0)
    return [exchange(trial, sent_s=float(n), scheduled_s=float(n), latency_s=of(float(n))) for n in range(30)]


def test_answers_that_come_ever_later_tell_how_much_of_what_arrives_is_answered() -> None:
    assert answered_share(waits(lambda at_s: 0.5 + at_s)) == pytest.approx(0.5)  # two seconds of work arrive each second
    assert answered_share(waits(lambda at_s: 0.5)) == 1.0
    assert answered_share(waits(lambda at_s: 1.0 + at_s / 60)) == 1.0  # a third more is noise of unequal prompts
    assert answered_share(waits(lambda at_s: 0.5)[:5]) is None


def test_users_of_a_closed_loop_have_no_schedule_that_could_pile_up() -> None:
    facts = ClientFacts(wall_s=30, processes=1, wanted_users=1, mean_in_flight=1, lag_p50_s=0, lag_p99_s=0, lag_max_s=0, cpu_share=0.1)
    ever_later = waits(lambda at_s: 0.5 + at_s)
    assert step_of(1, ever_later, facts, None, arrivals=False).answered is None
    assert step_of(1, ever_later, facts, None, arrivals=True).answered == pytest.approx(0.5)


class FakeEndpoint:
    """Serves as many users at a time as it has seats, at 100 tokens/s each; the others wait for one. Stands in for the client too."""

    def __init__(self, seats: int, *, dies_after: int | None = None) -> None:
        self.seats, self.dies_after = seats, dies_after
        self.answered = 0

    def __call__(
        self,
        target: Target,
        requests: Sequence[Request],
        *,
        users: int | None,
        on_exchange: Callable[[Exchange], None],
        processes: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> ClientFacts:
        free = [0.0] * min(self.seats, users or self.seats)
        asked = [0.0] * (users or 1)
        for request in requests:
            if self.answered == self.dies_after:
                raise KeyboardInterrupt
            self.answered += 1
            user, seat = asked.index(min(asked)), free.index(min(free))
            sent = asked[user] if users is not None else request.at_s or 0.0
            end = max(free[seat], sent) + request.prompt.max_tokens / 100
            asked[user] = free[seat] = end
            on_exchange(exchange(request.trial, sent_s=sent, scheduled_s=sent, latency_s=end - sent))
        facts = {"lag_p50_s": 0.0, "lag_p99_s": 0.0, "lag_max_s": 0.0, "cpu_share": 0.1, "mean_in_flight": 1.0}
        return ClientFacts(wall_s=max(asked), processes=1, wanted_users=users, **facts)


class Watcher:
    def __init__(self) -> None:
        self.told: list[str] = []

    def progress(self, name: str, progress: Progress) -> None: ...

    def step_ended(self, name: str, words: str) -> None:
        self.told.append(f"{name}: {words}")


def asked(settings: LoadSettings, slo: Slo | None = None) -> LoadAsked:
    found = Found(target=TARGET, window=4096, window_from="/models")
    prompts = tuple(PROMPTS)
    return LoadAsked(target=TARGET, find=lambda: found, interfaces=("chat",), prompts=prompts, source="own", settings=settings, slo=slo)


def test_a_sweep_over_users_finds_the_seats_and_leaves_a_folder_that_is_read_like_a_rounds(tmp_path: Path) -> None:
    watcher = Watcher()
    settings = LoadSettings(kind="users", first=1, last=256, per_user=3)
    sweep = measure_loads(tmp_path / "b", asked(settings), measure=FakeEndpoint(8), watcher=watcher)
    assert sweep.found
    assert sweep.knee is not None
    assert 8 <= sweep.knee < 32
    assert watcher.told[0].startswith("1 user: 1")
    assert " tokens/s of all, TTFT 0.1 s" in watcher.told[0]
    bench = read_bench(tmp_path / "b")
    assert {exchange.trial.users for exchange in bench.exchanges if exchange.trial.row == "sweep"} == {step.load for step in sweep.steps}
    assert [cell.users for cell in bench.cells][:4] == [1, 2, 4, 8]
    assert json.loads((tmp_path / "b" / "bench.json").read_text())["sweep"]["knee"] == sweep.knee
    with pytest.raises(UsageError, match="holds a whole measurement already"):
        measure_loads(tmp_path / "b", asked(settings), measure=FakeEndpoint(8), watcher=watcher)


@pytest.mark.parametrize("settings", [
    LoadSettings(kind="users", first=1, last=64, per_user=3),
    LoadSettings(kind="rate", first=1, last=100, arrivals="constant", seconds=20),
], ids=["users", "rate"])  # fmt: skip
@pytest.mark.parametrize("answered", [1, 30, 75])
def test_a_sweep_that_was_cut_off_measures_no_whole_load_again_and_ends_as_it_would_have(
    tmp_path: Path, settings: LoadSettings, answered: int
) -> None:
    whole = measure_loads(tmp_path / "whole", asked(settings), measure=FakeEndpoint(8), watcher=Watcher())
    folder, said, watcher, again = tmp_path / "cut", list[str](), Watcher(), FakeEndpoint(8)
    with pytest.raises(KeyboardInterrupt):
        measure_loads(folder, asked(settings), measure=FakeEndpoint(8, dies_after=answered), watcher=watcher)
    before, ended = read_bench(folder), len(watcher.told)
    sweep = measure_loads(folder, asked(settings), measure=again, watcher=watcher, say=said.append)
    assert replace(sweep, steps=()) == replace(whole, steps=())
    assert [step.load for step in sweep.steps] == [step.load for step in whole.steps]
    served = [step.served for step in whole.steps]
    assert [step.served for step in sweep.steps] == pytest.approx(
        served, rel=0.05
    )  # files have microseconds: who leaves on an edge of a window
    after = read_bench(folder)
    assert after.exchanges[: len(before.exchanges)] == before.exchanges
    assert len({exchange.trial for exchange in after.exchanges}) == len(after.exchanges) == answered + again.answered
    assert sum("measured before" in words for words in watcher.told) == ended
    assert all("they are kept, the load begins anew" in words for words in said)
    cut = any(exchange.trial.row == "sweep" for exchange in before.exchanges) and len(said) == 1
    assert cut or answered == 1
    with pytest.raises(UsageError, match=r"begun with other settings: settings\.seed was 0, is 1"):
        measure_loads(folder, asked(replace(settings, seed=1)), measure=again, watcher=watcher)


def test_a_load_does_not_go_on_in_a_folder_of_something_else(tmp_path: Path) -> None:
    with BenchFolder(tmp_path, {"asked": {"measures": "rounds"}}) as store:
        store.write_head()
    settings = LoadSettings(kind="users", first=1, last=1)
    with pytest.raises(UsageError, match="was begun for rounds, and this is a load: give another folder"):
        measure_loads(tmp_path, asked(settings), measure=FakeEndpoint(8), watcher=Watcher())


def test_a_sweep_over_rates_stops_where_arrivals_pile_up(tmp_path: Path) -> None:
    settings = LoadSettings(kind="rate", first=1, last=100, arrivals="constant", seconds=20)
    sweep = measure_loads(tmp_path, asked(settings), measure=FakeEndpoint(2), watcher=Watcher())  # 2 seats x 2.5 answers/s
    assert (sweep.stopped, [step.load for step in sweep.steps][:3]) == ("over_saturated", [1.0, 2.0, 4.0])
    assert "pile up" in sweep.words
    assert sweep.knee is not None
    assert 4 <= sweep.knee < 8
    assert {cell.rate_per_s for cell in read_bench(tmp_path).cells} == {step.load for step in sweep.steps}


def test_an_endpoint_that_answers_nothing_under_load_has_failed_there(tmp_path: Path) -> None:
    class Silent(FakeEndpoint):
        """Above two users every second answer is empty, and ends well."""

        def __call__(
            self, target: Target, requests: Sequence[Request], *, on_exchange: Callable[[Exchange], None], **how: Any
        ) -> ClientFacts:
            def pass_on(found: Exchange) -> None:
                empty = found.trial.users > 2 and found.trial.repeat % 2
                on_exchange(replace(found, arrivals=(), last_token_s=None, output_tokens=0) if empty else found)

            return super().__call__(target, requests, on_exchange=pass_on, **how)

    settings = LoadSettings(kind="users", first=1, last=64, per_user=3)
    sweep = measure_loads(tmp_path, asked(settings), measure=Silent(8), watcher=Watcher())
    assert (sweep.stopped, sweep.words) == ("errors", "at 4 50% of the requests failed")


def test_with_limits_the_knee_is_that_of_good_answers(tmp_path: Path) -> None:
    settings = LoadSettings(kind="users", first=1, last=256, per_user=3)
    sweep = measure_loads(tmp_path, asked(settings, Slo.parse("e2e=0.5")), measure=FakeEndpoint(8), watcher=Watcher())
    assert sweep.knee is not None
    assert 4 <= sweep.knee <= 16
    assert sweep.steps[-1].served < 0.5 * max(step.served for step in sweep.steps)
