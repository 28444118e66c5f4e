"""Progress and the workers' lines, on one console."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def track(self, items: Sequence[T], phase: str) -> Iterator[T]:
        """Yields the items and moves the bar; where there is none, one line says what begins."""
        if items and not self._progress.console.is_terminal:
            self.line(f"{phase} ({len(items)})")
        for done, item in enumerate(items):
            self.show(phase, done, len(items))
            yield item
        self.show(phase, len(items), len(items))

    def fetching(self, done: int, total: int) -> None:
        """The ``progress`` callback of ``models.catalogue.resolve``."""
        self.show("fetching and checking the model", done, total)
