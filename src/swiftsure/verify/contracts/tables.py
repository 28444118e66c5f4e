"""Reads TOML tables strictly: an unknown key is refused and the known ones are named, a value of another type is stated."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from swiftsure.errors import UsageError
from swiftsure.verify.prometheus import parse_metric

T = TypeVar("T")


class Table:
    """One table of a contract and its place in it. Every read key counts as known; ``done`` refuses the others.

    Every method raises UsageError, with place, rule and value.
    """

    def __init__(self, values: object, where: str = "") -> None:
        if not isinstance(values, Mapping):
            raise UsageError(f"{where or 'the contract'} must be a table, got {values!r}")
        self._values: Mapping[str, Any] = values
        self._where = where
        self._known: list[str] = []

    def place(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def has(self, key: str) -> bool:
        return key in self._values

    def names(self) -> tuple[str, ...]:
        return tuple(self._values)

    def value(self, key: str) -> Any:
        """What stands there, unchecked; None where nothing does."""
        self._known.append(key)
        return self._values.get(key)

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(key, "a text", value)
        return value.strip() or default  # a template's "" is not an answer

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value is None or value not in choices:
            raise self.error(key, f"one of {', '.join(choices)}", value)
        return value

    def number(self, key: str, *, above: float | None = None, least: float = 0.0, most: float = float("inf")) -> float | None:
        """At least ``least`` and at most ``most``, finite; with ``above`` larger than that."""
        value = self.value(key)
        if value is None:
            return None
        rule = f"a number above {above:g}" if above is not None else f"a number of at least {least:g}"
        rule += f" and at most {most:g}" if most < float("inf") else ""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most or value == float("inf"):
            raise self.error(key, rule, value)
        if above is not None and not value > above:
            raise self.error(key, rule, value)
        return float(value)

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int | None:
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"a whole number of at least {least}", value)
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false", value)
        return value

    def date(self, key: str) -> datetime.date | None:
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
            raise self.error(key, "a date such as 2027-01-31, without quotes", value)
        return value

    def pattern(self, key: str) -> str | None:
        """A regular expression that compiles."""
        value = self.text(key)
        if value is not None:
            try:
                re.compile(value)
            except re.error as error:
                raise self.error(key, f"a regular expression ({error})", value) from None
        return value

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.error(key, "a list of texts", value)
        return tuple(value)

    def sizes(self, key: str) -> tuple[float, ...]:
        """Ascending numbers above 0."""
        value = self.value(key)
        if value is None:
            return ()
        numbers = isinstance(value, list) and all(isinstance(size, (int, float)) and not isinstance(size, bool) for size in value)
        if not numbers or any(not a < b < float("inf") for a, b in pairwise((0, *value))):
            raise self.error(key, "ascending numbers above 0", value)
        return tuple(value)

    def metric(self, key: str) -> str | None:
        """A metric as Prometheus writes it, with or without labels."""
        value = self.text(key)
        if value is not None:
            try:
                parse_metric(value)
            except UsageError as error:
                raise UsageError(f"{self.place(key)}: {error}") from None
        return value

    def words(self, key: str) -> dict[str, str]:
        """A table of texts; numbers are taken as they are written."""
        value = self.value(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(
            isinstance(item, (str, int, float)) and not isinstance(item, bool) for item in value.values()
        ):
            raise self.error(key, "a table of texts", value)
        return {name: str(item) for name, item in value.items()}

    def variables(self, key: str) -> dict[str, str]:
        """The same of environment variables: names and values that a process can be started with."""
        found = self.words(key)
        for name, value in found.items():
            if not name or "=" in name or "\0" in name + value:
                raise self.error(key, "variables whose names hold no = and which hold no zero byte", {name: value})
        return found

    def table(self, key: str) -> Table:
        """The table there; an empty one where nothing stands."""
        value = self.value(key)
        return Table({} if value is None else value, self.place(key))

    def tables(self, key: str) -> list[Table]:
        """The array of tables there."""
        value = self.value(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(key, f"an array of tables, each begun with [[{self.place(key)}]]", value)
        return [Table(item, f"{self.place(key)}[{number}]") for number, item in enumerate(value)]

    def items(self, read: Callable[[Table], T]) -> dict[str, T]:
        """Every key of this table read as a table of its own."""
        return {name: read(self.table(name)) for name in self._values}

    def error(self, key: str, rule: str, value: object) -> UsageError:
        shown = value.isoformat() if isinstance(value, datetime.date) else repr(value)
        return UsageError(f"{self.place(key)} must be {rule}, got {shown}")

    def done(self) -> None:
        unknown = sorted(set(self._values) - set(self._known))
        if unknown:
            known = ", ".join(sorted(set(self._known)))
            raise UsageError(f"{self._where or 'the contract'} has unknown {', '.join(unknown)}; known are {known}")


@contextmanager
def reading(table: Table) -> Iterator[Table]:
    """The table, checked for unknown keys at the end."""
    yield table
    table.done()
