"""Every figure by name: what it is called, its unit, its formula, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """``spread``: the figure is a distribution over exchanges (or gaps) and stands as ``NAME_p50`` and so on; else one value a group."""

    name: str
    title: str
    unit: str
    formula: str
    better: Better | None
    spread: bool = True


def _table(*rows: tuple[str, str, str, str, Better | None, bool]) -> dict[str, Definition]:
    return {
        name: Definition(name=name, title=title, unit=unit, formula=formula, better=better, spread=spread)
        for name, title, unit, formula, better, spread in rows
    }


DEFINITIONS = _table(
    (
        "ttft",
        "time to first token",
        "s",
        "t_first - t_sent, t_first the arrival of the first content that is not empty: thinking, answer or tool call; never the role",
        "lower",
        True,
    ),
    (
        "ttft_scheduled",
        "time to first token, from the schedule",
        "s",
        "t_first - t_scheduled: what a user waits who came when the schedule said, however late the request left",
        "lower",
        True,
    ),
    ("first_chunk", "first streamed chunk", "s", "t of the first event of any kind - t_sent, the role alone included", "lower", True),
    ("ttfb", "time to first byte", "s", "t of the first byte of the answer's body - t_sent", "lower", True),
    (
        "connect",
        "connection",
        "s",
        "from the start of connecting until the request could be sent; of the others, those from the schedule hold it",
        "lower",
        True,
    ),
    (
        "first_answer",
        "time to first answer token",
        "s",
        "t of the first answer text or tool call - t_sent; an answer that never came counts as later than all others, not as 0",
        "lower",
        True,
    ),
    ("decode", "decode speed of one user", "tokens/s", "N / (t_last - t_first), N output tokens, thinking included", "higher", True),
    (
        "decode_corrected",
        "decode speed, first chunk corrected",
        "tokens/s",
        "(N - tokens that came at t_first) / (t_last - t_first): those of the first chunk were not made in that time",
        "higher",
        True,
    ),
    ("tpot", "time per output token after the first", "s", "(t_last - t_first) / (N - 1)", "lower", True),
    ("tpot_whole", "time per output token, the first one's wait included", "s", "(t_last - t_sent) / N", "lower", True),
    ("itl", "gap between arrivals", "s", "t_i - t_(i-1) over all arrivals with content, all exchanges pooled", "lower", True),
    (
        "itl_token",
        "gap between tokens",
        "s",
        "(t_i - t_(i-1)) / (tokens an arrival after the first of that exchange), all exchanges pooled",
        "lower",
        True,
    ),
    ("e2e", "end to end", "s", "t_last - t_sent; usage and [DONE] that trail the last token are not in it", "lower", True),
    ("e2e_scheduled", "end to end, from the schedule", "s", "t_last - t_scheduled", "lower", True),
    ("output_tokens", "output tokens", "tokens", "N by the last usage, else by the tokenizer over the whole text", None, True),
    ("prompt_tokens", "prompt tokens", "tokens", "by the last usage", None, True),
    ("cached_tokens", "prompt tokens from a cache", "tokens", "by the last usage", None, True),
    ("tokens_per_chunk", "tokens a chunk", "tokens", "N / arrivals with content", None, True),
    (
        "cost",
        "cost of a request",
        "money",
        "((prompt - cached) x prompt price + cached x cached price + N x output price) / 1,000,000",
        "lower",
        True,
    ),
    (
        "aggregate",
        "tokens/s of all users together",
        "tokens/s",
        "tokens that came in the window / window; the window of a load goes from its first request that counts until its last one leaves",
        "higher",
        False,
    ),
    ("requests_per_s", "whole answers a second", "1/s", "exchanges that ended well / window, by when they were sent", "higher", False),
    (
        "goodput",
        "good answers a second",
        "1/s",
        "exchanges that ended well and kept every limit / window; what cannot be measured keeps no limit",
        "higher",
        False,
    ),
    ("good_share", "share of good answers", "share", "exchanges that kept every limit / exchanges, failed ones included", "higher", False),
    ("in_flight", "requests in flight", "requests", "sum of times in flight within the window / window", None, False),
    ("error_share", "share of failed exchanges", "share", "exchanges with an error / exchanges", "lower", False),
    (
        "prefill",
        "prefill cost of 1,000 tokens",
        "s",
        "(TTFT with context - TTFT cold) / (tokens added / 1,000), medians by prompt, then the median over prompts",
        "lower",
        False,
    ),
)

PERCENTILES = (50, 90, 95, 99)


def known_names() -> list[str]:
    """Every name a figure of a group can have, in the order of the definitions."""
    return [
        name
        for definition in DEFINITIONS.values()
        for name in ([f"{definition.name}_p{q}" for q in PERCENTILES] if definition.spread else [definition.name])
    ]


def definition_of(name: str) -> Definition:
    """Of a group's figure, with or without its percentile. Raises KeyError for an unknown name."""
    stem, mark, percent = name.rpartition("_p")
    return DEFINITIONS[stem] if mark and percent.isdigit() and stem in DEFINITIONS else DEFINITIONS[name]
