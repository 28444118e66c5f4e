"""Progress and the workers' lines, on one console."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

T = TypeVar("T")


class Screen:
    """A context manager. Lines appear above the bar, unwrapped and unstyled, for machines read them too; the bar only on a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console or RichConsole(stderr=True), transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._progress.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._progress.stop()

    def line(self, text: str) -> None:
        """Prints one line as it is. May be called from any thread."""
        self._progress.console.print(text, markup=False, highlight=False, emoji=False, soft_wrap=True)

    def show(self, phase: str, done: int, total: int | None) -> None:
        """Where a piece of work stands; without a total nobody knows."""
        if self._task is None:
            self._task = self._progress.add_task(phase, total=total)
        self._progress.update(self._task, description=phase, completed=done, total=total)

    def counter(self, phase: str, total: int) -> Callable[[int], None]:
        """Opens a piece of work; the function that comes back moves the bar by so many."""
        self._announce(phase, total)
        done = 0

        def advance(amount: int) -> None:
            nonlocal done
            done += amount
            self.show(phase, done, total)

        advance(0)
        return advance

    def track(self, items: Sequence[T], phase: str) -> Iterator[T]:
        """Yields the items and moves the bar."""
        advance = self.counter(phase, len(items))
        for item in items:
            yield item
            advance(1)

    def _announce(self, phase: str, total: int) -> None:
        """Where there is no bar, one line says what begins."""
        if total and not self._progress.console.is_terminal:
            self.line(f"{phase} ({total})")

    def fetching(self, done: int, total: int) -> None:
        """The ``progress`` callback of ``models.catalogue.resolve``."""
        self.show("fetching and checking the model", done, total)
