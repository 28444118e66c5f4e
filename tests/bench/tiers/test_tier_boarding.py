"""Ways to board, over a model whose passes take a tick of a clock that stands still otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swiftsure.bench.tiers import boarding
from swiftsure.bench.tiers.boarding import BOARDINGS, Ride, ride
from swiftsure.bench.tiers.riders import Rider, arrivals, prompts


class TickingModel:
    """A token for each request in every pass, and a pass takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.running: list[Any] = []
        self.rows: list[int] = []
        self.tiers: set[str] = set()
        monkeypatch.setattr(boarding, "time", SimpleNamespace(perf_counter=lambda: self.now, sleep=self._sleep))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def submit(self, prompt_ids: tuple[int, ...], *, sampling: Any, tier: str) -> Any:
        one = SimpleNamespace(output_length=0, finished=False, error=None, left=sampling.max_tokens)
        self.tiers.add(tier)
        self.running.append(one)
        return one

    def step(self) -> bool:
        self.now += 1.0
        self.rows.append(len(self.running))
        for one in self.running:
            one.output_length += 1
            one.finished = one.output_length == one.left
        self.running = [one for one in self.running if not one.finished]
        return bool(self.running)

    def cancel(self) -> None:
        self.running = []


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    return TickingModel(monkeypatch)


def riders(*moments: float, tokens: int = 4) -> list[Rider]:
    return [Rider(prompt_ids=(1, 2), tokens=tokens, arrives_s=at) for at in moments]


def waits(rides: list[Ride]) -> list[float]:
    return [one.wait_s for one in rides]


def test_a_bus_that_leaves_at_once_takes_who_is_there_and_nobody_on_the_way(model: Any) -> None:
    rides = ride(model, riders(0.0, 1.0, 2.0), seats=4, boarding="at_once")
    assert waits(rides) == [0.0, 3.0, 2.0]
    assert model.rows == [1] * 4 + [2] * 4


def test_a_full_bus_waits_for_its_last_seat_and_the_last_bus_for_nobody(model: Any) -> None:
    rides = ride(model, riders(0.0, 3.0, 5.0), seats=2, boarding="full")
    assert waits(rides) == [3.0, 0.0, 2.0]
    assert model.rows == [2] * 4 + [1] * 4


def test_continuous_boarding_takes_a_free_seat_at_the_next_pass(model: Any) -> None:
    rides = ride(model, riders(0.0, 0.5, 0.6), seats=2, boarding="continuous")
    assert waits(rides) == pytest.approx([0.0, 0.5, 3.4])
    assert model.rows == [1, 2, 2, 2, 2, 1, 1, 1]


def test_with_one_seat_all_ways_to_board_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [waits(ride(TickingModel(monkeypatch), riders(0.0, 1.0, 9.0), seats=1, boarding=way)) for way in BOARDINGS]
    assert found[0] == found[1] == found[2] == [0.0, 3.0, 0.0]


def test_a_ride_tells_first_token_rate_and_gaps(model: Any) -> None:
    (one,) = ride(model, riders(2.0), seats=1, boarding="continuous", tier="priority")
    assert (one.ttft_s, one.tokens, one.tokens_per_s, one.gaps_s) == (1.0, 4, 1.0, [1.0, 1.0, 1.0])
    assert model.tiers == {"priority"}


def test_an_error_of_a_request_is_raised_and_the_others_are_ended(model: Any) -> None:
    def failing(prompt_ids: tuple[int, ...], **_: Any) -> Any:
        model.running.append(SimpleNamespace(output_length=0, finished=True, error=ValueError("no blocks"), left=9))
        return model.running[-1]

    model.submit = failing
    model.step = lambda: False
    with pytest.raises(ValueError, match="no blocks"):
        ride(model, riders(0.0, 0.0), seats=2, boarding="continuous")
    assert not model.running


def test_prompts_have_the_length_asked_for_and_beginnings_of_their_own() -> None:
    def encode(text: str) -> list[int]:
        return list(text.encode())

    found = prompts(20, 90, encode=encode, seed=3)
    assert {len(one) for one in found} == {90}
    assert len({one[:16] for one in found}) == 20
    assert found == prompts(20, 90, encode=encode, seed=3) != prompts(20, 90, encode=encode, seed=4)


def test_arrivals_come_at_their_rate_in_the_mean() -> None:
    moments = arrivals(4000, per_s=5.0, seed=1)
    assert moments[0] == 0.0
    assert moments == sorted(moments)
    assert 4000 / moments[-1] == pytest.approx(5.0, rel=0.05)
