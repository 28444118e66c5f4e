"""One load, or a sweep over loads, measured into a folder that the other commands of bench read."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from swiftsure.bench.client.knee import Step, Sweep, find_knee
from swiftsure.bench.client.measure import Measure
from swiftsure.bench.client.progress import Progress
from swiftsure.bench.exchange import ClientFacts, Exchange, Prompt, Request
from swiftsure.bench.figures.load import measure_load
from swiftsure.bench.figures.reading import read
from swiftsure.bench.figures.settings import Slo
from swiftsure.bench.loads.settings import ROW, LoadSettings, requests_of
from swiftsure.bench.prompts.change import as_messages, as_text
from swiftsure.bench.protocol.begin import begin_folder
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.head import common_head, identity_of, sized, target_of
from swiftsure.bench.protocol.store import BenchFolder, Say
from swiftsure.bench.target import Interface, Target

_FEWEST_FOR_TREND = 9


class LoadWatcher(Protocol):
    """Is told how it goes on. ``step_ended``: ``words`` are figures of the step."""

    def progress(self, name: str, progress: Progress) -> None: ...

    def step_ended(self, name: str, words: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAsked:
    """``target`` as it was given; ``find`` looks up what it says of itself. ``slo``: what a good answer keeps, which makes goodput what
    the knee is of."""

    target: Target
    find: Callable[[], Found]
    interfaces: tuple[Interface, ...]
    prompts: tuple[Prompt, ...]
    source: str
    settings: LoadSettings
    slo: Slo | None = None
    processes: int | None = None
    interface: str = "auto"

    def identity(self) -> dict[str, Any]:
        """What two starts into one folder must have in common."""
        kept = None if self.slo is None else str(self.slo)
        return identity_of("a load", self.target, self.interface, self.prompts, self.settings) | {"slo": kept}


def measure_loads(folder: Path, asked: LoadAsked, *, measure: Measure, watcher: LoadWatcher, say: Say = lambda words: None) -> Sweep:
    """Measures the load, or loads up to the knee. Every exchange is in the folder as soon as it has ended, the sweep's end in bench.json.

    A measurement that was cut off goes on: loads that had ended are taken from the folder, the one that was cut off is measured anew.
    Raises UsageError where the folder holds a whole measurement or another, EndpointError where the first request is not answered.
    """
    with BenchFolder(folder, {}, say=say) as store:
        first = begin_folder(
            store,
            asked.identity(),
            find=asked.find,
            interfaces=asked.interfaces,
            measure=measure,
            head=lambda found, begun: common_head(found, begun, asked.prompts, asked.source, asked.settings),
            once="a load is measured",
        )
        _, known = store.begin_round()
        if first is not None:
            store.append(first)
        run = _Steps(store, asked, known, measure, watcher, say)
        settings = asked.settings
        if settings.is_sweep:
            whole = settings.kind == "users"
            sweep = find_knee(run.try_load, first=settings.first, last=settings.last, factor=settings.factor, whole=whole)
        else:
            step = run.try_load(settings.first)
            words = "one load" if step.saturated is None else f"the client was the limit: {step.saturated}"
            sweep = Sweep(steps=(step,), knee=None, stopped="last" if step.saturated is None else "client", words=words)
        store.head["sweep"] = asdict(sweep)
        store.end_round()
    return sweep


class _Steps:
    """Measures one load after the other into the folder. ``known``: what an earlier start left there."""

    def __init__(
        self, store: BenchFolder, asked: LoadAsked, known: Sequence[Exchange], measure: Measure, watcher: LoadWatcher, say: Say
    ) -> None:
        self._target = target_of(asked.target, store.head)
        fitting = as_text if self._target.interface == "completions" else as_messages
        self._store, self._asked, self._known = store, asked, known
        self._measure, self._watcher, self._say = measure, watcher, say
        self._prompts = tuple(map(fitting, sized(asked.prompts, asked.settings)))

    def try_load(self, load: float) -> Step:
        """The load as an earlier start measured it whole, or measured now."""
        settings = self._asked.settings
        closed, name = settings.kind == "users", settings.name(load)
        place = (int(load), None) if closed else (1, load)
        known = [e for e in self._known if e.trial.row == ROW and (e.trial.users, e.trial.rate_per_s) == place]
        requests = requests_of(settings, self._prompts, load, after=1 + max((e.trial.repeat for e in known), default=-1))
        facts = next((cell.facts for cell in self._store.cells if (cell.users, cell.rate_per_s) == place), None)
        if facts is not None:
            found, before = known[-len(requests) :], ", measured before"  # an attempt before it may have been cut off
        else:
            if known:
                self._say(f"{name}: cut off with {len(known)} of {len(requests)} requests answered; they are kept, the load begins anew")
            found, before = list[Exchange](), ""
            facts = self._measure_load(name, requests, found, users=place[0] if closed else None, rate_per_s=place[1])
        step = step_of(load, found, facts, self._asked.slo, arrivals=not closed)
        self._watcher.step_ended(name, words_of(step, found, self._asked.slo) + before)
        return step

    def _measure_load(
        self, name: str, requests: Sequence[Request], found: list[Exchange], *, users: int | None, rate_per_s: float | None
    ) -> ClientFacts:
        def keep(exchange: Exchange) -> None:
            self._store.append(exchange)
            found.append(exchange)

        facts = self._measure(
            self._target,
            requests,
            users=users,
            on_exchange=keep,
            processes=self._asked.processes,
            on_progress=lambda progress: self._watcher.progress(name, progress),
        )
        names = [prompt.name for prompt in self._prompts]
        self._store.add_cell(round=1, row=ROW, users=users or 1, rate_per_s=rate_per_s, prompts=names, facts=facts)
        return facts


def step_of(load: float, exchanges: Sequence[Exchange], facts: ClientFacts, slo: Slo | None, *, arrivals: bool) -> Step:
    """What a load came to. ``arrivals``: requests came by a schedule, so that those not answered in time pile up."""
    counted = [exchange for exchange in exchanges if not exchange.trial.warm_up]
    measured = measure_load(exchanges, slo)
    served = 0.0
    if measured is not None:
        useful = measured.tokens if measured.good is None else measured.good
        served = float(useful.sum()) / measured.window_s
    failed = sum(read(exchange).error is not None for exchange in counted) / max(1, len(counted))
    return Step(load=load, served=served, failed=failed, answered=answered_share(counted) if arrivals else None, saturated=facts.saturated)


def answered_share(exchanges: Sequence[Exchange]) -> float | None:
    """Of what arrives, how much an endpoint answers in the same time. None: too few to tell.

    Where arrivals outrun it by a factor of 1 + s, each answer comes s seconds later for every second that its request came later. So the
    share is 1 / (1 + s), with s from the median time to answer, counted from the schedule, in the first and the last third.
    """
    well = sorted((e for e in exchanges if e.error is None and e.last_token_s is not None), key=lambda e: e.scheduled_s)
    if len(well) < _FEWEST_FOR_TREND:
        return None
    third = len(well) // 3
    early, late = well[:third], well[-third:]
    waits = [statistics.median((e.last_token_s or 0.0) + e.sent_s - e.scheduled_s for e in part) for part in (early, late)]
    apart = statistics.mean(e.scheduled_s for e in late) - statistics.mean(e.scheduled_s for e in early)
    if apart <= 0 or waits[1] <= 1.5 * waits[0]:  # less growth is noise of unequal prompts
        return 1.0
    return 1 / (1 + (waits[1] - waits[0]) / apart)


def words_of(step: Step, exchanges: Sequence[Exchange], slo: Slo | None) -> str:
    """A line for the terminal."""
    readings = [read(exchange) for exchange in exchanges if not exchange.trial.warm_up and exchange.error is None]
    parts = [f"{step.served:.4g} {'tokens/s of all' if slo is None else 'good answers/s'}"]
    for name, title, unit in (("ttft", "TTFT", "s"), ("decode", "each", "tokens/s")):
        values = [reading.values[name] for reading in readings if name in reading.values]
        if values:
            parts.append(f"{title} {statistics.median(values):.3g} {unit}")
    if step.answered is not None and step.answered < 1:
        parts.append(f"{step.answered:.0%} of arrivals answered in time")
    if step.failed:
        parts.append(f"{step.failed:.0%} failed")
    if step.saturated is not None:
        parts.append(f"refused: {step.saturated}")
    return ", ".join(parts)
