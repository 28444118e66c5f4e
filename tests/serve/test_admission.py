"""How much may be under way in a tier, and when a refused client is told to come back."""

from __future__ import annotations

import pytest

from swiftsure.engine.sampling import SamplingParams
from swiftsure.serve.admission import Lane
from swiftsure.serve.jobs import Job
from swiftsure.serve.problems import BusyError, problem_of
from swiftsure.serve.settings import LaneLimits


def job(tokens: int) -> Job:
    return Job(prompt_ids=(1,) * (tokens - 1), sampling=SamplingParams(max_tokens=1))


def test_a_full_lane_refuses_by_requests_and_names_the_limit() -> None:
    lane = Lane("priority", LaneLimits(requests=2, tokens=1000))
    lane.enter(job(10))
    lane.enter(job(10))
    with pytest.raises(BusyError, match="priority tier takes at most 2 requests at a time"):
        lane.enter(job(10))
    lane.leave(job(10))
    lane.enter(job(10))
    assert (lane.requests, lane.tokens, lane.refused) == (2, 20, 1)


def test_a_lane_refuses_by_tokens_but_lets_one_large_request_through_alone() -> None:
    lane = Lane("standard", LaneLimits(requests=10, tokens=100))
    lane.enter(job(500))
    with pytest.raises(BusyError, match="at most 100 tokens"):
        lane.enter(job(2))
    lane.leave(job(500))
    lane.enter(job(60))
    lane.enter(job(40))
    assert lane.remaining.tokens == 0


def test_the_time_to_come_back_follows_the_pace_of_the_last_seconds() -> None:
    now = [0.0]
    lane = Lane("standard", LaneLimits(requests=3, tokens=1000), clock=lambda: now[0])
    for _ in range(3):
        lane.enter(job(100))
    now[0] = 5.0
    lane.leave(job(100))
    lane.enter(job(100))
    with pytest.raises(BusyError) as refused:
        lane.enter(job(100))
    assert refused.value.retry_after_s == pytest.approx(10.0)  # 100 tokens left within ten seconds, and a request holds 100
    assert problem_of(refused.value).headers == {"retry-after": "10"}
    now[0] = 60.0  # nothing has left lately: no pace is known
    with pytest.raises(BusyError) as refused:
        lane.enter(job(100))
    assert refused.value.retry_after_s == 1.0
