"""All figures of a run: by group, by round, and what its own checks found. What reports, comparisons and requirements read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from swiftsure.bench.exchange import LONGEST_STOP_S, ClientFacts, Exchange
from swiftsure.bench.figures.checks import Finding, check_counts, check_group, check_load
from swiftsure.bench.figures.definitions import DEFINITIONS
from swiftsure.bench.figures.estimate import Estimate
from swiftsure.bench.figures.group import Group, build_group, own_figures
from swiftsure.bench.figures.load import split_loads
from swiftsure.bench.figures.prefill import prefill_cost
from swiftsure.bench.figures.reading import Reading, read
from swiftsure.bench.figures.settings import Cell, Settings
from swiftsure.errors import UsageError

SCHEMA = "swiftsure.bench-summary/1"
Verdict = Literal["MEASURED", "INCONCLUSIVE", "REFUSED", "FAILED"]

START = "start"
"""The row of the one request before all others: what the first caller of a cold server waits for."""
_ROWS = ("cold", "warm", "context")
_BY_ROUND = ("ttft", "decode", "e2e", "itl_token")
_Key = tuple[str, int, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """``groups``: over all rounds, by row, users and rate, ``cold`` first; ``by_round``: TTFT, decode speed, end to end and token
    gaps of each round apart. ``readings``: each exchange that counts, which comparisons pair by prompt. ``cold_starts``: the first
    request of each round, which is in no figure."""

    settings: Settings
    groups: Sequence[Group] = ()
    by_round: Sequence[Group] = ()
    prefill: Estimate | None = None
    findings: Sequence[Finding] = ()
    readings: Sequence[Reading] = ()
    not_measured: Sequence[str] = ()
    clients: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    cold_starts: Sequence[Reading] = ()

    @property
    def main(self) -> Group | None:
        """The group that the first line speaks of: ``cold`` with the fewest users, else the first there is."""
        return self.groups[0] if self.groups else None

    @property
    def verdict(self) -> Verdict:
        """Whether the two figures that matter, TTFT and decode speed, were had: never one alone."""
        main = self.main
        if main is None or (not main.succeeded and main.refused is None):
            return "FAILED"
        if main.refused is not None:
            return "REFUSED"
        known = all(name in main.figures and main.figures[name].conclusive for name in ("ttft_p50", "decode_p50"))
        return "MEASURED" if known else "INCONCLUSIVE"

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.grade != "note"]

    def group(self, row: str, users: int | None = None, rate_per_s: float | None = None) -> Group | None:
        """The group of a row; ``users`` None: the one with the fewest. None where there is none."""
        fitting = [g for g in self.groups if g.row == row and g.rate_per_s == rate_per_s and users in (None, g.users)]
        return min(fitting, key=lambda g: g.users) if fitting else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "settings": self.settings.to_dict(),
            "groups": [group.to_dict() for group in self.groups],
            "by_round": [group.to_dict() for group in self.by_round],
            "prefill": None if self.prefill is None else self.prefill.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "not_measured": list(self.not_measured),
            "clients": [dict(client) for client in self.clients],
            "formulas": {name: definition.formula for name, definition in DEFINITIONS.items()},
            "readings": [reading.to_dict() for reading in self.readings],
            "cold_starts": [reading.to_dict() for reading in self.cold_starts],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Summary:
        """Raises UsageError for anything that ``to_dict`` did not write."""
        if not isinstance(plain, Mapping) or plain.get("schema") != SCHEMA:
            found = plain.get("schema") if isinstance(plain, Mapping) else type(plain).__name__
            raise UsageError(f"a summary of a bench run must have the schema {SCHEMA}, got {found!r}")
        try:
            return cls(
                settings=Settings.from_dict(plain["settings"]),
                groups=[Group.from_dict(group) for group in plain["groups"]],
                by_round=[Group.from_dict(group) for group in plain["by_round"]],
                prefill=None if plain["prefill"] is None else Estimate.from_dict(plain["prefill"]),
                findings=[Finding(**finding) for finding in plain["findings"]],
                readings=[Reading.from_dict(reading) for reading in plain["readings"]],
                cold_starts=[Reading.from_dict(reading) for reading in plain["cold_starts"]],
                not_measured=plain["not_measured"],
                clients=plain["clients"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise UsageError(f"the summary of the bench run is damaged: {type(fault).__name__} {fault}") from None


def load_summary(path: str | Path) -> Summary:
    """Reads what ``Summary.to_dict`` wrote. Raises UsageError where the file is no such thing."""
    try:
        plain = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise UsageError(f"{path} cannot be read as the summary of a bench run: {fault}") from None
    return Summary.from_dict(plain)


def summarize(exchanges: Sequence[Exchange], cells: Sequence[Cell] = (), settings: Settings | None = None) -> Summary:
    """All figures of a run. The order of ``exchanges`` does not matter; a load whose client was saturated is refused, with its reason."""
    settings = settings or Settings()
    by_key: dict[_Key, list[Exchange]] = {}
    starts = sorted((exchange for exchange in exchanges if exchange.trial.row == START), key=_place)
    for exchange in sorted((exchange for exchange in exchanges if exchange.trial.row != START), key=_place):
        by_key.setdefault((exchange.trial.row, exchange.trial.users, exchange.trial.rate_per_s), []).append(exchange)
    groups, by_round, findings, readings = list[Group](), list[Group](), list[Finding](), list[Reading]()
    for key in sorted(by_key, key=_rank):
        part = _Part(by_key[key], [cell for cell in cells if (cell.row, cell.users, cell.rate_per_s) == key], settings)
        groups.append(part.group)
        by_round += part.rounds()
        findings += part.findings()
        readings += part.readings
    prefill = prefill_cost(readings, settings)
    return Summary(
        settings=settings,
        groups=groups,
        by_round=by_round,
        prefill=prefill,
        findings=findings,
        readings=readings,
        not_measured=list(_not_measured(groups, settings)),
        clients=[_client(cell) for cell in cells],
        cold_starts=[read(exchange, settings.prices) for exchange in starts],
    )


class _Part:
    """The exchanges of one group, without those of refused loads."""

    def __init__(self, exchanges: Sequence[Exchange], cells: Sequence[Cell], settings: Settings) -> None:
        self.settings = settings
        self.loads: list[tuple[list[Exchange], ClientFacts | None]] = []
        self.cut_off: list[tuple[int, int, int]] = []  # round, loads that were cut off, of how many
        refusals = []
        for number in sorted({exchange.trial.round for exchange in exchanges}):
            loads = split_loads([exchange for exchange in exchanges if exchange.trial.round == number])
            facts = [cell.facts for cell in cells if cell.round == number]
            if facts and len(facts) < len(loads):
                self.cut_off.append((number, len(loads) - len(facts), len(loads)))
            for load, fact in zip(loads, _aligned(facts, len(loads)), strict=True):
                refusal = _stood_still(load) if fact is None else fact.saturated
                if refusal is not None:
                    refusals.append(f"round {number}: {refusal}")
                else:
                    self.loads.append((load, fact))
        self.refusals = refusals
        kept = [exchange for load, _ in self.loads for exchange in load]
        self.kept = sorted(kept, key=_place)
        self.readings = [read(exchange, settings.prices) for exchange in self.kept if not exchange.trial.warm_up]
        refused = "; ".join(refusals) if refusals and not kept else None
        self.group = build_group(self.kept or exchanges, self.readings, settings, refused=refused)

    def rounds(self) -> Iterator[Group]:
        for number in sorted({reading.round for reading in self.readings}):
            mine = [exchange for exchange in self.kept if exchange.trial.round == number]
            readings = [reading for reading in self.readings if reading.round == number]
            well = [reading for reading in readings if reading.error is None]
            yield Group(
                row=self.group.row,
                users=self.group.users,
                rate_per_s=self.group.rate_per_s,
                round=number,
                started=min(exchange.started for exchange in mine),
                exchanges=len(readings),
                succeeded=len(well),
                figures=own_figures(well, self.settings, _BY_ROUND),
            )

    def findings(self) -> Iterator[Finding]:
        yield from check_group(self.group, self.readings, self.settings)
        if self.group.refused is None:
            for refusal in self.refusals:
                yield Finding(about=self.group.name, grade="refused", check="client", words=f"left out, {refusal}")
        for number, cut, count in self.cut_off:
            words = f"{cut} of {count} loads of round {number} {'was' if cut == 1 else 'were'} cut off before the client said how it fared"
            yield Finding(about=self.group.name, grade="note", check="client", words=f"{words}: of these only its stops were looked at")
        yield from check_counts(self.group.name, self.kept)
        for load, facts in self.loads:
            if facts is not None:
                yield from check_load(f"{self.group.name}, round {load[0].trial.round}", load, facts)


def _stood_still(load: Sequence[Exchange]) -> str | None:
    """Of a load that was cut off before the client could say how it fared: what its exchanges noted."""
    worst_s = max(exchange.client_lag_s or 0.0 for exchange in load)
    return f"the client stood still for {worst_s:.1f} s" if worst_s > LONGEST_STOP_S else None


def _aligned(facts: Sequence[ClientFacts], count: int) -> list[ClientFacts | None]:
    """Facts are written when a load ends: those of loads that were cut off are absent, and a resumed cell ends with its own."""
    last = list(facts[-count:])
    return [None] * (count - len(last)) + last


def _place(exchange: Exchange) -> tuple[Any, ...]:
    trial = exchange.trial
    return (
        trial.round,
        trial.row,
        trial.users,
        trial.rate_per_s or 0.0,
        trial.prompt,
        trial.repeat,
        exchange.started,
        str(exchange.sent_s),
    )


def _rank(key: _Key) -> tuple[Any, ...]:
    row, users, rate = key
    return (_ROWS.index(row) if row in _ROWS else len(_ROWS), row, rate is not None, rate or 0.0, users)


def _client(cell: Cell) -> dict[str, Any]:
    facts = {name: getattr(cell.facts, name) for name in cell.facts.__slots__}
    return {"round": cell.round, "row": cell.row, "users": cell.users, "rate_per_s": cell.rate_per_s} | facts


def _not_measured(groups: Sequence[Group], settings: Settings) -> Iterator[str]:
    rows = {group.row for group in groups}
    if "cold" not in rows:
        yield "cold prompts: whether a prefix cache helped is not known"
    if "warm" not in rows:
        yield "warm prompts: what a prefix cache gains"
    if "context" not in rows:
        yield "a long context: the prefill cost"
    if not any(group.users > 1 or group.rate_per_s is not None for group in groups):
        yield "more than one user at a time: tokens/s of all together, and what company costs each"
    rounds = max((estimate.rounds for group in groups for estimate in group.figures.values()), default=0)
    if rounds < 3:
        yield f"other times of day: {rounds or 'no'} round{'' if rounds == 1 else 's'}, the protocol asks for 3"
    if settings.slo is None:
        yield "goodput: no limits were given (--slo ttft=0.3,itl=0.05)"
    if settings.prices is None:
        yield "cost: no prices were given"
    if settings.bound_tokens_per_s is None:
        yield "the physical bound: the hardware's bandwidth and the model's bytes were not stated"
    yield "the quality of the answers: swiftsure verify compares it"
