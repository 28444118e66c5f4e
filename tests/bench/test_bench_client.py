"""Loads from requests to exchanges: closed and open loops, several processes, interrupts, and the built-in engine."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.stub_server import HANG, HEAD, StubServer, answer, chunk, delta, event, stream, usage
from swiftsure.bench.client import Progress, measure, processes
from swiftsure.bench.client.facts import facts_of
from swiftsure.bench.client.messages import ProcessFacts
from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.target import Target
from swiftsure.errors import ContractError, ModelNotFoundError, UsageError
from tiny_models import TinyModel, TinySpec

QUICK = stream((0.0, delta(content="two ")), (0.01, delta(content="words")), (0.01, delta("stop", usage=usage(2))), (0.01, "[DONE]"))
GAP_S = 0.02
STEADY = stream(*((GAP_S * n, delta(content=f"w{n} ")) for n in range(1, 31)), (GAP_S * 30, delta("stop", usage=usage(30))))
HANGING = [(0.0, HEAD), (0.0, chunk(event(delta(content="Hi")))), (0.0, HANG)]


@pytest.fixture(scope="module")
def stub() -> Iterator[StubServer]:
    busy = [(0.0, answer("429 Too Many Requests", b"{}", Retry_After="0.05"))]
    late = stream((0.6, delta(content="at last")), (0.6, delta("stop")))
    full = [(0.0, answer("503 Unavailable", b"{}", Retry_After="0.6"))]
    scripts: dict[str, Any] = {
        "full": [*[full] * 4, QUICK],
        "quick": QUICK,
        "steady": STEADY,
        "late": late,
        "busy_once": [busy, QUICK],
        "stuck": [QUICK, HANGING],
    }
    with StubServer(scripts) as server:
        yield server


def request(number: int = 0, *, at_s: float | None = None, text: str = "Hello", **sampling: Any) -> Request:
    prompt = Prompt(name=f"p{number}", kind="own", text=text, max_tokens=20, sampling=sampling)
    return Request(prompt=prompt, trial=Trial(round=1, row="cold", users=1, prompt=prompt.name, repeat=0), at_s=at_s)


def names(exchanges: list[Exchange]) -> list[str]:
    return sorted(exchange.trial.prompt for exchange in exchanges)


def test_a_closed_loop_sends_all_requests_over_as_many_connections_as_it_has_users(stub: StubServer) -> None:
    got: list[Exchange] = []
    told: list[Progress] = []
    before = len(stub.asked)
    requests = [request(n) for n in range(6)]
    facts = measure(Target(url=stub.url("quick")), requests, users=2, on_exchange=got.append, on_progress=told.append)
    assert names(got) == [f"p{n}" for n in range(6)]
    assert [(exchange.error, exchange.output_tokens, exchange.text) for exchange in got] == [(None, 2, None)] * 6
    assert len({asked.connection for asked in stub.asked[before:]}) == 2
    assert sum(exchange.connected_s is not None for exchange in got) == 2
    assert (facts.processes, facts.wanted_users) == (1, 2)
    assert (told[-1].total, told[-1].finished, told[-1].failed, told[-1].output_tokens) == (6, 6, 0, 12)


def test_what_the_client_saw_is_what_the_endpoint_wrote(stub: StubServer) -> None:
    """Medians over gaps, with room for a machine that is busy: what is measured on a quiet one stands in benchmarks/bench_client.py."""
    got: list[Exchange] = []
    before = len(stub.asked)
    measure(Target(url=stub.url("steady")), [request(n) for n in range(4)], users=4, on_exchange=got.append, keep_text=True)
    written = [asked.sent_at[1:31] for asked in stub.asked[before:]]  # the head came first
    stub_gaps = [later - sooner for moments in written for sooner, later in itertools.pairwise(moments)]
    for exchange in got:
        moments = [arrival.at_s for arrival in exchange.arrivals]
        gaps = [later - sooner for sooner, later in itertools.pairwise(moments)]
        assert len(moments) == 30
        assert moments == sorted(moments)
        assert abs(statistics.median(gaps) - statistics.median(stub_gaps)) < GAP_S / 2
        assert exchange.text == "".join(f"w{n} " for n in range(1, 31))
        assert exchange.first_byte_s is not None
        assert exchange.first_byte_s <= moments[0] <= moments[-1] == exchange.last_token_s <= (exchange.ended_s or 0.0)


def test_an_open_loop_sends_on_its_schedule_whatever_has_come_back(stub: StubServer) -> None:
    got: list[Exchange] = []
    before = len(stub.asked)
    measure(Target(url=stub.url("late")), [request(n, at_s=0.02 * (4 - n)) for n in range(4)], users=None, on_exchange=got.append)
    asked = stub.asked[before:]
    assert max(one.read_at for one in asked) < min(one.sent_at[1] for one in asked)  # all were out before the first was answered
    assert {exchange.trial.prompt: exchange.scheduled_s for exchange in got} == {f"p{n}": 0.02 * (4 - n) for n in range(4)}
    assert all(exchange.sent_s >= exchange.scheduled_s for exchange in got)


def test_several_processes_share_users_and_requests(stub: StubServer) -> None:
    got: list[Exchange] = []
    facts = measure(Target(url=stub.url("quick")), [request(n) for n in range(5)], users=3, on_exchange=got.append, processes=2)
    assert names(got) == [f"p{n}" for n in range(5)]
    assert {exchange.process for exchange in got} == {0, 1}
    assert facts.processes == 2


def test_a_user_goes_on_after_a_refusal(stub: StubServer) -> None:
    got: list[Exchange] = []
    measure(Target(url=stub.url("busy_once")), [request(n) for n in range(2)], users=1, on_exchange=got.append)
    assert [exchange.error for exchange in got] == ["http_429", None]
    assert got[1].scheduled_s >= got[0].sent_s + 0.05  # the wait belongs to the refusal, not to the next request


def test_users_that_wait_because_the_endpoint_asked_them_to_are_no_fault_of_the_client(stub: StubServer) -> None:
    got: list[Exchange] = []
    facts = measure(Target(url=stub.url("full")), [request(n) for n in range(8)], users=2, on_exchange=got.append)
    assert [exchange.error for exchange in got].count("http_5xx") == 4
    assert facts.wall_s > 1.2
    assert "users busy" not in (facts.saturated or "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_what_has_ended_be_handed_over_and_then_takes_its_way(stub: StubServer, number: signal.Signals) -> None:
    got: list[Exchange] = []

    def take(exchange: Exchange) -> None:
        os.kill(os.getpid(), number)
        got.append(exchange)

    def on_sigterm(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_sigterm)
    try:
        stub.rewind("stuck")
        with pytest.raises(KeyboardInterrupt):
            measure(Target(url=stub.url("stuck")), [request(n) for n in range(3)], users=1, on_exchange=take)
        assert signal.getsignal(signal.SIGTERM) is on_sigterm
    finally:
        signal.signal(signal.SIGTERM, before)
    assert names(got) == ["p0"]


def test_a_process_that_dies_ends_the_load_with_its_reason(stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[processes.LoadProcess] = []
    start = processes._process_for
    monkeypatch.setattr(processes, "_process_for", lambda plan: started.append(start(plan)) or started[-1])
    with pytest.raises(ContractError, match="a process of the load was ended by signal 9"):
        measure(
            Target(url=stub.url("late")),
            [request()],
            users=1,
            on_exchange=lambda exchange: None,
            on_progress=lambda progress: started[0]._process.kill(),
        )


def test_an_error_of_the_callers_own_ends_the_load(stub: StubServer) -> None:
    def take(exchange: Exchange) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        measure(Target(url=stub.url("quick")), [request()], users=1, on_exchange=take)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"users": 0}, "users must be at least 1, got 0"),
        ({"processes": 0}, "processes must be at least 1, got 0"),
        ({"requests": []}, "needs at least 1 request"),
        ({"users": None}, "each request of an open loop needs a time to leave"),
        ({"target": Target(url="ftp://h/v1")}, "an endpoint must be as in http://host:8000/v1"),
        ({"target": Target(url="m", interface="engine"), "processes": 2}, "the built-in engine runs in 1 process"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(changes: dict[str, Any], why: str) -> None:
    given = {"target": Target(url="http://h/v1"), "requests": [request()], "users": 1, **changes}
    target, requests = given.pop("target"), given.pop("requests")
    with pytest.raises(UsageError, match=why):
        measure(target, requests, on_exchange=lambda exchange: None, **given)


def process_facts(**changes: Any) -> ProcessFacts:
    sound = {"wall_s": 10.0, "in_flight_area_s": 95.0, "full_s": 9.0, "users_area_s": 89.5, "cpu_share": 0.4}
    return ProcessFacts(**{**sound, "lag_p50_s": 0.0003, "lag_p99_s": 0.004, "lag_max_s": 0.05, **changes})


def test_a_sound_load_is_not_saturated_and_obeys_littles_law() -> None:
    facts = facts_of([process_facts(), process_facts()], users=20)
    assert (facts.saturated, facts.mean_in_flight, facts.processes) == (None, 19.0, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lag_p50_s": 0.003}, "came 3.0 ms late at the median"),
        ({"lag_p99_s": 0.2}, "200.0 ms at p99, using 40% of a processor; its machine is busy"),
        ({"cpu_share": 0.97}, "using 97% of a processor; use more processes"),
        ({"lag_max_s": 3.0}, "stood still for 3.0 s"),
        ({"late_p99_s": 0.08}, "fell behind its schedule by 80 ms"),
        ({"users_area_s": 60.0}, "kept only 13.3 of 20 users busy"),
        ({"ran_out": "no connection to h: [Errno 24] Too many open files"}, "ran out of what connections need"),
    ],
)
def test_a_load_that_the_client_limited_says_why(changes: dict[str, Any], why: str) -> None:
    assert why in (facts_of([process_facts(**changes), process_facts(**changes)], users=20).saturated or "")


@pytest.fixture
def tiny_engine(tmp_path: Path) -> Iterator[Target]:
    yield Target(url=str(TinyModel(TinySpec()).write_gguf(tmp_path / "tiny.gguf")), interface="engine", mode="exact")
    processes.close_spare()


def test_the_built_in_engine_is_loaded_once_for_all_loads_and_keeps_its_caches(tiny_engine: Target) -> None:
    got: list[Exchange] = []
    requests = [request(n, text="a long enough text to fill some blocks " * 5, ignore_eos=True) for n in range(3)]
    for users in (1, 2):
        facts = measure(tiny_engine, requests, users=users, on_exchange=got.append)
        assert (facts.saturated, facts.wanted_users) == (None, users)
    assert names(got) == ["p0", "p0", "p1", "p1", "p2", "p2"]
    for exchange in got:
        assert (exchange.error, exchange.output_tokens, exchange.tokens_by, exchange.finish_reason) == (None, 20, "usage", "length")
        assert exchange.first_event_s is not None
        assert exchange.first_event_s <= exchange.arrivals[0].at_s <= exchange.arrivals[-1].at_s <= (exchange.ended_s or 0.0)
    cached = [exchange.usage.cached_tokens for exchange in got if exchange.usage is not None]
    assert (cached[0], all(cached[1:])) == (0, True)


def test_an_engine_whose_machine_stood_still_is_refused(tiny_engine: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped between two requests, so that neither of their figures shows it."""
    started: list[processes.LoadProcess] = []
    start = processes._process_for
    monkeypatch.setattr(processes, "_process_for", lambda plan: started.append(start(plan)) or started[-1])
    got: list[Exchange] = []

    def stop_once(exchange: Exchange) -> None:
        got.append(exchange)
        if len(got) == 1:
            os.kill(started[0]._process.pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(started[0]._process.pid, signal.SIGCONT)

    facts = measure(tiny_engine, [request(0, at_s=0.0), request(1, at_s=2.5)], users=None, on_exchange=stop_once)
    assert names(got) == ["p0", "p1"]
    assert facts.lag_max_s > 1
    assert "the client stood still for" in (facts.saturated or "")


def test_the_engine_says_what_it_does_not_take(tiny_engine: Target) -> None:
    got: list[Exchange] = []
    with pytest.raises(UsageError, match="prompt 'p0': unknown sampling parameter 'warmth'"):
        measure(tiny_engine, [request(warmth=1)], users=1, on_exchange=got.append)
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        measure(Target(url="no-such-model", interface="engine"), [request()], users=1, on_exchange=got.append)
    measure(tiny_engine, [request(0, at_s=0.0, text="x" * 5000), request(1, at_s=0.01)], users=None, on_exchange=got.append)
    assert [(exchange.trial.prompt, exchange.error) for exchange in got] == [("p0", "http_4xx"), ("p1", None)]
    assert "the context of 640 tokens" in (got[0].error_words or "")


@pytest.mark.parametrize("users", [1, None])
def test_a_load_of_the_engine_ends_well_though_its_last_request_is_refused(tiny_engine: Target, users: int | None) -> None:
    got: list[Exchange] = []
    measure(tiny_engine, [request(0, at_s=0.0), request(1, at_s=0.1, text="x" * 5000)], users=users, on_exchange=got.append)
    assert [(exchange.trial.prompt, exchange.error) for exchange in got] == [("p0", None), ("p1", "http_4xx")]
