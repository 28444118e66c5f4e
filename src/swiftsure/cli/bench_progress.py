"""How a round goes on: two lines on a terminal, a line a cell elsewhere."""

from __future__ import annotations

import shutil
import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any

from swiftsure.cli.console import note, note_wrapped

if TYPE_CHECKING:
    from swiftsure.bench.client import Progress
    from swiftsure.bench.exchange import Exchange
    from swiftsure.bench.protocol.state import CellState, RoundState

_BAR = 13
_PLAIN_EVERY_S = 60.0


class RoundDisplay:
    """A watcher of rounds. On a terminal the lines stay where they are; elsewhere a long cell says how it is once a minute."""

    def __init__(self) -> None:
        self._bars: Any = None
        self._said = monotonic()

    def __enter__(self) -> RoundDisplay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def begin_round(self, state: RoundState) -> None:
        known = f", {state.done} of them measured before" if state.done else ""
        cells = f"{len(state.cells)} cell{'' if len(state.cells) == 1 else 's'}"
        note(f"round {state.number}: {cells}, {state.total} exchanges{known}")
        if sys.stderr.isatty():
            self._start()

    def changed(self, state: RoundState) -> None:
        if self._bars is not None:
            self._draw(state)
        elif state.current is not None and monotonic() - self._said > _PLAIN_EVERY_S:
            self._said = monotonic()
            note(f"  {_line(state.current)}{_left(state)}")

    def end_cell(self, state: RoundState, cell: CellState) -> None:
        self._said = monotonic()
        note(f"  {_line(cell)}")
        if cell.saturated is not None:
            note(f"  {cell.name}: refused, this client was the limit: {cell.saturated}")

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description:<17}"),
            BarColumn(bar_width=_BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[words]}"),
        )
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True, expand=False)
        self._cell = self._bars.add_task("opening", total=None, words="")
        self._round = self._bars.add_task("round", total=None, words="")
        self._bars.start()

    def _stop(self) -> None:
        bars, self._bars = self._bars, None
        if bars is not None:
            bars.stop()

    def _draw(self, state: RoundState) -> None:
        cell = state.current
        if cell is not None:
            self._bars.update(self._cell, description=cell.name, total=len(cell.cell.trials), completed=cell.done, words=_figures(cell))
        self._bars.update(
            self._round, description=f"round {state.number}", total=state.total, completed=state.done, words=_left(state).lstrip(", ")
        )


def _line(cell: CellState) -> str:
    return f"{cell.name}: {cell.done} of {len(cell.cell.trials)}, {_figures(cell) or 'no answer yet'}"


def _figures(cell: CellState) -> str:
    """Medians so far, and what failed."""
    from swiftsure.bench.protocol.state import median_or_none

    ttft_s, decode = median_or_none(cell.ttft_s), median_or_none(cell.decode)
    parts = [] if ttft_s is None else [f"TTFT {_seconds(ttft_s)}"]
    if decode is not None:
        parts.append(f"{decode:.0f} tokens/s" if decode >= 100 else f"{decode:.1f} tokens/s")
    if cell.failed:
        parts.append(f"{cell.failed} failed")
    return ", ".join(parts)


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _left(state: RoundState) -> str:
    left_s = state.left_s()
    if left_s is None or state.done == state.total:
        return ""
    return f", about {time_text(left_s)} left"


def time_text(seconds: float) -> str:
    """``4200`` -> ``1 h 10 min``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


class LiveLine:
    """One line of a terminal that is written over again and again, cut to its width; nothing elsewhere. Cleared before other lines come."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, words: str) -> None:
        if sys.stderr.isatty():
            line = words[: shutil.get_terminal_size().columns - 1]
            print(f"\r{line:<{self._shown}}", end="", file=sys.stderr, flush=True)
            self._shown = len(line)

    def clear(self) -> None:
        if self._shown:
            print(f"\r{'':<{self._shown}}\r", end="", file=sys.stderr, flush=True)
            self._shown = 0


class LoadDisplay:
    """A watcher of loads: how the one that runs goes on, and a line for each that has ended."""

    def __init__(self) -> None:
        self._line = LiveLine()

    def progress(self, name: str, progress: Progress) -> None:
        failed = f", {progress.failed} failed" if progress.failed else ""
        self._line.show(f"  {name}: {progress.finished} of {progress.total} answered, {progress.in_flight} in flight{failed}")

    def step_ended(self, name: str, words: str) -> None:
        self._line.clear()
        note_wrapped(f"  {name}: ", words)

    def close(self) -> None:
        self._line.clear()


class ScenarioDisplay:
    """How many of a scenario's answers have come, and how fast the last one was."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._line = LiveLine()

    def begin(self, known: int) -> None:
        self._done = known
        self._line.show(f"{self._name}: {self._done} of {self._total} answers")

    def one_more(self, exchange: Exchange) -> None:
        from swiftsure.bench.figures.reading import read

        self._done += 1
        values = read(exchange).values
        figures = [f"TTFT {_seconds(values['ttft'])}"] if "ttft" in values else []
        figures += [f"{values['decode']:.0f} tokens/s"] if "decode" in values else []
        last = f"; the last: {', '.join(figures)}" if figures else ""
        self._line.show(f"{self._name}: {self._done} of {self._total} answers{last}")

    def close(self) -> None:
        self._line.clear()


class Countdown:
    """The wait for a round's time of day: a line that counts down on a terminal, one line elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._told = False
        self._line = LiveLine()

    def tick(self, left_s: float) -> None:
        if sys.stderr.isatty():
            hours, rest = divmod(int(left_s) + 1, 3600)
            self._line.show(f"{self._what} in {hours}:{rest // 60:02}:{rest % 60:02}")
        elif not self._told:
            note(f"{self._what} in {time_text(left_s)}")
        self._told = True

    def done(self) -> None:
        self._line.clear()
        self._told = False
