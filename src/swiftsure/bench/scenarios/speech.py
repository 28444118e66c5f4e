"""Would a listener hear a gap? Words that come from a stream, spoken at a steady rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swiftsure.bench.exchange import Exchange

_CHARACTERS_A_WORD = 6.0  # English, the blank included; where the text is not known
HEARD_S = 0.05
"""A pause inside speech that is shorter than this is not noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """``gaps_s``: every time that the voice had to wait for a word for longer than is noticed. ``words``: of the whole answer."""

    words: int
    gaps_s: tuple[float, ...]
    words_per_s: float | None


def word_times(exchange: Exchange) -> list[float]:
    """When each word of the answer was there whole, in seconds since the request was sent; a word may be spoken when its end has come."""
    answer = [arrival for arrival in exchange.arrivals if arrival.share == "answer" and arrival.characters]
    characters = sum(arrival.characters for arrival in answer)
    words = len(exchange.text.split()) if exchange.text else round(characters / _CHARACTERS_A_WORD)
    times: list[float] = []
    come = 0
    for arrival in answer:
        come += arrival.characters
        times += [arrival.at_s] * (int(words * come / characters) - len(times))
    return times


def speak(times: Sequence[float], *, words_per_s: float, delay_s: float) -> Speech:
    """Speaks from ``delay_s`` after the first word on. A word that is late holds the speech up, and all after it begin later."""
    if not times:
        return Speech(words=0, gaps_s=(), words_per_s=None)
    now_s, gaps = times[0] + delay_s, []
    for at_s in times:
        if at_s - now_s > HEARD_S:
            gaps.append(at_s - now_s)
        now_s = max(now_s, at_s) + 1 / words_per_s
    span_s = times[-1] - times[0]
    return Speech(words=len(times), gaps_s=tuple(gaps), words_per_s=(len(times) - 1) / span_s if span_s > 0 else None)
