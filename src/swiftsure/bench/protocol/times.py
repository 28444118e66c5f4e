"""Rounds over the day: at which moments the next ones begin."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta

from swiftsure.errors import UsageError

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MAX_TIMES = 24
_STEP_S = 1.0


def times_of_day(text: str) -> tuple[time, ...]:
    """``09:00,15:00,21:00`` in local time, in the order of the day. Raises UsageError for anything else, and for a time given twice."""
    parts = [part.strip() for part in text.split(",")]
    found = []
    for part in parts:
        match = _TIME.fullmatch(part)
        if match is None:
            raise UsageError(f"times of day read HH:MM, as in 09:00,15:00,21:00, got {part!r:.40}")
        found.append(time(int(match[1]), int(match[2])))
    if len(set(found)) < len(found):
        raise UsageError(f"each time of day may be given once, got {text!r:.200}")
    if len(found) > MAX_TIMES:
        raise UsageError(f"at most {MAX_TIMES} times of day, got {len(found)}")
    return tuple(sorted(found))


def next_moment(now: datetime, times: Sequence[time]) -> tuple[datetime, time]:
    """The first moment after ``now`` (with its time zone) that one of ``times`` names, today or tomorrow."""
    local = now.astimezone()
    days = (local.date(), local.date() + timedelta(days=1))
    moments = [(datetime.combine(day, at).astimezone(), at) for day in days for at in times]
    return min((moment, at) for moment, at in moments if moment >= local)


def wait_until(
    moment: datetime,
    *,
    now: Callable[[], datetime],
    sleep: Callable[[float], None],
    tick: Callable[[float], None],
) -> None:
    """Sleeps by the wall clock, in short steps: a machine that was suspended meanwhile is not late. ``tick`` is told the seconds left."""
    while (left_s := (moment - now()).total_seconds()) > 0:
        tick(left_s)
        sleep(min(_STEP_S, left_s))
