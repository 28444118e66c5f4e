"""Two runs of the same prompts side by side: this month against last, or two providers. Paired by prompt, a verdict a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from swiftsure.bench.figures.definitions import definition_of
from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.load import share
from swiftsure.bench.figures.reading import Reading
from swiftsure.bench.figures.summary import Summary
from swiftsure.records.statistics import Ratio, median, paired_ratio

Change = Literal["better", "worse", "no difference shown", "INCONCLUSIVE"]

PAIRED = ("ttft", "first_answer", "decode", "decode_corrected", "tpot", "itl_own_p95", "e2e", "cost")
"""Compared exchange by exchange within each prompt; ``itl_own_p95`` is the 95th percentile of an exchange's own gaps."""
SHARED = ("aggregate", "requests_per_s", "goodput")
"""One value a load: compared by their intervals, as independent, as the two shares below are."""
ENDED_WELL, ANSWERED = "ended_well", "answered"
"""Shares of exchanges: compared where not all did, for the figures above speak of those alone that did."""
_TITLES = {
    "itl_own_p95": ("95th percentile of an exchange's gaps", "s"),
    ENDED_WELL: ("share of exchanges that ended well", "share"),
    ANSWERED: ("share of these whose answer began, thinking aside", "share"),
}
_MAY_DIFFER = frozenset({"rounds", "repeats", "users", "warm", "context_tokens"})
"""What the protocols may differ in: rows and loads are matched one by one."""
_LENGTHS_APART = 1.2
_WORDS = {"cost": ("cheaper", "dearer"), ENDED_WELL: ("better", "worse"), ANSWERED: ("better", "worse")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """``ratio``: how many times as good B is as A, above 1 is better, whichever way the figure runs (A / B of times, B / A of speeds)."""

    group: str
    figure: str
    title: str
    unit: str
    a: float
    b: float
    ratio: float
    low: float | None
    high: float | None
    pairs: int
    prompts: int
    change: Change

    @property
    def verdict(self) -> str:
        """In the words of the figure: faster, slower, cheaper, dearer."""
        good, bad = _WORDS.get(self.figure, ("faster", "slower"))
        return {"better": good, "worse": bad}.get(self.change, self.change)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"verdict": self.verdict}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """``refusals``: why the two cannot be compared, then there are no rows. ``marks``: what differs and must be read with the rows."""

    rows: Sequence[Compared] = ()
    refusals: Sequence[str] = ()
    marks: Sequence[str] = ()

    @property
    def comparable(self) -> bool:
        return not self.refusals

    @property
    def worse(self) -> list[Compared]:
        return [row for row in self.rows if row.change == "worse"]

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": "swiftsure.bench-comparison/1",
            "comparable": self.comparable,
            "refusals": list(self.refusals),
            "marks": list(self.marks),
            "rows": [row.to_dict() for row in self.rows],
        }


def compare(a: Summary, b: Summary, *, despite: bool = False) -> Comparison:
    """B against A. Refuses, in words, what was measured on other prompts or by another protocol; ``despite`` marks it instead."""
    refusals, marks = list(_refusals(a, b)), list(_marks(a, b))
    left_out = _other_contexts(a, b)
    shared = [(group, other) for group in a.groups if group.row not in left_out and (other := _same(b, group)) is not None]
    marks += [f"the context row is left out: {words}" for words in left_out.values()]
    if not shared:
        rows = [", ".join(group.name for group in side.groups) or "nothing" for side in (a, b)]
        return Comparison(
            refusals=[*refusals, f"A measured {rows[0]}, B measured {rows[1]}: they share no row at the same load"], marks=marks
        )
    if refusals and not despite:
        return Comparison(refusals=refusals, marks=marks)
    alone = [group.name for side, other in ((a, b), (b, a)) for group in side.groups if _same(other, group) is None]
    if alone:
        marks.append(f"measured on one side only, and left out: {', '.join(alone)}")
    found: list[Compared] = []
    for one, other in shared:
        sides = (_readings(a, one), _readings(b, other))
        marks += list(_group_marks(one, other, sides))
        figures = [(name, one.figures.get(name), other.figures.get(name)) for name in SHARED]
        found += [*_paired(one, sides), *_independent(one, [*figures, *_shares((one, other), sides)])]
    return Comparison(rows=found, marks=[*refusals, *marks])


