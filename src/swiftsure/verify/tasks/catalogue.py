"""The built-in suite."""

from __future__ import annotations

from collections.abc import Iterable

from swiftsure.errors import UsageError
from swiftsure.verify.tasks.items import Task
from swiftsure.verify.tasks.programs import programs
from swiftsure.verify.tasks.prose import sentence_choices, word_passages
from swiftsure.verify.tasks.written import copies, needles, records, sums

TASKS: tuple[Task, ...] = (
    Task(name="words", about="which of four words comes next, in a public-domain text", method="likelihood", build=word_passages),
    Task(name="sentences", about="which of three sentences comes next", method="likelihood", build=sentence_choices),
    Task(name="arithmetic", about="sums and differences of one to three digits", method="text", build=sums),
    Task(name="copying", about="3 to 24 words repeated as they are", method="text", build=copies),
    Task(name="json", about="an order in a sentence, as JSON by a schema", method="text", build=records),
    Task(name="needle", about="one of four numbers found in 50 to 800 words of another text", method="text", build=needles),
    Task(name="code", about="a short Python function, checked by running it in a sandbox", method="text", build=programs),
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
