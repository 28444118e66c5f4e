"""The search for the knee, on endpoints whose knee is known."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from swiftsure.bench.client import schedules
from swiftsure.bench.client.knee import Step, find_knee
from swiftsure.errors import UsageError


def endpoint(limit: float, *, collapses: bool = False) -> tuple[Callable[[float], Step], list[float]]:
    """Serves what is asked up to the limit; beyond it the same, or, with limits on latency, nothing."""
    tried: list[float] = []

    def try_load(load: float) -> Step:
        tried.append(load)
        return Step(load=load, served=load if load <= limit else 0.0 if collapses else limit)

    return try_load, tried


def test_the_search_stops_once_no_more_is_served_and_looks_closer_at_the_knee() -> None:
    try_load, tried = endpoint(12)
    sweep = find_knee(try_load, first=1, last=1000, whole=True)
    assert tried == [1, 2, 4, 8, 16, 32, 64, 11, 13]
    assert (sweep.knee, sweep.stopped, sweep.found) == (13, "over_saturated", True)
    assert sweep.words == "up to 64 no more is served: 12 a second after 12"
    assert [step.load for step in sweep.steps] == sorted(tried)


def test_goodput_that_collapses_ends_the_search_at_once() -> None:
    try_load, tried = endpoint(10, collapses=True)
    sweep = find_knee(try_load, first=1, last=1000, closer=3)
    assert tried[:5] == [1, 2, 4, 8, 16]
    assert sweep.knee is not None
    assert 8 < sweep.knee <= 10
    assert "less is served: 0 a second after 8" in sweep.words


def test_a_loss_of_a_tenth_ends_the_search_without_a_second_look() -> None:
    sweep = find_knee(lambda load: Step(load=load, served=load if load < 8 else 3.4), first=1, last=1000, closer=0)
    assert [step.load for step in sweep.steps] == [1, 2, 4, 8]
    assert sweep.words == "at 8 less is served: 3.4 a second after 4"


def test_arrivals_that_pile_up_end_the_search() -> None:
    sweep = find_knee(lambda load: Step(load=load, served=min(load, 5), answered=min(1, 5 / load)), first=1, last=64, closer=0)
    assert (sweep.stopped, [step.load for step in sweep.steps], sweep.knee) == ("over_saturated", [1, 2, 4, 8], 4)
    assert "requests pile up: 62%" in sweep.words


def test_errors_end_the_search_and_their_step_is_no_knee() -> None:
    sweep = find_knee(lambda load: Step(load=load, served=load, failed=0.5 if load > 4 else 0.0), first=1, last=64, closer=0)
    assert (sweep.stopped, sweep.knee) == ("errors", 4)


def test_a_client_that_is_the_limit_has_found_no_knee() -> None:
    sweep = find_knee(lambda load: Step(load=load, served=load, saturated="too slow" if load > 4 else None), first=1, last=64)
    assert (sweep.stopped, sweep.found, sweep.knee) == ("client", False, 4)
    assert sweep.words == "at 8 the client was the limit: too slow"


def test_a_search_that_ends_at_its_largest_load_says_that_more_may_be_served() -> None:
    sweep = find_knee(endpoint(1000)[0], first=3, last=20, whole=True)
    assert ([step.load for step in sweep.steps], sweep.stopped, sweep.found) == ([3, 6, 12, 20], "last", False)


def test_an_endpoint_that_serves_nothing_has_no_knee() -> None:
    assert find_knee(lambda load: Step(load=load, served=0.0), first=1, last=64).knee is None


@pytest.mark.parametrize(("first", "last", "factor"), [(0, 4, 2), (5, 4, 2), (1, 4, 1), (1, float("inf"), 2)])
def test_bounds_that_leave_nothing_to_try_are_refused(first: float, last: float, factor: float) -> None:
    with pytest.raises(UsageError, match="a sweep goes up from first to last"):
        find_knee(endpoint(4)[0], first=first, last=last, factor=factor)


def test_arrivals_are_even_or_random_with_the_same_mean_and_repeatable() -> None:
    assert schedules.constant(3, rate_per_s=4) == [0.0, 0.25, 0.5]
    times = schedules.poisson(4000, rate_per_s=4, seed=1)
    assert times == sorted(times) == schedules.poisson(4000, rate_per_s=4, seed=1) != schedules.poisson(4000, rate_per_s=4, seed=2)
    assert times[-1] == pytest.approx(1000, rel=0.1)
    gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)  # 1/e, as of exponential gaps


@pytest.mark.parametrize(("count", "rate"), [(0, 1.0), (1, 0.0), (1, float("inf"))])
def test_a_schedule_without_requests_or_rate_is_refused(count: int, rate: float) -> None:
    with pytest.raises(UsageError):
        schedules.constant(count, rate_per_s=rate)