def _refusals(a: Summary, b: Summary) -> Iterator[str]:
    prompts = [side.settings.about.get("prompts_sha256") for side in (a, b)]
    if None not in prompts and prompts[0] != prompts[1]:
        yield f"the prompts differ (sha256 {str(prompts[0])[:12]} and {str(prompts[1])[:12]}): another text is another work"
    protocols = [side.settings.about.get("protocol") or {} for side in (a, b)]
    if all(isinstance(protocol, Mapping) for protocol in protocols):
        for name in sorted(set(protocols[0]) | set(protocols[1])):
            values = [protocol.get(name, "not said") for protocol in protocols]
            if values[0] != values[1] and name not in _MAY_DIFFER:
                yield f"the protocols differ: {name} is {values[0]} in A and {values[1]} in B"


def _marks(a: Summary, b: Summary) -> Iterator[str]:
    if None in [side.settings.about.get("prompts_sha256") for side in (a, b)]:
        yield "one side does not say which prompts it sent: that they are the same is not known"
    rounds = [len({reading.round for reading in side.readings}) for side in (a, b)]
    if min(rounds) < 2:
        yield f"{rounds[0]} and {rounds[1]} rounds: the intervals say nothing of other times of day"
    for name, side in (("A", a), ("B", b)):
        serious = len(side.warnings)
        if serious:
            yield f"{name} carries {serious} warning{'s' if serious > 1 else ''} of its own: see its report"


def _group_marks(one: Group, other: Group, sides: tuple[list[Reading], list[Reading]]) -> Iterator[str]:
    lengths = [one.value("output_tokens_p50"), other.value("output_tokens_p50")]
    if lengths[0] and lengths[1] and not 1 / _LENGTHS_APART <= lengths[1] / lengths[0] <= _LENGTHS_APART:
        yield f"{one.name}: answers have {lengths[0]:g} tokens in A and {lengths[1]:g} in B, so end to end and cost are of another work"
    if one.tokens_by != other.tokens_by:
        counted = [" and ".join(group.tokens_by) or "nobody" for group in (one, other)]
        yield f"{one.name}: tokens were counted by {counted[0]} in A and by {counted[1]} in B"
    for name, group in (("A", one), ("B", other)):
        if group.refused is not None:
            yield f"{one.name}: {name} has no figures: {group.refused}"
        elif group.errors:
            yield f"{one.name}: {sum(group.errors.values())} of {group.exchanges} exchanges of {name} failed and are not compared"
    for name in SHARED:
        value, definition = other.value(name), definition_of(name)
        if one.value(name) == 0 and value:
            yield f"{one.name}: {definition.title} were 0 in A and are {value:.3g} {definition.unit} in B, so there is no ratio"
    prompts = [{reading.prompt for reading in side} for side in sides]
    if prompts[0] ^ prompts[1]:
        yield f"{one.name}: {len(prompts[0] & prompts[1])} prompts ended well on both sides, {len(prompts[0] ^ prompts[1])} on one only"


def _other_contexts(a: Summary, b: Summary) -> dict[str, str]:
    """The context row, where the two pasted contexts of other lengths above their prompts."""
    lengths = [side.settings.context_tokens for side in (a, b)]
    if None in lengths or lengths[0] == lengths[1]:
        return {}
    return {"context": f"A pasted {lengths[0]:,} tokens above the prompts, B {lengths[1]:,}"}


def _same(side: Summary, group: Group) -> Group | None:
    return next((g for g in side.groups if (g.row, g.users, g.rate_per_s) == (group.row, group.users, group.rate_per_s)), None)


