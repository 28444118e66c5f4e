"""The bench checks its own output: what must hold if the figures are right, and what a reader must know before believing them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from swiftsure.bench.exchange import ClientFacts, Exchange
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.load import in_flight_s
from swiftsure.bench.figures.reading import Reading
from swiftsure.bench.figures.settings import Settings

Grade = Literal["note", "warning", "refused"]

LITTLE_TOLERANCE = 0.1
"""Mean in flight by the client and by the exchanges may differ by so much, and by a quarter of a request."""
BUNDLED_GAP_S = 0.0001
"""Arrivals closer than this were made apart and sent together."""
COUNT_TOLERANCE = 0.03
"""So much may the endpoint's own count of tokens differ from the tokenizer's."""
CHARACTERS_A_TOKEN = (0.5, 16.0)
MOST_ERRORS = 0.05
MOST_LAG_S = 0.02
"""A client that stands still longer adds about as much to single gaps."""
_FEW_MILLISECONDS = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``about``: the group's name, or ``run``. ``refused``: there are no figures; ``warning``: do not believe them without reading this."""

    about: str
    grade: Grade
    check: str
    words: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def check_load(about: str, load: Sequence[Exchange], facts: ClientFacts) -> Iterator[Finding]:
    """Little's law: the mean number in flight is the sum of all times in flight over the wall time; the client counted it by itself."""
    flights = [flight for exchange in load if (flight := in_flight_s(exchange)) is not None]
    if facts.wall_s > 0 and flights:
        expected = math.fsum(flights) / facts.wall_s
        if abs(expected - facts.mean_in_flight) > max(0.25, LITTLE_TOLERANCE * facts.mean_in_flight):
            yield Finding(
                about=about,
                grade="warning",
                check="Little's law",
                words=f"the client counted {facts.mean_in_flight:.2f} requests in flight, its exchanges make {expected:.2f}: "
                "some exchange is missing or its moments are wrong",
            )
    wanted = facts.wanted_users
    if wanted is not None and wanted > 1 and facts.mean_in_flight < 0.9 * wanted:
        yield Finding(
            about=about,
            grade="note",
            check="concurrency",
            words=f"{facts.mean_in_flight:.1f} of {wanted} users were in flight on average: the load starts and ends with fewer",
        )


def check_group(group: Group, readings: Sequence[Reading], settings: Settings) -> Iterator[Finding]:
    """All checks of one group's figures against its own exchanges."""
    if group.refused is not None:
        yield Finding(about=group.name, grade="refused", check="client", words=f"no figures: {group.refused}")
        return
    well = [reading for reading in readings if reading.error is None]
    for grade, check, words in (
        *_errors(group, readings),
        *_sums(well),
        *_tokens_times_time(group, well),
        *_bound(group, settings),
        *_streaming(group, well),
        *_schedule(group),
        *_caches(group, well),
    ):
        yield Finding(about=group.name, grade=grade, check=check, words=words)


def check_counts(about: str, exchanges: Sequence[Exchange]) -> Iterator[Finding]:
    """Who counted the tokens, and whether two counts agree."""
    well = [e for e in exchanges if e.error is None and not e.trial.warm_up and e.output_tokens]
    seen = [e for e in well if not e.hidden_reasoning and e.usage is not None]  # a tokenizer cannot count what is hidden
    both = [(e.tokenizer_tokens, e.usage.output_tokens) for e in seen if e.tokenizer_tokens and e.usage and e.usage.output_tokens]
    apart = [(ours, theirs) for ours, theirs in both if abs(ours - theirs) > max(2, COUNT_TOLERANCE * theirs)]
    if apart:
        ours, theirs = apart[0]
        words = f"in {len(apart)} of {len(both)} answers usage and the tokenizer disagree, for example {theirs} against {ours} tokens"
        yield Finding(about=about, grade="warning", check="token counts", words=words)
    estimated = sum(e.tokens_by == "estimated" for e in well)
    if estimated:
        words = f"tokens of {estimated} of {len(well)} answers are ESTIMATED from characters: no usage was sent and no tokenizer is known"
        yield Finding(about=about, grade="warning", check="token counts", words=words)
    odd = [e for e in well if e.characters and not CHARACTERS_A_TOKEN[0] <= e.characters / (e.output_tokens or 1) <= CHARACTERS_A_TOKEN[1]]
    if len(odd) * 10 > len(well):
        ratio = odd[0].characters / (odd[0].output_tokens or 1)
        words = f"{len(odd)} of {len(well)} answers have an odd number of characters a token ({ratio:.2g}): hidden or repeated text"
        yield Finding(about=about, grade="warning", check="token counts", words=words)
    late = sum((e.client_lag_s or 0.0) > MOST_LAG_S for e in well)
    if late * 20 > len(well):
        words = f"the client's own loop stood still for over {MOST_LAG_S * 1000:g} ms during {late} of {len(well)} exchanges"
        yield Finding(about=about, grade="warning", check="client", words=words)
    dropped = Counter(name for e in exchanges for name in e.settings_dropped)
    for name, times in sorted(dropped.items()):
        words = f"the endpoint refused {name}; {times} requests went without it"
        yield Finding(about=about, grade="note", check="settings", words=words)


