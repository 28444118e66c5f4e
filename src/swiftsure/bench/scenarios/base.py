"""What scenarios have in common: somebody who asks, figures with limits, and the answer to the threshold question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

from swiftsure.bench.exchange import Exchange, Prompt
from swiftsure.bench.percentiles import percentile
from swiftsure.errors import EndpointError

SCHEMA = "swiftsure.scenario/1"
Verdict = Literal["INTERACTIVE", "BACKGROUND", "NOT MEASURABLE"]


class Asker(Protocol):
    """Sends to the endpoint that is measured and keeps the answers' text. ``window``: its longest sequence, in tokens."""

    @property
    def window(self) -> int | None: ...

    @property
    def characters_per_token(self) -> float: ...

    def mark(self) -> str:
        """A start for a prompt that no prefix cache can know; the n-th of a scenario is the same when it goes on after a kill."""
        ...

    def all(self, prompts: Sequence[Prompt], *, time_limit_s: float | None = None, after_s: float = 0.0) -> list[Exchange]:
        """One after the other, as a single user does; their names differ within a scenario. ``after_s``: a pause before, if it is not the
        scenario's first request."""
        ...


class ScenarioSettings(Protocol):
    """A frozen dataclass of numbers. ``requests``: how many a scenario sends with them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def requests(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """``value`` None: not known; infinity: not reached. ``keeps``: whether the limit holds; None: the figure decides nothing. ``limit``
    reads ``at most 0.3 s`` and the like."""

    name: str
    value: float | None
    unit: str
    limit: str | None = None
    keeps: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """INTERACTIVE when all deciding figures keep their limits, BACKGROUND when one does not, NOT MEASURABLE when one is missing."""

    scenario: str
    figures: Sequence[Figure]
    notes: Sequence[str] = ()
    exchanges: Sequence[Exchange] = field(default_factory=tuple)

    @property
    def verdict(self) -> Verdict:
        deciding = [figure for figure in self.figures if figure.limit is not None]
        if any(figure.keeps is False for figure in deciding):
            return "BACKGROUND"
        return "INTERACTIVE" if deciding and all(figure.keeps for figure in deciding) else "NOT MEASURABLE"

    def to_dict(self) -> dict[str, Any]:
        """What was not reached has a value of None too, and a limit that is not kept: JSON has no infinity."""
        finite = [replace(f, value=None) if f.value is not None and math.isinf(f.value) else f for f in self.figures]
        return {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "verdict": self.verdict,
            "figures": [asdict(figure) for figure in finite],
            "notes": list(self.notes),
        }


def at_most(name: str, value: float | None, unit: str, limit: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, limit=f"at most {limit:g} {unit}", keeps=None if value is None else value <= limit)


def at_least(name: str, value: float | None, unit: str, limit: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, limit=f"at least {limit:g} {unit}", keeps=None if value is None else value >= limit)


def percentile_if_any(values: Sequence[float], percent: float) -> float | None:
    """None without values."""
    return percentile(values, percent) if values else None


def reached(values: Sequence[Mapping[str, float]], name: str) -> list[float]:
    """A moment of each answer; of an answer that was empty it was not reached, and counts as later than every other."""
    return [value.get(name, math.inf) for value in values]


def empty(values: Sequence[Mapping[str, float]]) -> list[str]:
    """A note where answers held nothing."""
    count = sum(not value for value in values)
    return [f"{count} of {len(values)} answers were empty: what a person waits for never came"] if count else []


def few(answers: int) -> list[str]:
    """A note where the 95th percentile of so many answers is the slowest of them."""
    return [f"of {answers} answers the 95th percentile is the slowest"] if answers < 20 else []


def refuse_failures(exchanges: Sequence[Exchange], *, but: Sequence[str] = ()) -> None:
    """A scenario is a chain: an answer that failed leaves nothing to judge. Raises EndpointError with the endpoint's words."""
    for number, exchange in enumerate(exchanges, 1):
        if exchange.error is not None and exchange.error not in but:
            raise EndpointError(f"answer {number} of the scenario failed: {exchange.error}: {exchange.error_words or 'no words'}")


def told_prompt_tokens(exchange: Exchange) -> int | None:
    return exchange.usage.prompt_tokens if exchange.usage is not None else None
