"""After a long time of mixed traffic, and after many connections at once, a server holds nothing and goes on as before.

``--full``: 5,000 requests. ``python -m benchmarks.soak`` does the same to a server of its own with a real model, and watches its memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import httpx
from benchmarks.soak.traffic import Traffic, crowd
from benchmarks.soak.watch import Process, rest

from serve.conftest import MODEL, RunningServer, running_server
from swiftsure.serve.settings import LaneLimits, ServeSettings

CONNECTIONS = 200


def quiet(server: RunningServer) -> tuple[int, int]:
    """Tasks and sockets of a server that nobody is connected to, once they are fewer no more."""
    counts = (10**6, 10**6)
    while (now := _counts(server)) < counts:
        counts = now
        time.sleep(0.3)
    return counts


def _counts(server: RunningServer) -> tuple[int, int]:
    return server.on_loop(lambda: len(asyncio.all_tasks(server.loop))), Process.read(os.getpid()).sockets


def test_nothing_is_left_of_mixed_traffic_with_leavers_and_nonsense(tiny_settings: Callable[..., ServeSettings], full: bool) -> None:
    count = 5000 if full else 250
    with running_server(tiny_settings()) as server:
        httpx.get(f"{server.url}/health")
        before = quiet(server)
        traffic = Traffic(server.url, MODEL, seed=7)
        tally = asyncio.run(traffic.run(count, at_once=24))
        assert not tally.unexpected
        assert tally.of("whole") > 0.4 * count
        assert tally.of("left") > 0.1 * count
        assert tally.of("refused") > 0.04 * count
        held = rest(server.url)
        assert held.nothing
        assert held.deaths == 0
        after = quiet(server)
        assert after[0] <= before[0]
        assert after[1] <= before[1]
        assert not server.service.under_way


def test_200_connections_at_once_are_answered_or_told_to_come_back(tiny_settings: Callable[..., ServeSettings]) -> None:
    settings = tiny_settings(standard=LaneLimits(requests=150, tokens=1_000_000))
    with running_server(settings) as server:
        httpx.get(f"{server.url}/health")
        answers = asyncio.run(crowd(server.url, MODEL, CONNECTIONS, tokens=16))
        assert set(answers) <= {"200", "429"}
        assert answers["200"] >= 150
        assert rest(server.url).nothing
        before = quiet(server), Process.read(os.getpid()).rss_bytes
        assert asyncio.run(crowd(server.url, MODEL, CONNECTIONS, tokens=16))["200"] >= 150
        assert rest(server.url).nothing
        after = quiet(server), Process.read(os.getpid()).rss_bytes
        assert after[0] <= before[0]
        assert after[1] - before[1] < 16 * 2**20
