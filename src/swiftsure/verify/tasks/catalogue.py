"""The built-in suite."""

from __future__ import annotations

from collections.abc import Iterable

from swiftsure.errors import UsageError
from swiftsure.verify.tasks.items import Task
from swiftsure.verify.tasks.prose import sentence_choices, word_passages

TASKS: tuple[Task, ...] = (
    Task(name="words", about="which of four words comes next, in a public-domain text", method="likelihood", build=word_passages),
    Task(name="sentences", about="which of three sentences comes next", method="likelihood", build=sentence_choices),
)


def tasks_named(names: Iterable[str]) -> tuple[Task, ...]:
    """Raises UsageError for a task that there is not."""
    known = {task.name: task for task in TASKS}
    found = []
    for name in names:
        if name not in known:
            raise UsageError(f"a task is one of {', '.join(known)}, got {name!r}")
        found.append(known[name])
    return tuple(found)
