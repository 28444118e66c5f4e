"""A claimed speed against what was measured: is "3000 tokens/s" one user's, or all users' together? Reached, and at which concurrency?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from swiftsure.bench.figures.definitions import definition_of
from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.summary import Summary
from swiftsure.errors import UsageError

Scope = Literal["per user", "aggregate"]
Answer = Literal["REACHED", "NOT REACHED", "INCONCLUSIVE", "NOT MEASURED"]

_WHOLE = r"(?<![\w.,])(?<!\s-)(?<!\A-)"  # not the tail of 1e400 or v1.5, nor below 0
_NUMBER = _WHOLE + r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)(?P<thousand>k)?"
_SPEED = re.compile(
    _NUMBER
    + r"\s*(?:output\s+)?(?:tokens?|toks?|t)\s*(?:/|per|a|p)\s*s(?:ec(?:ond)?s?)?\b|"
    + _NUMBER.replace("?P<", "?P<w_")
    + r"\s*tps\b",
    re.I,
)
_TIME = re.compile(_WHOLE + r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|milliseconds?|s|sec(?:ond)?s?)\b", re.I)
_FIRST = re.compile(r"\bttft\b|first\s+token|first\s+answer", re.I)
_ALL = re.compile(
    r"\baggregat\w*|\btotal\b|\bthroughput\b|\ball\s+users\b|\btogether\b|\boverall\b|\bper\s+(?:node|server|chip|gpu|system)\b", re.I
)
_EACH = re.compile(r"\b(?:per|a|each|every|one|single)[\s-]+(?:user|session|stream|request)\b|\beach\b", re.I)
_USERS = re.compile(
    r"(?:\bat|\bwith|\bfor|@)\s*(?P<a>\d+)\s*(?:concurrent\s+)?(?:users?|streams?|requests?|sessions?)?\b|\b(?P<b>\d+)\s+concurrent\b", re.I
)
_PERCENTILE = re.compile(r"\bp(?P<q>50|90|95|99)\b", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claimed number: tokens/s at least, or seconds at most. ``scope`` None: the text does not say whose tokens/s."""

    figure: str  # decode, aggregate or ttft, with the percentile where it has one
    limit: float
    scope: Scope | None = None
    users: int | None = None

    def __str__(self) -> str:
        at = "" if self.users is None else f" at {self.users} user{'s' if self.users != 1 else ''}"
        if self.figure.startswith("ttft"):
            return f"time to first token of {self.limit * 1000:,.6g} ms{at}"
        return f"{self.limit:,.6g} tokens/s {self.scope or '(per user or aggregate is not said)'}{at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The answer to one claim in one sense. ``group``: where it was reached with the fewest users, or where it came closest."""

    claim: Claim
    answer: Answer
    words: str
    group: str | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("answer", "words", "group", "value", "low", "high")}
        return {"claim": str(self.claim), "figure": self.claim.figure, "scope": self.claim.scope, "limit": self.claim.limit} | plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    text: str
    parts: Sequence[Part]
    verdict: str  # an Answer, or REACHED ONLY IN AGGREGATE
    words: str

    @property
    def exit_code(self) -> int:
        """0: reached as claimed. 1: not, or only in another sense. 3: not shown either way."""
        return {"REACHED": 0, "INCONCLUSIVE": 3, "NOT MEASURED": 3}.get(self.verdict, 1)

    def to_dict(self) -> dict[str, Any]:
        parts = [part.to_dict() for part in self.parts]
        return {"text": self.text, "verdict": self.verdict, "words": self.words, "parts": parts}


def parse_claim(text: str) -> list[Claim]:
    """``3000 tokens/s``, ``2.1k tok/s per user``, ``969 tokens/s, TTFT 240 ms``, ``5,000 tps aggregate at 32 users``, ``p95 TTFT 300 ms``.

    Raises UsageError where no number with a unit is found, or a time that is not said to be the first token's.
    """
    claims = list(_speeds(text))
    rest = _SPEED.sub(" ", text)
    match = _TIME.search(rest)
    if match is not None:
        if not _FIRST.search(text):
            raise UsageError(f"a claimed time must say TTFT or first token, as in 'TTFT 240 ms', got {text!r}")
        scale = 0.001 if match["unit"].lower().startswith("m") else 1.0
        percent = _PERCENTILE.search(text)
        limit = float(match["number"]) * scale
        claims.append(Claim(figure=f"ttft_p{percent['q'] if percent else 50}", limit=limit, users=_users(rest)))
    if not claims or any(claim.limit <= 0 for claim in claims):
        raise UsageError(f"a claim must hold a number above 0 with its unit, as in '3000 tokens/s' or 'TTFT 240 ms', got {text!r}")
    return claims


def judge(text: str, summary: Summary) -> Judgement:
    """Holds every number of the claim against the run. Raises UsageError as ``parse_claim`` does."""
    parts = [part for claim in parse_claim(text) for part in _judge(claim, summary)]
    verdict = _verdict(parts)
    return Judgement(text=text, parts=parts, verdict=verdict, words=f"{verdict}: " + "; ".join(part.words for part in parts))


def _speeds(text: str) -> Iterator[Claim]:
    scope: Scope | None = None
    if bool(_ALL.search(text)) != bool(_EACH.search(text)):
        scope = "aggregate" if _ALL.search(text) else "per user"
    for match in _SPEED.finditer(text):
        number, thousand = match["number"] or match["w_number"], match["thousand"] or match["w_thousand"]
        limit = float(number.replace(",", "")) * (1000 if thousand else 1)
        figure = "aggregate" if scope == "aggregate" else "decode_p50"
        yield Claim(figure=figure, limit=limit, scope=scope, users=_users(text))


