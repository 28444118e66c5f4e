"""Requirements on a run's figures, for a CI job: ``ttft_p50<0.3 decode_p50>100 warm.ttft_p95<=250ms aggregate@8>=900``.

::

    requirements = requirement { blank or comma, requirement }
    requirement  = [row "."] figure ["@" users] operator number ["ms" | "s" | "%"]
    operator     = "<" | "<=" | ">" | ">="

Without a row, ``cold`` (or the first row that was measured); without users, the fewest of that row. Numbers are in the figure's unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from swiftsure.bench.figures.definitions import definition_of, known_names
from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.summary import Summary
from swiftsure.errors import UsageError

_GRAMMAR = re.compile(
    r"(?:(?P<row>[A-Za-z][\w-]*)\.)?(?P<figure>[a-z_]\w*)(?:@(?P<users>\d+))?\s*(?P<operator><=|>=|<|>)\s*"
    r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)(?P<unit>ms|s|%)?"
)
_BETWEEN = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """``limit`` in the figure's own unit; ``text`` as it was written."""

    text: str
    figure: str
    operator: str
    limit: float
    row: str | None = None
    users: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``kept`` by the figure itself (the median, where it is one); ``words`` also say when its interval reaches over the limit."""

    requirement: Requirement
    kept: bool
    value: float | None
    words: str

    def to_dict(self) -> dict[str, Any]:
        return {"requirement": self.requirement.text, "kept": self.kept, "value": self.value, "words": self.words}


def parse(text: str) -> list[Requirement]:
    """Raises UsageError for what is not of the grammar, and for an unknown figure, with the known ones."""
    found, at = [], 0
    while at < len(text):
        at = _between(text, at)
        if at == len(text):
            break
        match = _GRAMMAR.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] not in " \t\r\n,"):
            raise UsageError(f"a requirement must read [ROW.]FIGURE[@USERS] < NUMBER, as in ttft_p50<0.3, got {text[at : at + 60]!r}")
        found.append(_requirement(match))
        at = match.end()
    if not found:
        raise UsageError(f"at least 1 requirement must be given, as in ttft_p50<0.3, got {text!r}")
    return found


def evaluate(requirements: Sequence[Requirement], summary: Summary) -> list[Outcome]:
    """One outcome a requirement. A figure that was not measured breaks it."""
    return [_evaluate(requirement, summary) for requirement in requirements]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 where all are kept, else 1."""
    return 0 if all(outcome.kept for outcome in outcomes) else 1


def _between(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return match.end() if match else at


def _requirement(match: re.Match[str]) -> Requirement:
    figure, unit = match["figure"], match["unit"]
    if figure not in known_names():
        close = [name for name in known_names() if name.startswith(figure) or figure.startswith(name.rpartition("_p")[0] or name)]
        raise UsageError(f"no figure is called {figure!r}; known are {', '.join(close or known_names())}")
    own = definition_of(figure).unit
    if (unit in ("ms", "s") and own != "s") or (unit == "%" and own != "share"):
        raise UsageError(f"{figure} is in {own}, and cannot be compared with a number in {unit}, got {match[0]!r}")
    limit = float(match["number"]) * {"ms": 0.001, "%": 0.01}.get(unit or "", 1.0)
    if not math.isfinite(limit):
        raise UsageError(f"a limit must be a finite number, got {match['number']!r:.60}")
    users = int(match["users"]) if match["users"] else None
    return Requirement(text=match[0], figure=figure, operator=match["operator"], limit=limit, row=match["row"], users=users)


def _evaluate(requirement: Requirement, summary: Summary) -> Outcome:
    row = requirement.row or (summary.main.row if summary.main is not None else "cold")
    if requirement.figure == "prefill":
        estimate = summary.prefill or Estimate(value=None, words="the rows cold and context were not both measured")
        return _judged(requirement, estimate, "prefill")
    fitting = [g for g in summary.groups if g.row == row and requirement.users in (None, g.users)]
    if not fitting:
        measured = ", ".join(group.name for group in summary.groups) or "nothing"
        wanted = row if requirement.users is None else f"{row} at {requirement.users} users"
        return Outcome(requirement=requirement, kept=False, value=None, words=f"broken: {wanted} was not measured, only {measured}")
    group = min(fitting, key=lambda g: (g.rate_per_s is not None, g.users, g.rate_per_s or 0.0))
    if group.refused is not None:
        return Outcome(requirement=requirement, kept=False, value=None, words=f"broken: {group.name} has no figures: {group.refused}")
    estimate = group.figures.get(requirement.figure) or Estimate(value=None, words="not measured")
    return _judged(requirement, estimate, group.name)


def _judged(requirement: Requirement, estimate: Estimate, group: str) -> Outcome:
    value, limit, operator = estimate.value, requirement.limit, requirement.operator
    if value is None:
        return Outcome(requirement=requirement, kept=False, value=None, words=f"broken: {group}: {estimate.words or 'not measured'}")
    kept = _holds(value, operator, limit)
    words = f"{'kept' if kept else 'broken'}: {group}: {value:.4g} {definition_of(requirement.figure).unit}"
    if estimate.low is None and estimate.high is None:
        words += " (no interval)" if estimate.words is None else f" ({estimate.words})"
    else:
        bounds = [bound for bound in (estimate.low, estimate.high) if bound is not None]
        unsure = any(_holds(bound, operator, limit) != kept for bound in bounds)
        words += f" ({' to '.join(f'{bound:.4g}' for bound in bounds)}{', which reaches over the limit' if unsure else ''})"
    return Outcome(requirement=requirement, kept=kept, value=value, words=words)


def _holds(value: float, operator: str, limit: float) -> bool:
    return {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[operator]