_Found = Iterator[tuple[Grade, str, str]]


def _errors(group: Group, readings: Sequence[Reading]) -> _Found:
    failed = sum(group.errors.values())
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in group.errors.items())
        example = next((reading.error_words for reading in readings if reading.error and reading.error_words), None)
        words = f"{failed} of {group.exchanges} exchanges failed ({kinds}){'' if example is None else ', for example: ' + example}"
        grade: Grade = "warning" if failed > MOST_ERRORS * group.exchanges else "note"
        yield grade, "errors", words + "; the figures speak of the others alone"


def _sums(well: Sequence[Reading]) -> _Found:
    """The first wait and all gaps make the whole time."""
    apart = []
    for reading in well:
        whole = reading.values["e2e"]
        parts = reading.values["ttft"] + float(reading.gaps_s.sum())
        if len(reading.gaps_s) and abs(whole - parts) > max(_FEW_MILLISECONDS, 0.01 * whole):
            apart.append(whole - parts)
    if apart:
        words = f"in {len(apart)} of {len(well)} exchanges TTFT and the gaps do not sum to the whole (by up to {max(apart, key=abs):.3g} s)"
        yield "warning", "sum of gaps", words


def _tokens_times_time(group: Group, well: Sequence[Reading]) -> _Found:
    """Requests in flight, each at its tokens over its whole time, make the tokens/s of all together."""
    aggregate, flying = group.value("aggregate"), group.value("in_flight")
    spent = math.fsum(reading.values["e2e"] for reading in well)
    if aggregate is None or flying is None or len(well) < 20 or not spent or group.errors:
        return
    expected = flying * sum(reading.tokens or 0 for reading in well) / spent
    if not 0.8 <= aggregate / expected <= 1.25 if expected else aggregate:
        words = f"{flying:.1f} in flight at their own speeds make {expected:.0f} tokens/s, {aggregate:.0f} were counted"
        yield "warning", "tokens x time", words


def _bound(group: Group, settings: Settings) -> _Found:
    bound = settings.bound_tokens_per_s
    speed = group.value("decode_corrected_p50") or group.value("decode_p50")
    if bound is not None and speed is not None and speed > bound:
        words = f"above bound: implies speculation or more chips: {speed:.4g} tokens/s for one user, {bound:.4g} by the stated hardware"
        yield "warning", "physical bound", words


def _streaming(group: Group, well: Sequence[Reading]) -> _Found:
    if group.bursts:
        words = f"{group.bursts} of {group.succeeded} answers came in one burst: for them only end to end is a figure"
        yield ("warning" if group.bursts * 10 > group.succeeded else "note"), "streaming", words
    if group.hidden_reasoning:
        words = f"{group.hidden_reasoning} of {group.succeeded} answers hide their thinking: their decode speed is not measurable"
        yield "warning", "thinking", words
    if group.censored:
        words = f"{group.censored} of {group.exchanges} answers were censored: thinking took all tokens, no answer came"
        yield "warning", "thinking", words
    gaps = np.concatenate([reading.gaps_s for reading in well]) if well else np.zeros(0)
    bundled = float((gaps < BUNDLED_GAP_S).mean()) if len(gaps) else 0.0
    if bundled > 0.1:
        words = f"{bundled:.0%} of the gaps are under {BUNDLED_GAP_S * 1000:g} ms: tokens are sent in bundles; read the gap between tokens"
        yield "warning", "streaming", words
    first, chunk = group.value("ttft_p50"), group.value("first_chunk_p50")
    if first and chunk is not None and chunk < 0.8 * first:
        words = f"the first chunk comes after {chunk:.3g} s and holds nothing; the first content comes after {first:.3g} s"
        yield "note", "first chunk", words


def _schedule(group: Group) -> _Found:
    sent, planned = group.value("ttft_p95"), group.value("ttft_scheduled_p95")
    if sent and planned and planned > 1.1 * sent:
        words = f"requests left late: TTFT p95 is {sent:.3g} s from the send and {planned:.3g} s from the schedule; users feel the latter"
        yield "warning", "coordinated omission", words


def _caches(group: Group, well: Sequence[Reading]) -> _Found:
    known = [r for r in well if "cached_tokens" in r.values and r.values.get("prompt_tokens")]
    if not known:
        return
    cached = sum(r.values["cached_tokens"] for r in known) / sum(r.values["prompt_tokens"] for r in known)
    if group.row in ("cold", "context") and cached > 0.05:
        yield "warning", "prefix cache", f"{cached:.0%} of the prompt tokens came from a cache: this row is not cold"
    if group.row == "warm" and cached < 0.05:
        yield (
            "note",
            "prefix cache",
            f"{cached:.0%} of the prompt tokens came from a cache: the endpoint reuses no prompts, or does not say",
        )
