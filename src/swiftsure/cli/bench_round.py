"""``swiftsure bench TARGET``: a round of the protocol on one endpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from swiftsure.cli import bench_options as shared
from swiftsure.cli import bench_results as results
from swiftsure.cli import options
from swiftsure.cli.console import count_text, note
from swiftsure.cli.framework import option
from swiftsure.errors import EndpointError, UsageError
from swiftsure.signals import terminate_as_interrupt

if TYPE_CHECKING:
    from swiftsure.bench.protocol.rounds import Asked
    from swiftsure.bench.protocol.session import Outside
    from swiftsure.bench.protocol.settings import RoundSettings

_ROUND = "Round"
_QUICK_REPEATS, _QUICK_USERS, _QUICK_CONTEXT, _QUICK_TOKENS = 2, (1, 4), 4000, 128

Quick = Annotated[
    bool,
    option(
        "--quick",
        section=_ROUND,
        help="A first look: 3 prompts, 2 repeats, 1 and 4 users, 4,000 tokens of context, answers of at most 128 tokens.",
    ),
]
Repeats = Annotated[int | None, option("--repeats", metavar="N", section=_ROUND, help="Of every prompt in every cell. Default: 5.")]
Users = Annotated[
    str | None, option("--users", metavar="N,N", section=_ROUND, help="Users at a time, rising; your own concurrency. Default: 1,2,4,8.")
]
Context = Annotated[
    int | None,
    option(
        "--context",
        metavar="TOKENS",
        section=_ROUND,
        help="Length of the text pasted above every prompt in one row, scaled to the model's window. 0: no such row. Default: 30000.",
    ),
]
NoWarm = Annotated[bool, option("--no-warm", section=_ROUND, help="Leave out the row that sends the same prompt again.")]
Folder = Annotated[
    Path | None,
    option(
        "--round",
        metavar="DIR",
        section=_ROUND,
        help="Measure one round into this folder: the one that was cut off, or the next. Run it three times, any time apart. "
        "Default: a new folder, and one round.",
    ),
]
At = Annotated[
    str | None,
    option("--at", metavar="HH:MM,HH:MM", section=_ROUND, help="Wait for these times of day, local time, and measure a round at each."),
]
Rounds = Annotated[
    int | None, option("--rounds", metavar="N", section=_ROUND, help="Rounds a folder is to have. Default: 3, or as many as --at.")
]
For = Annotated[
    float | None,
    option("--for", metavar="S", section=_ROUND, help="Pause after so many seconds; the same command goes on. Ends with 1."),
]


def bench_round(
    target: shared.TargetArgument,
    *,
    endpoint: shared.EndpointOptions,
    processes: shared.Processes = None,
    prompts: shared.PromptOptions,
    sampling: shared.SamplingOptions,
    quick: Quick = False,
    repeats: Repeats = None,
    users: Users = None,
    context: Context = None,
    no_warm: NoWarm = False,
    round_folder: Folder = None,
    at: At = None,
    rounds: Rounds = None,
    pause_after: For = None,
    figures: results.FigureOptions,
    require: results.Require = None,
    as_json: options.JsonFlag = False,
) -> int:
    """Measure time to first token and decode speed of an endpoint on real prompts.

    A round sends every prompt several times: cold (a nonce first, so that no prefix cache knows it), warm, with a long text above it, and
    at several users at a time. Rounds at three times of day make a measurement. Every exchange is on disk as soon as it has ended: after
    Ctrl-C, a crash or a kill the same command goes on.

    Ends with 1 when it is incomplete, when a requirement does not hold, or when this machine was too slow to measure the endpoint.
    """
    from swiftsure.bench.client import measure
    from swiftsure.bench.protocol.rounds import Asked
    from swiftsure.bench.protocol.session import Outside
    from swiftsure.bench.protocol.times import times_of_day
    from swiftsure.cli.bench_progress import Countdown, RoundDisplay

    times = () if at is None else times_of_day(at)
    wanted_figures = figures.settings()
    requirements = results.requirements_from(require)
    place = endpoint.target(target)
    settings = _settings(
        quick=quick,
        repeats=repeats,
        users=users,
        context=context,
        warm=not no_warm,
        max_tokens=prompts.max_tokens,
        sampling=sampling.fields,
    )
    chosen, source = prompts.chosen(quick=quick)
    asked = Asked(
        target=place,
        prompts=chosen,
        source=source,
        settings=settings,
        interface=endpoint.interface,
        processes=processes,
    )
    folder = round_folder or shared.new_folder()
    wanted = rounds if rounds is not None else len(times) or (3 if round_folder is not None else 1)
    if not 1 <= wanted <= 100:
        raise UsageError(f"--rounds must lie in 1..100, got {wanted}")
    countdown = Countdown("the next round begins")
    with RoundDisplay() as display, terminate_as_interrupt(), _paused_after(pause_after) as pause:
        outside = Outside(
            find=lambda: endpoint.find(place),
            interfaces=endpoint.interfaces(target),
            measure=measure,
            watcher=display,
            say=note,
            waiting=lambda number, left_s: countdown.tick(left_s),
            waited=countdown.done,
        )
        code = _measure(folder, asked, outside, rounds=wanted, times=times, pause=pause)
    return max(code, results.show(folder, wanted_figures, requirements, as_json=as_json))


def _measure(folder: Path, asked: Asked, outside: Outside, *, rounds: int, times: Sequence[time], pause: _Pause) -> int:
    from swiftsure.bench.protocol.session import measure_rounds, most_of

    exchanges, tokens = most_of(asked)
    note(f"folder: {folder}; a round: {exchanges} exchanges, at most {count_text(tokens)} output tokens")
    saturated = False
    try:
        for state in measure_rounds(folder, asked, outside, rounds=rounds, times=times):
            saturated |= any(cell.saturated for cell in state.cells)
    except KeyboardInterrupt:
        note(
            f"{'paused' if pause.due else 'interrupted'}: what was measured is in {folder}; the same command with --round {folder} goes on"
        )
        if pause.due:
            return 1
        raise
    except EndpointError:
        shared.tell_how_to_go_on(folder, "--round")
        raise
    return 1 if saturated else 0


def _settings(
    *,
    quick: bool,
    repeats: int | None,
    users: str | None,
    context: int | None,
    warm: bool,
    max_tokens: int | None,
    sampling: dict[str, Any],
) -> RoundSettings:
    """What is not given is the protocol's, or that of a first look."""
    from swiftsure.bench.protocol.settings import RoundSettings

    whole = RoundSettings()
    return RoundSettings(
        repeats=repeats if repeats is not None else _QUICK_REPEATS if quick else whole.repeats,
        users=tuple(options.numbers("--users", users, least=1)) if users is not None else _QUICK_USERS if quick else whole.users,
        warm=warm,
        context_tokens=context if context is not None else _QUICK_CONTEXT if quick else whole.context_tokens,
        max_tokens=_QUICK_TOKENS if quick and max_tokens is None else max_tokens,
        sampling=sampling,
    )


class _Pause:
    """``due``: the time is over, and the interrupt that came is of its making."""

    due = False

    def end(self) -> None:
        self.due = True
        os.kill(os.getpid(), signal.SIGTERM)  # unlike SIGINT not ignored in a background job of a shell


@contextmanager
def _paused_after(seconds: float | None) -> Iterator[_Pause]:
    """Interrupts the measurement when so many seconds have passed, as SIGTERM from outside does."""
    pause = _Pause()
    if seconds is None:
        yield pause
        return
    if not 1 <= seconds <= 10_000_000:
        raise UsageError(f"--for must be at least 1 second, got {seconds:g}")
    timer = threading.Timer(seconds, pause.end)
    timer.daemon = True
    timer.start()
    try:
        yield pause
    finally:
        timer.cancel()
