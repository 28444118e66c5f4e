"""A round from its plan to its last exchange on disk; the same call begins one and goes on with one that was cut off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from swiftsure.bench.client.measure import Measure
from swiftsure.bench.exchange import Exchange, Prompt, Request
from swiftsure.bench.prompts.change import as_messages, as_text, characters, cold, nonce
from swiftsure.bench.prompts.context import Context, context_for, long_text
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.head import common_head, identity_of, sized, target_of
from swiftsure.bench.protocol.plan import START, Cell, Material, left_of, plan_round, requests_of
from swiftsure.bench.protocol.settings import RoundSettings
from swiftsure.bench.protocol.start import Start, ask_once
from swiftsure.bench.protocol.state import CellState, RoundState
from swiftsure.bench.protocol.store import BenchFolder
from swiftsure.bench.target import Target
from swiftsure.errors import EndpointError

_CHARACTERS_PER_TOKEN_AT_LEAST = 2.5  # of users' prompts in any language, where room for them is reckoned
_GONE_AFTER = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command line asks for. ``source``: where the prompts are from. ``target`` as given, before anything was looked up."""

    target: Target
    prompts: tuple[Prompt, ...]
    source: str
    settings: RoundSettings
    interface: str = "auto"
    processes: int | None = None

    def identity(self) -> dict[str, Any]:
        """What two starts into one folder must have in common."""
        return identity_of("rounds", self.target, self.interface, self.prompts, self.settings)


class Watcher(Protocol):
    """Is told how a round goes on; all calls come from the thread that called ``run_round``."""

    def begin_round(self, state: RoundState) -> None: ...

    def changed(self, state: RoundState) -> None: ...

    def end_cell(self, state: RoundState, cell: CellState) -> None: ...


def head_of(asked: Asked, found: Found, first: Start) -> dict[str, Any]:
    """What bench.json of a new folder says of its rounds, and of what was found on the first request."""
    context = _context(asked, found, first)
    return {
        **common_head(found, first, asked.prompts, asked.source, asked.settings),
        "context": None
        if context is None
        else {
            "wanted_tokens": context.wanted_tokens,
            "tokens": context.tokens,
            "characters": context.characters,
            "scaled": context.scaled,
        },
    }


def _context(asked: Asked, found: Found, first: Start) -> Context | None:
    if not asked.settings.context_tokens:
        return None
    others = max(p.max_tokens + int(characters(p) / _CHARACTERS_PER_TOKEN_AT_LEAST) + 64 for p in sized(asked.prompts, asked.settings))
    return context_for(
        asked.settings.context_tokens, window=found.window, others_tokens=others, characters_per_token=first.characters_per_token
    )


def material_of(asked: Asked, head: Mapping[str, Any]) -> Material:
    """The prompts in the interface's form, and the context that the folder was begun with."""
    fitting = as_text if head["target"]["interface"] == "completions" else as_messages
    context = head.get("context")
    return Material(
        prompts=tuple(fitting(prompt) for prompt in sized(asked.prompts, asked.settings)),
        context=None if context is None else long_text(context["characters"]),
    )


class RoundRunner:
    """Measures what is left of one round."""

    def __init__(self, folder: BenchFolder, asked: Asked, *, measure: Measure, watcher: Watcher) -> None:
        self._folder = folder
        self._asked = asked
        self._measure = measure
        self._watcher = watcher
        self._target = target_of(asked.target, folder.head)
        self._material = material_of(asked, folder.head)

    def run(self, *, first: Exchange | None = None) -> RoundState:
        """``first``: the first request of this folder, which is the round's cold start. Returns how the round ended, when all is on disk.

        Raises EndpointError where the endpoint is gone: what was measured is kept, and the next start goes on.
        """
        number, known = self._folder.begin_round()
        names = [prompt.name for prompt in self._material.prompts]
        state = RoundState(number, [CellState(cell=cell) for cell in plan_round(self._asked.settings, names, number)])
        for exchange in known:
            state.add(exchange)
        self._watcher.begin_round(state)
        if not any(exchange.trial.row == START for exchange in known):
            self._folder.append(first if first is not None and first.trial.round == number else self._start(number))
        for cell_state in state.cells:
            left = left_of(cell_state.cell, known)
            if left:
                state.current = cell_state
                requests = requests_of(cell_state.cell, left, known, self._material)
                cell_state.saturated = self._run_cell(state, cell_state.cell, requests)
                self._watcher.end_cell(state, cell_state)
        self._folder.end_round()
        return state

    def _run_cell(self, state: RoundState, cell: Cell, requests: list[Request]) -> str | None:
        gate = _Gate(self._keep(state), most=max(_GONE_AFTER, 2 * cell.users))
        facts = self._measure(self._target, requests, users=cell.users, on_exchange=gate.pass_on, processes=self._asked.processes)
        gate.close()
        prompts = dict.fromkeys(request.trial.prompt for request in requests)
        self._folder.add_cell(round=state.number, row=cell.row, users=cell.users, prompts=prompts, facts=facts)
        return facts.saturated

    def _keep(self, state: RoundState) -> Callable[[Exchange], None]:
        def keep(exchange: Exchange) -> None:
            self._folder.append(exchange)
            state.add(exchange)
            self._watcher.changed(state)

        return keep

    def _start(self, number: int) -> Exchange:
        """The cold start of a later round: the shortest prompt with a few tokens."""
        shortest = min(self._material.prompts, key=characters)
        prompt = replace(cold(shortest, nonce()), name=START, max_tokens=min(16, shortest.max_tokens))
        exchange = ask_once(self._target, prompt, round=number, measure=self._measure)
        if exchange.error is not None:
            words = exchange.error_words or exchange.error
            raise EndpointError(f"{self._target.url} does not answer the first request of round {number}: {words}")
        return exchange


class _Gate:
    """Holds connections that failed back until something else comes: of an endpoint that is gone nothing was measured."""

    def __init__(self, keep: Callable[[Exchange], None], *, most: int) -> None:
        self._keep = keep
        self._most = most
        self._held: list[Exchange] = []

    def pass_on(self, exchange: Exchange) -> None:
        if exchange.error == "connect":
            self._held.append(exchange)
            if len(self._held) >= self._most:
                words = exchange.error_words or "no connection"
                raise EndpointError(f"the endpoint is gone: {len(self._held)} connections in a row failed ({words}); they are not kept")
            return
        self.close()
        self._keep(exchange)

    def close(self) -> None:
        """The failures between answers are figures of the endpoint."""
        held, self._held = self._held, []
        for exchange in held:
            self._keep(exchange)
