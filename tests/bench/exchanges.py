"""Exchanges for tests: complete, with what a test says about them."""

from __future__ import annotations

from typing import Any

from swiftsure.bench.exchange import Arrival, ClientFacts, Exchange, Trial, Usage


def exchange(**changes: Any) -> Exchange:
    """A cold answer of ten tokens: the first after 0.1 s, one every 10 ms. Names of Trial's fields change its trial."""
    place = {"round": 1, "row": "cold", "users": 1, "prompt": "p", "repeat": 1}
    trial = Trial(**{name: changes.pop(name, value) for name, value in place.items()}, warm_up=changes.pop("warm_up", False))
    values: dict[str, Any] = {
        "trial": trial,
        "started": "2026-12-01T09:00:00+00:00",
        "scheduled_s": 0.0,
        "sent_s": 0.0,
        "connected_s": 0.001,
        "first_byte_s": 0.09,
        "first_event_s": 0.09,
        "arrivals": tuple(Arrival(at_s=round(0.1 + 0.01 * i, 6), share="answer", characters=4) for i in range(10)),
        "last_token_s": 0.19,
        "ended_s": 0.2,
        "finish_reason": "stop",
        "usage": Usage(prompt_tokens=20, output_tokens=10),
        "output_tokens": 10,
        "tokens_by": "usage",
        "characters": 40,
        "status": 200,
    }
    return Exchange(**{**values, **changes})


def facts(**changes: Any) -> ClientFacts:
    values: dict[str, Any] = {"wall_s": 1.0, "processes": 1, "wanted_users": 1, "mean_in_flight": 1.0}
    values |= {"lag_p50_s": 0.0001, "lag_p99_s": 0.001, "lag_max_s": 0.002, "cpu_share": 0.1}
    return ClientFacts(**{**values, **changes})
