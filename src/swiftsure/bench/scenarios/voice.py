"""A voice: an answer must begin within half a second, and the words must come faster than they are spoken, without a gap.

Of the 500 ms, 200 ms are for hearing the end of the question and making the first sound, so the first token has 300 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

from swiftsure.bench.exchange import Prompt
from swiftsure.bench.figures.reading import read
from swiftsure.bench.scenarios.base import Answer, Asker, Figure, at_least, at_most, empty, few, percentile_if_any, reached, refuse_failures
from swiftsure.bench.scenarios.speech import speak, word_times
from swiftsure.errors import UsageError

_SYSTEM = "You are on the telephone. Answer in two or three short sentences, in plain words, without lists."
_ASKED = (
    "When is the next train to the coast?",
    "I cannot get the washing machine to start. The door is closed. What should I try?",
    "Please explain in short what a mortgage is.",
    "My parcel was to come yesterday. What can I do?",
    "How long do I boil an egg so that it is soft?",
    "Which vaccinations do I need before I travel to Kenya?",
    "Can you move my appointment from Tuesday to Friday?",
    "What is the difference between weather and climate?",
    "I have lost my card. What happens now?",
    "Tell me something to calm me down before my exam.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceSettings:
    """``gap_s``: from the end of the question to the first sound. ``sound_s``: of these for all but the model."""

    turns: int = 20
    tokens: int = 100
    gap_s: float = 0.5
    sound_s: float = 0.2
    words_per_s: float = 4.0

    def __post_init__(self) -> None:
        if not 1 <= self.turns <= 1000 or not 1 <= self.tokens <= 100_000:
            raise UsageError(f"turns must lie in 1..1000 and tokens in 1..100000, got {self.turns} and {self.tokens}")
        if not 0 <= self.sound_s < self.gap_s <= 60:
            raise UsageError(f"the gap must be longer than the sound's {self.sound_s:g} s and at most 60 s, got {self.gap_s:g}")
        if not 0.1 <= self.words_per_s <= 100:
            raise UsageError(f"words per second must lie in 0.1..100, got {self.words_per_s:g}")

    @property
    def requests(self) -> int:
        return self.turns + 1  # the first is not counted


def voice(asker: Asker, settings: VoiceSettings) -> Answer:
    """The same system prompt in every turn, as a product has it: a prefix cache may know it. The first turn is not counted."""
    prompts = [_prompt(turn, settings) for turn in range(settings.turns + 1)]
    exchanges = asker.all(prompts)
    refuse_failures(exchanges)
    counted = exchanges[1:]
    values = [read(exchange).values for exchange in counted]
    answers = reached(values, "first_answer")
    spoken = [speak(word_times(exchange), words_per_s=settings.words_per_s, delay_s=settings.sound_s) for exchange in counted]
    speeds = [speech.words_per_s for speech in spoken if speech.words_per_s is not None]
    gaps = [gap for speech in spoken for gap in speech.gaps_s]
    target_s = settings.gap_s - settings.sound_s
    notes = [f"{settings.gap_s * 1000:.0f} ms from question to sound, of which {settings.sound_s * 1000:.0f} ms are not the model's"]
    notes += few(len(counted)) + empty(values)
    if any(value["first_answer"] > value["ttft"] for value in values if "first_answer" in value):
        notes.append("the model thinks before it answers: what is spoken begins with the answer")
    return Answer(
        scenario="voice",
        figures=[
            at_most("first token of the answer, p95", percentile_if_any(answers, 95), "s", round(target_s, 6)),
            Figure(name="first token of the answer, median", value=percentile_if_any(answers, 50), unit="s"),
            at_least("words, slowest 5 % of answers", percentile_if_any(speeds, 5), "words/s", settings.words_per_s),
            at_most("gaps that would be heard", float(len(gaps)), "gaps", 0),
            *([Figure(name="longest of these gaps", value=max(gaps), unit="s")] if gaps else []),
            Figure(name="words, median", value=percentile_if_any(speeds, 50), unit="words/s"),
        ],
        notes=notes,
        exchanges=counted,
    )


def _prompt(turn: int, settings: VoiceSettings) -> Prompt:
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _ASKED[turn % len(_ASKED)]}]
    return Prompt(name=f"turn-{turn}", kind="voice", messages=messages, max_tokens=settings.tokens)
