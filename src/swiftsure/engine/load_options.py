"""How a model is loaded: what everybody who loads one, or has a process load it, is given and passes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from swiftsure.engine.threads import AUTO, check_threads


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The settings of :func:`swiftsure.load`, which says what each means; the mode is named apart, since one set serves several.

    Raises UsageError for a number of threads that cannot be; what depends on mode, model and machine is checked by the load.
    """

    threads: int | str | None = AUTO
    context: int | None = None
    kv_memory: int | str | None = None
    kv_contexts: int = 1
    isa: str | None = None
    without: Iterable[str] = ()  # kept as a tuple; a text is one name
    draft: str | Path | None = None
    offline: bool = False
    cache: bool = True

    def __post_init__(self) -> None:
        check_threads(self.threads)
        names = (self.without,) if isinstance(self.without, str) else tuple(self.without)
        object.__setattr__(self, "without", names)  # what iterates only once would be empty the second time

    def keywords(self) -> dict[str, Any]:
        """Of :func:`swiftsure.load`, JSON values alone: what another process is sent."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {"without": list(self.without), "draft": None if self.draft is None else str(self.draft)}
