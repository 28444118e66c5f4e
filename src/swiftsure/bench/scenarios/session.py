"""A scenario played into a folder, which goes on where an earlier start was cut off: what was answered then is not asked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from swiftsure.bench.client.measure import Measure
from swiftsure.bench.exchange import Exchange
from swiftsure.bench.protocol.begin import begin_folder
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.head import common_head, identity_of, target_of
from swiftsure.bench.protocol.store import BenchFolder, CellFacts, Say
from swiftsure.bench.scenarios.asker import ClientAsker
from swiftsure.bench.scenarios.base import Answer, Asker, ScenarioSettings
from swiftsure.bench.target import Interface, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    """The scenario's settings as a folder keeps them."""

    scenario: ScenarioSettings
    sampling: Mapping[str, Any]
    max_tokens: None = None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.scenario), "sampling": dict(self.sampling)}


class ScenarioWatcher(Protocol):
    """Is told how it goes on. ``known``: answers that an earlier start left."""

    def begin(self, known: int) -> None: ...

    def one_more(self, exchange: Exchange) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioAsked:
    """``target`` as it was given; ``find`` looks up what it says of itself. ``scenario`` plays through with these ``settings``."""

    name: str
    scenario: Callable[[Asker, Any], Answer]
    settings: ScenarioSettings
    target: Target
    find: Callable[[], Found]
    interfaces: tuple[Interface, ...]
    interface: str = "auto"
    sampling: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sending(self) -> _Sending:
        return _Sending(scenario=self.settings, sampling=self.sampling)

    def identity(self) -> dict[str, Any]:
        """What two starts into one folder must have in common."""
        return identity_of(f"the scenario {self.name}", self.target, self.interface, (), self.sending)


def play(
    folder: Path,
    asked: ScenarioAsked,
    *,
    measure: Measure,
    watcher: ScenarioWatcher | None = None,
    say: Say = lambda words: None,
) -> Answer:
    """Each answer is in the folder as soon as it has ended, the scenario's in bench.json.

    Raises UsageError where the folder holds a whole measurement or another, EndpointError where an answer fails: the next start goes on
    with those before it.
    """
    with BenchFolder(folder, {}, say=say) as store:
        first = begin_folder(
            store,
            asked.identity(),
            find=asked.find,
            interfaces=asked.interfaces,
            measure=measure,
            head=lambda found, begun: common_head(found, begun, (), "the scenario's", asked.sending),
            once="a scenario is played",
        )
        _, exchanges = store.begin_round()
        if first is not None:
            store.append(first)
        known = usable(exchanges, store.cells)
        if known:
            say(f"{len(known)} answers of an earlier start are taken from {folder}")
        if watcher is not None:
            watcher.begin(len(known))

        def keep(exchange: Exchange) -> None:
            store.append(exchange)
            if watcher is not None:
                watcher.one_more(exchange)

        asker = ClientAsker(
            target=target_of(asked.target, store.head),
            scenario=asked.name,
            seed=store.head["id"],
            window=store.head["target"]["window"],
            characters_per_token=store.head["characters_per_token"]["value"],
            measure=measure,
            sampling=asked.sampling,
            known=known,
            keep=keep,
            fared=lambda names, facts: store.add_cell(round=1, row=asked.name, users=1, prompts=names, facts=facts),
        )
        answer = asked.scenario(asker, asked.settings)
        if known:
            words = f"cut off once or more: {asker.reused} answers are of an earlier start, and of one more only what came after it"
            answer = replace(answer, notes=[*answer.notes, words])
        store.head["answer"] = answer.to_dict()
        store.end_round()
    return answer


def usable(exchanges: Sequence[Exchange], cells: Sequence[CellFacts]) -> dict[str, Exchange]:
    """By prompt, what need not be asked again: neither failed, nor measured by a client that was too slow. A timeout may be an answer."""
    refused = {name: cell.facts.saturated is not None for cell in cells for name in cell.prompts}
    return {
        exchange.trial.prompt: exchange
        for exchange in exchanges
        if not exchange.trial.warm_up and exchange.error in (None, "timeout") and not refused.get(exchange.trial.prompt)
    }
