"""Asks the endpoint that is measured, through the client that rounds use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from swiftsure.bench.exchange import Exchange, Prompt, Request, Trial
from swiftsure.bench.prompts.change import as_messages, as_text
from swiftsure.bench.target import Target
from swiftsure.errors import EndpointError


@dataclass(slots=True, kw_only=True)
class ClientAsker:
    """``measure``: the client's. ``asked``: is told of each exchange as it ends. Raises EndpointError where the client was the limit."""

    target: Target
    scenario: str
    window: int | None
    characters_per_token: float
    measure: Callable[..., Any]
    sampling: dict[str, Any] = field(default_factory=dict)
    asked: Callable[[Exchange], None] = lambda exchange: None
    _count: int = 0

    def all(self, prompts: Sequence[Prompt], *, time_limit_s: float | None = None) -> list[Exchange]:
        """One after the other, as a single user does."""
        fitting = as_text if self.target.interface == "completions" else as_messages
        requests = []
        for prompt in prompts:
            self._count += 1
            trial = Trial(round=1, row=self.scenario, users=1, prompt=prompt.name, repeat=self._count)
            requests.append(Request(prompt=replace(fitting(prompt), sampling={**prompt.sampling, **self.sampling}), trial=trial))
        found: list[Exchange] = []

        def keep(exchange: Exchange) -> None:
            found.append(exchange)
            self.asked(exchange)

        target = self.target if time_limit_s is None else replace(self.target, time_limit_s=min(time_limit_s, self.target.time_limit_s))
        facts = self.measure(target, requests, users=1, on_exchange=keep, keep_text=True)
        if facts.saturated is not None:
            raise EndpointError(f"this machine was too busy to measure: {facts.saturated}")
        return found
