"""Asks the endpoint that is measured, through the client that rounds use."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import sleep
from typing import Any

from swiftsure.bench.client.measure import Measure
from swiftsure.bench.exchange import ClientFacts, Exchange, Prompt, Request, Trial
from swiftsure.bench.prompts.change import as_messages, as_text
from swiftsure.bench.target import Target
from swiftsure.errors import EndpointError


@dataclass(slots=True, kw_only=True)
class ClientAsker:
    """``known``: answers of an earlier start by their prompts' names, which are not asked for again; ``reused`` counts those taken.

    ``keep`` is told of each exchange as it ends, ``fared`` how the client fared over the prompts of these names. ``seed``: of the marks.
    Raises EndpointError where the client was the limit.
    """

    target: Target
    scenario: str
    seed: str
    window: int | None
    characters_per_token: float
    measure: Measure
    sampling: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Exchange] = field(default_factory=dict)
    keep: Callable[[Exchange], None] = lambda exchange: None
    fared: Callable[[Sequence[str], ClientFacts], None] = lambda names, facts: None
    pause: Callable[[float], None] = sleep
    reused: int = 0
    _asked: int = 0
    _marks: int = 0

    def mark(self) -> str:
        """The same in every start of one folder: what was sent before a kill may be what the next request goes on from."""
        self._marks += 1
        return hashlib.sha256(f"{self.seed}:{self._marks}".encode()).hexdigest()[:16]

    def all(self, prompts: Sequence[Prompt], *, time_limit_s: float | None = None, after_s: float = 0.0) -> list[Exchange]:
        requests: list[Request] = []
        found: dict[str, Exchange] = {}
        fitting = as_text if self.target.interface == "completions" else as_messages
        for prompt in prompts:
            self._asked += 1
            before = self.known.get(prompt.name)
            if before is not None and (before.error is None or time_limit_s is not None):
                self.reused += 1
                found[prompt.name] = before
                continue
            trial = Trial(round=1, row=self.scenario, users=1, prompt=prompt.name, repeat=self._asked)
            requests.append(Request(prompt=replace(fitting(prompt), sampling={**prompt.sampling, **self.sampling}), trial=trial))
        if requests:
            if after_s and self._asked > len(prompts):
                self.pause(after_s)
            found |= self._measured(requests, time_limit_s)
        return [found[prompt.name] for prompt in prompts]

    def _measured(self, requests: Sequence[Request], time_limit_s: float | None) -> dict[str, Exchange]:
        found: dict[str, Exchange] = {}

        def keep(exchange: Exchange) -> None:
            found[exchange.trial.prompt] = exchange
            self.keep(exchange)

        target = self.target if time_limit_s is None else replace(self.target, time_limit_s=min(time_limit_s, self.target.time_limit_s))
        facts = self.measure(target, requests, users=1, on_exchange=keep, keep_text=True)
        self.fared([request.trial.prompt for request in requests], facts)
        if facts.saturated is not None:
            raise EndpointError(f"this machine was too busy to measure: {facts.saturated}")
        return found
