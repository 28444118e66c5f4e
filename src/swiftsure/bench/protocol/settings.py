"""What a bench is asked to do: the settings that its rounds share, and in words how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from swiftsure.bench.prompts.context import WANTED_TOKENS
from swiftsure.errors import UsageError

MAX_REPEATS = 1000
MAX_USERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """``users``: concurrency levels in closed loop; the smallest has the warm and the context row too. ``context_tokens`` 0: no such row.

    ``sampling``: fields added to every request. ``max_tokens``: of every answer; None: as each prompt says.
    """

    repeats: int = 5
    users: tuple[int, ...] = (1, 2, 4, 8)
    warm: bool = True
    context_tokens: int = WANTED_TOKENS
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _within("repeats", self.repeats, 1, MAX_REPEATS)
        if not self.users:
            raise UsageError("users must name at least one level, as in 1,2,4,8")
        for users in self.users:
            _within("users", users, 1, MAX_USERS)
        if list(self.users) != sorted(set(self.users)):
            raise UsageError(f"levels of users must rise, as in 1,2,4,8, got {','.join(map(str, self.users))}")
        if self.context_tokens:
            _within("context", self.context_tokens, 256, 10_000_000)
        if self.max_tokens is not None:
            _within("max_tokens", self.max_tokens, 1, 1_000_000)

    def to_dict(self) -> dict[str, Any]:
        return {
            "repeats": self.repeats,
            "users": list(self.users),
            "warm": self.warm,
            "context_tokens": self.context_tokens,
            "max_tokens": self.max_tokens,
            "sampling": dict(self.sampling),
        }


def differences(before: Mapping[str, Any], now: Mapping[str, Any], *, under: str = "") -> list[str]:
    """One line for each setting that is another than it was: ``users was [1, 2], is [1]``."""
    lines: list[str] = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            lines += differences(old, new, under=f"{under}{name}.")
        elif old != new:
            lines.append(f"{under}{name} was {_shown(old)}, is {_shown(new)}")
    return lines


def _shown(value: Any) -> str:
    return "not given" if value is None else f"{value!r:.80}"


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(f"{name} must lie in {low}..{high}, got {value}")