def _users(text: str) -> int | None:
    match = _USERS.search(_TIME.sub(" ", _SPEED.sub(" ", text)))
    return None if match is None else int(match["a"] or match["b"])


def _judge(claim: Claim, summary: Summary) -> Iterator[Part]:
    if claim.scope is None and not claim.figure.startswith("ttft"):
        yield _answer(replace(claim, figure="decode_p50", scope="per user"), summary)
        yield _answer(replace(claim, figure="aggregate", scope="aggregate"), summary)
    else:
        yield _answer(claim, summary)


def _answer(claim: Claim, summary: Summary) -> Part:
    """By what was asked for the first time, where that was measured: a claim that only a repeated prompt reaches is a cache's."""
    groups = [g for g in summary.groups if g.value(claim.figure) is not None and claim.users in (None, g.users)]
    if claim.figure == "aggregate" and claim.users is None and not any(g.users > 1 or g.rate_per_s is not None for g in groups):
        return Part(claim=claim, answer="NOT MEASURED", words=f"{claim}: NOT MEASURED, no load with more than one user was run")
    if not groups:
        return Part(claim=claim, answer="NOT MEASURED", words=f"{claim}: NOT MEASURED{_why_not(claim, summary)}")
    counted = [group for group in groups if group.row != "warm"] or groups
    answers = [(group, _holds(group.figures[claim.figure], claim)) for group in counted]
    reached = [group for group, answer in answers if answer == "REACHED"]
    if reached:
        best = min(reached, key=_load)
        lost = [g for g, answer in answers if g.row == best.row and _load(g) > _load(best) and answer != "REACHED"]
        where = f"from {best.row} {_at(best)} on" if not lost else f"{best.row} {_at(best)}, not shown {_at(*sorted(lost, key=_load))}"
        return _part(claim, best, "REACHED", where)
    warm = [group for group in groups if group not in counted and _holds(group.figures[claim.figure], claim) == "REACHED"]
    note = f"; reached warm {_at(warm[0])}, where the same prompt had just been sent" if warm else ""
    unsure = [group for group, answer in answers if answer == "INCONCLUSIVE"]
    if unsure:
        best = min(unsure, key=_load)
        return _part(claim, best, "INCONCLUSIVE", f"{best.row} {_at(best)}", note)
    lower = definition_of(claim.figure).better == "lower"
    best = min(counted, key=lambda g: (g.value(claim.figure) or 0.0) * (1 if lower else -1))
    return _part(claim, best, "NOT REACHED", f"the best is {best.row} {_at(best)}", note)


def _load(group: Group) -> tuple[int, float]:
    return group.users, group.rate_per_s or 0.0


def _at(*groups: Group) -> str:
    """``at 1, 4 users``, ``at 2.5 requests/s``."""
    if groups[0].rate_per_s is not None:
        return f"at {', '.join(f'{group.rate_per_s:g}' for group in groups)} requests/s"
    return f"at {', '.join(str(group.users) for group in groups)} user{'' if [group.users for group in groups] == [1] else 's'}"


def _holds(estimate: Estimate, claim: Claim) -> Answer:
    if not estimate.conclusive or estimate.low is None or estimate.high is None:
        return "INCONCLUSIVE"
    if definition_of(claim.figure).better == "lower":
        return "REACHED" if estimate.high <= claim.limit else "NOT REACHED" if estimate.low > claim.limit else "INCONCLUSIVE"
    return "REACHED" if estimate.low >= claim.limit else "NOT REACHED" if estimate.high < claim.limit else "INCONCLUSIVE"


def _part(claim: Claim, group: Group, answer: Answer, where: str, note: str = "") -> Part:
    estimate = group.figures[claim.figure]
    value = estimate.value or 0.0
    seconds = definition_of(claim.figure).unit == "s"
    scale, unit = (1000, "ms") if seconds else (1, "tokens/s")
    interval = "too few samples for an interval"
    if estimate.low is not None and estimate.high is not None:
        interval = f"95 % interval {estimate.low * scale:,.4g} to {estimate.high * scale:,.4g}"
    words = f"{claim}: {answer}, {where}: {value * scale:,.4g} {unit} ({interval}){note}"
    return Part(claim=claim, answer=answer, words=words, group=group.name, value=value, low=estimate.low, high=estimate.high)


def _why_not(claim: Claim, summary: Summary) -> str:
    if claim.users is not None:
        users = sorted({group.users for group in summary.groups})
        return f", measured at {', '.join(map(str, users)) or 'no'} users"
    reasons = [g.refused or (g.figures[claim.figure].words if claim.figure in g.figures else None) for g in summary.groups]
    known = [reason for reason in reasons if reason]
    return f", {known[0]}" if known else ", the run has no such figure"


def _verdict(parts: Sequence[Part]) -> str:
    """Of a number whose scope is not said, the per-user sense counts: records are one user's."""
    senses = {part.claim.scope: part.answer for part in parts if not part.claim.figure.startswith("ttft")}
    if senses.get("aggregate") == "REACHED" and senses.get("per user", "REACHED") != "REACHED":
        return "REACHED ONLY IN AGGREGATE"
    counted = [part.answer for part in parts if not (part.claim.scope == "aggregate" and "per user" in senses)]
    for answer in ("NOT REACHED", "NOT MEASURED", "INCONCLUSIVE"):
        if answer in counted:
            return answer
    return "REACHED"
