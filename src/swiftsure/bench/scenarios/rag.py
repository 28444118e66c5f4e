"""Retrieval: a short answer from a long context. Such an application lives by the time to the first token, which is the prefill."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swiftsure.bench.exchange import Exchange, Prompt
from swiftsure.bench.figures.reading import read
from swiftsure.bench.prompts.change import cold, with_context
from swiftsure.bench.prompts.context import context_for, long_text
from swiftsure.bench.scenarios.base import (
    Answer,
    Asker,
    Figure,
    at_most,
    empty,
    few,
    percentile_if_any,
    reached,
    refuse_failures,
    told_prompt_tokens,
)
from swiftsure.errors import UsageError

_QUESTIONS = (
    "What does the text say about the colours of thin plates? Answer in two sentences.",
    "Which experiments with prisms does the text describe? Name two, in two sentences.",
)
_OTHERS = 200  # tokens of the question and the template


@dataclass(frozen=True, slots=True, kw_only=True)
class RagSettings:
    """``documents``: long contexts, each new to the endpoint and asked about twice. ``wait_s``: for the first token of a new one."""

    context_tokens: int = 50_000
    documents: int = 3
    tokens: int = 120
    wait_s: float = 2.0

    def __post_init__(self) -> None:
        bounds = (("context", self.context_tokens, 10_000_000), ("documents", self.documents, 100), ("tokens", self.tokens, 10_000))
        for name, value, high in bounds:
            if not 1 <= value <= high:
                raise UsageError(f"{name} must lie in 1..{high}, got {value}")
        if not 0 < self.wait_s <= 86_400:
            raise UsageError(f"the wait must be above 0 and at most a day, got {self.wait_s:g} s")

    @property
    def requests(self) -> int:
        return len(_QUESTIONS) * self.documents


def rag(asker: Asker, settings: RagSettings) -> Answer:
    """Each document is asked about twice: the first answer needs the whole prefill, the second what a prefix cache leaves of it."""
    context = context_for(
        settings.context_tokens,
        window=asker.window,
        others_tokens=settings.tokens + _OTHERS,
        characters_per_token=asker.characters_per_token,
    )
    text = long_text(context.characters)
    exchanges: list[Exchange] = []
    for number in range(settings.documents):
        mark = asker.mark()
        exchanges += asker.all([_prompt(question, number, text, mark, settings.tokens) for question in range(len(_QUESTIONS))])
        refuse_failures(exchanges)
    first, again = exchanges[0::2], exchanges[1::2]
    values, later = ([read(exchange).values for exchange in part] for part in (first, again))
    ttft = reached(values, "ttft")
    tokens = [count for exchange in first if (count := told_prompt_tokens(exchange))]
    known = [(count, ttft_s) for exchange, ttft_s in zip(first, ttft, strict=True) if (count := told_prompt_tokens(exchange))]
    speed = percentile_if_any([count / ttft_s for count, ttft_s in known if 0 < ttft_s < math.inf], 50)
    notes = [f"about {context.tokens} tokens of context" + (f": {context.scaled}" if context.scaled else "")]
    notes += few(len(ttft)) + empty([*values, *later])
    if context.scaled and ttft:
        notes.append("with the whole context the first token would take longer, at least in proportion")
    return Answer(
        scenario="rag",
        figures=[
            at_most("TTFT of a new context, p95", percentile_if_any(ttft, 95), "s", settings.wait_s),
            Figure(name="TTFT of a new context, median", value=percentile_if_any(ttft, 50), unit="s"),
            Figure(name="TTFT of the next question, median", value=percentile_if_any(reached(later, "ttft"), 50), unit="s"),
            Figure(name="whole short answer, median", value=percentile_if_any(reached(values, "e2e"), 50), unit="s"),
            Figure(name="prompt tokens", value=percentile_if_any([float(count) for count in tokens], 50), unit="tokens"),
            Figure(name="prefill, median", value=speed, unit="tokens/s"),
        ],
        notes=notes,
        exchanges=exchanges,
    )


def _prompt(question: int, number: int, text: str, mark: str, tokens: int) -> Prompt:
    name = f"document-{number + 1}-question-{question + 1}"
    asked = Prompt(name=name, kind="rag", messages=[{"role": "user", "content": _QUESTIONS[question]}], max_tokens=tokens)
    return cold(with_context(asked, text), mark)
