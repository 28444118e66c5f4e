"""The rounds of one folder, one after the other: begin or go on, wait for the time of day, measure, end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from time import sleep

from swiftsure.bench.client.measure import Measure
from swiftsure.bench.protocol.begin import begin_folder
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.head import sized
from swiftsure.bench.protocol.rounds import Asked, RoundRunner, Watcher, head_of
from swiftsure.bench.protocol.state import RoundState
from swiftsure.bench.protocol.store import BenchFolder, Say
from swiftsure.bench.protocol.times import next_moment, wait_until
from swiftsure.bench.target import Interface
from swiftsure.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """What a session needs of the world: the endpoint's own words, the client, somebody to tell, and the time of day.

    ``waiting`` is told of the number of the round that is waited for and the seconds left, ``waited`` that its time has come.
    """

    find: Callable[[], Found]
    interfaces: tuple[Interface, ...]
    measure: Measure
    watcher: Watcher
    say: Say
    waiting: Callable[[int, float], None] = lambda number, left_s: None
    waited: Callable[[], None] = lambda: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = sleep


def measure_rounds(folder: Path, asked: Asked, outside: Outside, *, rounds: int, times: Sequence[time] = ()) -> Iterator[RoundState]:
    """Yields each round as it ends. Without ``times`` one round a call: the one that was cut off, or the next; with them, all.

    Raises UsageError where the folder was begun with other settings or has all its rounds; EndpointError as the runner does.
    """
    with BenchFolder(folder, {}, say=outside.say) as store:
        first = begin_folder(
            store,
            asked.identity(),
            find=outside.find,
            interfaces=outside.interfaces,
            measure=outside.measure,
            head=lambda found, begun: head_of(asked, found, begun),
        )
        if store.rounds_ended >= rounds:
            raise UsageError(f"{folder} has all its {store.rounds_ended} rounds; --rounds {store.rounds_ended + 1} measures one more")
        while store.rounds_ended < rounds:
            if times and not store.round_under_way:
                waited, at = _wait(store, times, outside)
                first = None if waited else first
                store.open_round(at=at)
            yield RoundRunner(store, asked, measure=outside.measure, watcher=outside.watcher).run(first=first)
            if not times:
                return


def most_of(asked: Asked) -> tuple[int, int]:
    """(exchanges, output tokens) of a round, if every answer is as long as it may be; opening waves not counted."""
    settings = asked.settings
    cells = len(settings.users) + settings.warm + bool(settings.context_tokens)
    prompts = sized(asked.prompts, asked.settings)
    return cells * settings.repeats * len(prompts), cells * settings.repeats * sum(prompt.max_tokens for prompt in prompts)


def _wait(store: BenchFolder, times: Sequence[time], outside: Outside) -> tuple[bool, str]:
    """Until the next of the times that no round has had yet. Whether there was a wait, and the time's name."""
    used = [entry.get("at") for entry in store.head["rounds"]]
    free = [at for at in times if f"{at:%H:%M}" not in used] or list(times)
    moment, at = next_moment(outside.now(), free)
    waited = False

    def tick(left_s: float) -> None:
        nonlocal waited
        waited = True
        outside.waiting(store.rounds_ended + 1, left_s)

    try:
        wait_until(moment, now=outside.now, sleep=outside.sleep, tick=tick)
    finally:
        outside.waited()
    return waited, f"{at:%H:%M}"
