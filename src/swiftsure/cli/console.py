"""Lines for people: sizes, notes on stderr, and a progress bar that shows up only when something takes long."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_QUIET_S = 1.0  # work shorter than this shows no bar


def note(line: str) -> None:
    """One line on stderr."""
    print(line, file=sys.stderr, flush=True)


def size_text(size: float) -> str:
    """``98362432`` -> ``"98.4 MB"``; units are powers of 1000."""
    for unit in ("B", "kB", "MB"):
        if abs(size) < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


def count_text(count: int) -> str:
    """``1105920`` -> ``"1.1 M"``."""
    value = float(count)
    for unit in ("", " k", " M"):
        if abs(value) < 1000:
            return f"{value:.0f}" if not unit else f"{value:.1f}{unit}"
        value /= 1000
    return f"{value:.2f} G"


class _LateBar:
    """Draws on a terminal once a piece of work has taken a second. A context manager."""

    def __init__(self, new_bar: Callable[[], Progress]) -> None:
        self._new_bar = new_bar
        self._started = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._clear()

    def _show(self, title: str, done: int, total: int) -> None:
        if self._bar is None:
            if time.monotonic() - self._started < _QUIET_S or not sys.stderr.isatty():
                return
            self._bar = self._new_bar()
            self._task = self._bar.add_task(title, total=total)
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, description=title, completed=done, total=total)

    def _clear(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar, self._task = None, None


class ProgressBar(_LateBar):
    """A callback for (bytes done, bytes in all). A smaller ``done`` than before begins another piece of work."""

    def __init__(self, title: str) -> None:
        super().__init__(_new_bar)
        self._title, self._done = title, 0

    def __call__(self, done: int, total: int) -> None:
        if done < self._done:
            self._clear()
            self._started = time.monotonic()
        self._done = done
        self._show(self._title, done, total)


class CountBar(_LateBar):
    """For pieces of work that have names: a callback for (name, pieces done, pieces in all)."""

    def __init__(self) -> None:
        super().__init__(_new_count_bar)

    def __call__(self, name: str, done: int, total: int) -> None:
        self._show(name, done, total)


def _new_count_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _new_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


def print_table(head: list[str], rows: list[list[str]], *, right: Collection[int] = (), gap: int = 2) -> None:
    """Columns as wide as their widest cell, ``gap`` blanks apart, on standard output; the columns ``right`` are flush right."""
    widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]
    for line in [head, *rows]:
        cells = (f"{cell:{'>' if column in right else '<'}{widths[column]}}" for column, cell in enumerate(line))
        print((" " * gap).join(cells).rstrip())


def print_pairs(pairs: Mapping[str, object]) -> None:
    """A name and a value a line, on standard output."""
    width = max(map(len, pairs)) + 2
    for name, value in pairs.items():
        print_wrapped(f"{name:{width}}", str(value))


def print_wrapped(start: str, text: str) -> None:
    """``start`` and ``text``, on a terminal with later lines under the text; as one line where a program may read it."""
    print(_wrapped(start, text, sys.stdout))


def note_wrapped(start: str, text: str) -> None:
    """The same on stderr."""
    note(_wrapped(start, text, sys.stderr))


def _wrapped(start: str, text: str, to: TextIO) -> str:
    if not to.isatty():
        return start + text
    columns = max(40, shutil.get_terminal_size().columns)
    lines = textwrap.wrap(text, columns - len(start), break_long_words=False, break_on_hyphens=False) or [""]
    return start + f"\n{' ' * len(start)}".join(lines)
