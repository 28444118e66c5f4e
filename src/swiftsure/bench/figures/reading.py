"""What one exchange says by itself: its moments as figures, and why a figure cannot be had from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from swiftsure.bench.exchange import Arrival, Exchange, Usage
from swiftsure.bench.figures.estimate import Floats
from swiftsure.bench.figures.settings import Prices
from swiftsure.bench.percentiles import percentile

MOST_TOKENS_PER_S = 20_000.0
"""No machine decodes one user's text as fast as this: what seems to was held back and came in one burst."""
BURST_TOKENS = 16
"""So many tokens that came at no more than two moments, each 1 ms long, were not streamed."""
_SAME_MOMENT_S = 0.001

NO_GAPS: Floats = np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """``values`` by the names of the definitions, seconds, tokens and tokens/s; infinity: not reached. ``missing``: why a name is absent.

    ``error``: the kind of failure, ``unsound`` where the record contradicts itself, ``empty`` where the answer ended well and held nothing.
    Of failed exchanges there are no values. ``gaps_s``, ``token_gaps_s`` and ``arrivals`` serve the pooled figures and are not written to
    files.
    """

    round: int
    row: str
    users: int
    rate_per_s: float | None
    prompt: str
    repeat: int
    started: str
    sent_s: float
    error: str | None = None
    error_words: str | None = None
    tokens: int | None = None
    tokens_by: str | None = None
    chunks: int = 0
    censored: bool = False
    burst: bool = False
    hidden_reasoning: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    gaps_s: Floats = field(default_factory=lambda: NO_GAPS)
    token_gaps_s: Floats = field(default_factory=lambda: NO_GAPS)
    arrivals: Sequence[Arrival] = ()

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("gaps_s", "token_gaps_s", "arrivals")}
        reached = {name: value if math.isfinite(value) else None for name, value in self.values.items()}
        return plain | {"values": reached, "missing": dict(self.missing)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Reading:
        values = {name: math.inf if value is None else float(value) for name, value in plain["values"].items()}
        return cls(**{**plain, "values": values})


def content(exchange: Exchange) -> list[Arrival]:
    """The arrivals that carry something: thinking, answer, a tool call. The role alone and empty pieces do not."""
    return [a for a in exchange.arrivals if a.share != "role" and (a.characters > 0 or a.share == "tool_call")]


def read(exchange: Exchange, prices: Prices | None = None) -> Reading:
    """The exchange's own figures. A record whose moments are not finite or out of order is ``unsound``, and none of it is used."""
    trial, arrivals = exchange.trial, content(exchange)
    place: dict[str, Any] = {name: getattr(trial, name) for name in ("round", "row", "users", "rate_per_s", "prompt", "repeat")}
    place |= {"started": exchange.started, "sent_s": exchange.sent_s, "censored": exchange.censored}
    place |= {"error_words": exchange.error_words, "tokens": exchange.output_tokens, "tokens_by": exchange.tokens_by}
    if exchange.error is not None:
        return Reading(**place, error=exchange.error, chunks=len(arrivals), arrivals=arrivals)
    fault = _fault(exchange, arrivals)
    if fault is not None:
        return Reading(**place | {"error_words": fault}, error="unsound")
    if not arrivals:
        return Reading(**place | {"error_words": _why_empty(exchange)}, error="empty")
    usage = exchange.usage or Usage()
    hidden = exchange.hidden_reasoning or (bool(usage.reasoning_tokens) and not any(a.share == "reasoning" for a in arrivals))
    burst = exchange.burst or _is_burst(arrivals, exchange.output_tokens)
    values, missing = _moments(exchange, arrivals), dict[str, str]()
    speeds, gaps, token_gaps = _speeds(exchange, arrivals)
    why = (
        "hidden thinking: how long its tokens took cannot be seen" if hidden else "the answer came in one burst: only its end can be timed"
    )
    if hidden or burst:
        missing |= dict.fromkeys(("decode", "decode_corrected", "tpot", "itl", "itl_token"), why)
        speeds = {name: value for name, value in speeds.items() if name in ("tpot_whole", "tokens_per_chunk")}
        gaps = gaps if hidden and not burst else NO_GAPS
        token_gaps = NO_GAPS
    values |= speeds
    values |= _counts(exchange, usage, prices)
    return Reading(
        **place,
        chunks=len(arrivals),
        burst=burst,
        hidden_reasoning=hidden,
        values=values,
        missing=missing,
        gaps_s=gaps,
        token_gaps_s=token_gaps,
        arrivals=arrivals,
    )


def _fault(exchange: Exchange, arrivals: Sequence[Arrival]) -> str | None:
    moments = [a.at_s for a in arrivals]
    others = [exchange.first_byte_s, exchange.first_event_s, exchange.last_token_s, exchange.ended_s, exchange.connected_s]
    known = [exchange.sent_s, exchange.scheduled_s, *moments, *(m for m in others if m is not None)]
    if not all(math.isfinite(moment) for moment in known):
        return "a moment of the record is not a finite number"
    if min([*moments, *(m for m in others if m is not None)], default=0.0) < 0:
        return "a moment of the record lies before its request was sent"
    if any(b < a for a, b in pairwise(moments)):
        return "the record's arrivals are out of order"
    if not moments and exchange.last_token_s is not None:
        return "the record has a last token and no arrival"
    if exchange.output_tokens is not None and exchange.output_tokens < 0:
        return f"the record has {exchange.output_tokens} output tokens"
    return None


def _why_empty(exchange: Exchange) -> str:
    if exchange.censored:
        return "all tokens up to the length limit were thinking, none of which was shown"
    return "the answer ended well and held nothing"


def _is_burst(arrivals: Sequence[Arrival], tokens: int | None) -> bool:
    span = arrivals[-1].at_s - arrivals[0].at_s
    if tokens is None or tokens < 2:
        return False
    if len(arrivals) == 1 or span <= 0 or tokens / span > MOST_TOKENS_PER_S:
        return True
    moments, begin = 1, arrivals[0].at_s
    for arrival in arrivals:
        if arrival.at_s - begin > _SAME_MOMENT_S:
            moments, begin = moments + 1, arrival.at_s
    return tokens >= BURST_TOKENS and moments <= 2


def _moments(exchange: Exchange, arrivals: Sequence[Arrival]) -> dict[str, float]:
    late = max(0.0, exchange.sent_s - exchange.scheduled_s)
    first, last = arrivals[0].at_s, _last(exchange, arrivals)
    answer = next((a.at_s for a in arrivals if a.share in ("answer", "tool_call")), math.inf)
    values = {"ttft": first, "ttft_scheduled": first + late, "first_answer": answer, "e2e": last, "e2e_scheduled": last + late}
    for name, moment in (("ttfb", exchange.first_byte_s), ("first_chunk", exchange.first_event_s), ("connect", exchange.connected_s)):
        if moment is not None:
            values[name] = moment
    return values


def _last(exchange: Exchange, arrivals: Sequence[Arrival]) -> float:
    """The last content: by the record, and never before the last arrival it lists."""
    return max(arrivals[-1].at_s, exchange.last_token_s or 0.0)


def _speeds(exchange: Exchange, arrivals: Sequence[Arrival]) -> tuple[dict[str, float], Floats, Floats]:
    times = np.array([a.at_s for a in arrivals])
    gaps = np.diff(times)
    values: dict[str, float] = {}
    if len(gaps):
        values["itl_own_p50"], values["itl_own_p95"] = percentile(gaps, 50), percentile(gaps, 95)
    tokens, first, last = exchange.output_tokens, arrivals[0].at_s, _last(exchange, arrivals)
    if not tokens:
        return values, gaps, NO_GAPS
    values |= {"tpot_whole": last / tokens, "tokens_per_chunk": tokens / len(arrivals)}
    span, later = last - first, tokens - tokens_at_first(exchange, arrivals)
    if span <= 0 or tokens < 2:
        return values, gaps, NO_GAPS
    values |= {"decode": tokens / span, "tpot": span / (tokens - 1)}
    if later <= 0:
        return values, gaps, NO_GAPS
    values["decode_corrected"] = later / span
    return values, gaps, gaps / (later / len(gaps)) if len(gaps) else NO_GAPS


def tokens_at_first(exchange: Exchange, arrivals: Sequence[Arrival]) -> float:
    """Tokens that came at the first moment: by the tokenizer where it was asked, else by the share of characters, at least one."""
    together = [a for a in arrivals if a.at_s == arrivals[0].at_s]
    known = exchange.first_arrival_tokens
    if known is not None and len(together) == 1:
        return float(known)
    characters = sum(a.characters for a in arrivals)
    share = sum(a.characters for a in together) / characters if characters else len(together) / len(arrivals)
    return max(float(known or 1), share * (exchange.output_tokens or 0))


def _counts(exchange: Exchange, usage: Usage, prices: Prices | None) -> dict[str, float]:
    counts = {"output_tokens": exchange.output_tokens, "prompt_tokens": usage.prompt_tokens, "cached_tokens": usage.cached_tokens}
    values = {name: float(count) for name, count in counts.items() if count is not None}
    if prices is not None and usage.prompt_tokens is not None and exchange.output_tokens is not None:
        values["cost"] = prices.cost(usage.prompt_tokens, usage.cached_tokens or 0, exchange.output_tokens)
    return values