def _readings(side: Summary, group: Group) -> list[Reading]:
    key = (group.row, group.users, group.rate_per_s)
    return sorted(
        (r for r in side.readings if (r.row, r.users, r.rate_per_s) == key and r.error is None), key=lambda r: (r.prompt, r.round, r.repeat)
    )


def _paired(group: Group, sides: tuple[list[Reading], list[Reading]]) -> Iterator[Compared]:
    for name in PAIRED:
        prompts = sorted({reading.prompt for reading in sides[0]} & {reading.prompt for reading in sides[1]})
        values = [[_values(side, prompt, name) for prompt in prompts] for side in sides]
        higher = name not in _TITLES and definition_of(name).better == "higher"
        pairs = [list(zip(*((b, a) if higher else (a, b)), strict=False)) for a, b in zip(*values, strict=True)]
        ratio = paired_ratio(pairs)
        if ratio is not None:
            middles = [median(value for own in side for value in own) for side in values]
            yield _compared(group, name, middles, ratio)


def _values(side: Sequence[Reading], prompt: str, name: str) -> list[float]:
    found = (reading.values.get(name, math.nan) for reading in side if reading.prompt == prompt)
    return [value for value in found if math.isfinite(value) and value > 0]


def _shares(groups: tuple[Group, Group], sides: tuple[list[Reading], list[Reading]]) -> Iterator[tuple[str, Estimate, Estimate]]:
    """``sides``: what ended well. A share that is whole on both sides, or of nothing, is left out."""
    begun = [sum(math.isfinite(reading.values["first_answer"]) for reading in side) for side in sides]
    ended = [(len(side), group.exchanges if group.refused is None else 0) for group, side in zip(groups, sides, strict=True)]
    for name, counts in ((ENDED_WELL, ended), (ANSWERED, [(hits, len(side)) for hits, side in zip(begun, sides, strict=True)])):
        if all(of for _, of in counts) and any(hits < of for hits, of in counts):
            yield name, share(*counts[0]), share(*counts[1])


def _independent(group: Group, figures: Sequence[tuple[str, Estimate | None, Estimate | None]]) -> Iterator[Compared]:
    """Higher is better in all of them. What fell to 0 is the worst there is, and no reason to leave it out; from 0 there is no ratio."""
    for name, a, b in figures:
        if a is None or b is None or not a.value or b.value is None:
            continue
        ratio, low, high = b.value / a.value, None, None
        reaches = [_log_reach(a), _log_reach(b)]
        if not b.value and b.high is not None and a.low:
            low, high = 0.0, b.high / a.low
        elif reaches[0] is not None and reaches[1] is not None:
            reach = math.hypot(reaches[0], reaches[1])
            low, high = ratio * math.exp(-reach), ratio * math.exp(reach)
        found = Ratio(value=ratio, low=low, high=high, pairs=min(a.count, b.count), groups=min(a.prompts, b.prompts), spread=None)
        yield _compared(group, name, [a.value, b.value], found)


def _log_reach(estimate: Estimate) -> float | None:
    """How far the interval reaches on the logarithm, the farther side."""
    if not estimate.value or not estimate.low or not estimate.high:
        return None
    return max(math.log(estimate.high / estimate.value), math.log(estimate.value / estimate.low))


def _compared(group: Group, name: str, middles: Sequence[float], ratio: Ratio) -> Compared:
    change: Change = "no difference shown"
    if ratio.low is None or ratio.high is None:
        change = "INCONCLUSIVE"
    elif ratio.low > 1:
        change = "better"
    elif ratio.high < 1:
        change = "worse"
    title, unit = _TITLES[name] if name in _TITLES else (definition_of(name).title, definition_of(name).unit)
    return Compared(
        group=group.name,
        figure=name,
        title=title,
        unit=unit,
        a=middles[0],
        b=middles[1],
        ratio=ratio.value,
        low=ratio.low,
        high=ratio.high,
        pairs=ratio.pairs,
        prompts=ratio.groups,
        change=change,
    )
