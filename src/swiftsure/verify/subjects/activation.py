"""How a program that is not ours says that what it was asked for is really on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from swiftsure.errors import UsageError
from swiftsure.verify.subjects.base import Activation

NOT_ACTIVE_EXIT = 3
UNKNOWN = Activation(state="unknown", reason="no ACTIVE line was written, and no pattern or metric is named that would tell")

_ACTIVE = re.compile(r"^ACTIVE mode=\S.*$", re.MULTILINE)
_NOT_ACTIVE = re.compile(r"^NOT ACTIVE mode=\S+(?: reason=(?P<reason>.*))?$", re.MULTILINE)
_LONGEST_EVIDENCE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LogProbe:
    """Patterns that the user names: ``active`` must be found in what a run writes, ``not_active`` must not. Raises UsageError."""

    active: str | None = None
    not_active: str | None = None

    def __post_init__(self) -> None:
        for pattern in (self.active, self.not_active):
            compiled_pattern(pattern)

    def read(self, log: str, exit_code: int | None) -> Activation:
        """What a run's output says. A line NOT ACTIVE, exit 3 or ``not_active`` outweighs every sign of the contrary."""
        if found := _NOT_ACTIVE.search(log):
            return Activation(state="not_active", evidence=_short(found[0]), reason=_short(found["reason"] or "no reason given"))
        if exit_code == NOT_ACTIVE_EXIT:
            return Activation(state="not_active", evidence="exit code 3", reason=f"exit code 3; last words: {last_words(log)}")
        if self.not_active is not None and (found := compiled_pattern(self.not_active).search(log)):
            return Activation(state="not_active", evidence=_short(found[0]), reason=f"the log matches {self.not_active!r}")
        if self.active is not None:
            found = compiled_pattern(self.active).search(log)
            if found is None:
                return Activation(state="not_active", reason=f"nothing in the log matches {self.active!r}")
            return Activation(state="active", evidence=_short(found[0]))
        if found := _ACTIVE.search(log):
            return Activation(state="active", evidence=_short(found[0]))
        if self.not_active is not None:
            return Activation(state="active", evidence=f"nothing in the log matches {self.not_active!r}")
        return UNKNOWN


def compiled_pattern(pattern: str | None) -> re.Pattern[str]:
    """Raises UsageError for what is no regular expression. ``^`` and ``$`` mean the ends of lines."""
    try:
        return re.compile(pattern or "", re.MULTILINE)
    except re.error as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from None


def last_words(log: str) -> str:
    """The last line that is not blank."""
    return _short(next((line.strip() for line in reversed(log.splitlines()) if line.strip()), "nothing"))


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST_EVIDENCE else text[:_LONGEST_EVIDENCE] + "…"
