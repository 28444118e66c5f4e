"""Reasoning: a model that thinks before it answers thinks more in the same seconds when its tokens come faster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from swiftsure.bench.exchange import Exchange, Prompt
from swiftsure.bench.figures.reading import content, read
from swiftsure.bench.prompts.change import cold
from swiftsure.bench.scenarios.base import Answer, Asker, Figure, at_least, at_most, percentile_if_any, refuse_failures
from swiftsure.errors import UsageError

_PROBLEMS = (
    "A ferry leaves every 35 minutes from 6:10 on, a bus every 24 minutes from 6:02 on. When do both leave at the same minute for the "
    "first time after noon?",
    "In how many ways can eight people sit around a round table if two of them never sit side by side and two others always do?",
    "A rectangular sheet is folded once so that two opposite corners meet. Its sides are 9 and 12. How long is the fold?",
    "Find all whole numbers n below 200 for which n squared plus n plus 41 is not prime.",
    "Five houses stand in a row, and each has another colour. The red one is left of the blue one but not next to it, the green one is "
    "not at an end, the white one is two places right of the yellow one. In which orders can they stand?",
)
_ASK = " Think it through step by step, check your result in a second way, and then answer."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningSettings:
    """``seconds``: what a person gives it. ``tokens``: how many should have come by then, where no thinking is shown apart."""

    seconds: float = 10.0
    tokens: int = 1000
    problems: int = 5

    def __post_init__(self) -> None:
        if not 0.5 <= self.seconds <= 3600:
            raise UsageError(f"seconds must lie in 0.5..3600, got {self.seconds:g}")
        if not 1 <= self.tokens <= 1_000_000 or not 1 <= self.problems <= 100:
            raise UsageError(f"tokens must lie in 1..1000000 and problems in 1..100, got {self.tokens} and {self.problems}")

    @property
    def requests(self) -> int:
        return self.problems


def reasoning(asker: Asker, settings: ReasoningSettings) -> Answer:
    """How many tokens are thought in so many seconds, and whether the answer has begun by then. An answer is cut off a little later."""
    most = max(4096, 2 * settings.tokens)
    if asker.window is not None:
        most = min(most, asker.window // 2)
    prompts = [
        cold(
            Prompt(
                name=f"problem-{i + 1}",
                kind="reasoning",
                messages=[{"role": "user", "content": _PROBLEMS[i % len(_PROBLEMS)] + _ASK}],
                max_tokens=most,
            ),
            asker.mark(),
        )
        for i in range(settings.problems)
    ]
    exchanges = asker.all(prompts, time_limit_s=settings.seconds * 1.2 + 1)
    refuse_failures(exchanges, but=("timeout",))
    thinks = any(arrival.share == "reasoning" for exchange in exchanges for arrival in exchange.arrivals)
    by_then = [tokens_by(exchange, settings.seconds, ("reasoning",) if thinks else ("reasoning", "answer")) for exchange in exchanges]
    known = [tokens for tokens in by_then if tokens is not None]
    first = [next((a.at_s for a in exchange.arrivals if a.share == "answer"), float("inf")) for exchange in exchanges]
    what = "thinking tokens" if thinks else "tokens"
    notes = [] if thinks else ["the endpoint shows no thinking apart from the answer: all tokens of the answer are counted"]
    if any(read(exchange).hidden_reasoning for exchange in exchanges):
        notes.append("the endpoint counts thinking tokens that it does not show: what is counted here is the answer alone")
    if any(exchange.tokens_by == "estimated" for exchange in exchanges):
        notes.append("some tokens are estimated from characters: an answer that is cut off has no usage (--tokenizer counts them)")
    ends, thought = percentile_if_any(first, 50), percentile_if_any(known, 50)
    decided = (
        at_most("answer begins, median", ends, "s", settings.seconds)
        if thinks
        else at_least(f"{what} in {settings.seconds:g} s, median", thought, "tokens", settings.tokens)
    )
    return Answer(
        scenario="reasoning",
        figures=[
            decided,
            *([Figure(name=f"{what} in {settings.seconds:g} s, median", value=thought, unit="tokens")] if thinks else []),
            Figure(name=f"{what} in {settings.seconds:g} s, least", value=min(known, default=None), unit="tokens"),
            Figure(name="first token of any kind, median", value=percentile_if_any(_first_tokens(exchanges), 50), unit="s"),
        ],
        notes=notes,
        exchanges=exchanges,
    )


def tokens_by(exchange: Exchange, seconds: float, shares: Collection[str]) -> float | None:
    """Tokens of these shares that had come after so many seconds: the answer's tokens in proportion to its characters. None where tokens
    were counted and none were shown; of an answer of which nothing came, 0."""
    characters = sum(arrival.characters for arrival in exchange.arrivals)
    if not exchange.output_tokens or not characters:
        return None if exchange.output_tokens else 0.0
    come = sum(arrival.characters for arrival in exchange.arrivals if arrival.share in shares and arrival.at_s <= seconds)
    return exchange.output_tokens * come / characters


def _first_tokens(exchanges: list[Exchange]) -> list[float]:
    return [arrivals[0].at_s for exchange in exchanges if (arrivals := content(exchange))]
