"""Scenarios against an endpoint with a known schedule: what is said of it must be what it is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from exchanges import exchange

from swiftsure.bench.exchange import Arrival, Exchange, Prompt, Usage
from swiftsure.bench.prompts.change import characters, nonce
from swiftsure.bench.scenarios import agent, rag, reasoning, voice
from swiftsure.bench.scenarios.agent import AgentSettings
from swiftsure.bench.scenarios.base import Answer
from swiftsure.bench.scenarios.rag import RagSettings
from swiftsure.bench.scenarios.reasoning import ReasoningSettings, tokens_by
from swiftsure.bench.scenarios.speech import speak, word_times
from swiftsure.bench.scenarios.voice import VoiceSettings
from swiftsure.errors import EndpointError, UsageError


def streamed(prompt: Prompt, *, ttft_s: float, rate: float, tokens: int | None = None, thinking: int = 0) -> Exchange:
    """One word a token, evenly spaced; the first ``thinking`` of them are thought."""
    count = tokens or prompt.max_tokens
    arrivals = tuple(Arrival(at_s=ttft_s + i / rate, share="reasoning" if i < thinking else "answer", characters=5) for i in range(count))
    return exchange(
        arrivals=arrivals,
        output_tokens=count,
        text="word " * count,
        last_token_s=arrivals[-1].at_s,
        ended_s=arrivals[-1].at_s,
        usage=Usage(prompt_tokens=characters(prompt) // 4, output_tokens=count),
    )


@dataclass
class Endpoint:
    """``answer`` makes an exchange of a prompt."""

    answer: Callable[[Prompt], Exchange]
    window: int | None = None
    characters_per_token: float = 4.0
    asked: list[Prompt] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    def mark(self) -> str:
        return nonce()

    def all(self, prompts: Sequence[Prompt], *, time_limit_s: float | None = None, after_s: float = 0.0) -> list[Exchange]:
        self.asked += prompts
        self.pauses.append(after_s)
        return [self.answer(prompt) for prompt in prompts]


def figure(answer: Answer, name: str) -> float | None:
    return next(figure.value for figure in answer.figures if figure.name.startswith(name))


@pytest.mark.parametrize(("rate", "verdict", "whole_s"), [(70, "BACKGROUND", 230), (750, "INTERACTIVE", 22)])
def test_an_agent_of_twenty_calls_takes_as_long_as_its_tokens(rate: float, verdict: str, whole_s: float) -> None:
    endpoint = Endpoint(lambda prompt: streamed(prompt, ttft_s=0.05, rate=rate))
    answer = agent(endpoint, AgentSettings())
    assert answer.verdict == verdict
    assert figure(answer, "the whole") == pytest.approx(whole_s, rel=0.03)
    assert endpoint.pauses == [0.5] * 20
    assert [len(prompt.messages or ()) for prompt in endpoint.asked] == [2 + 2 * call for call in range(20)]
    assert "229 s at 70 tokens/s, 21 s at 750 tokens/s" in " ".join(answer.notes)


def test_answers_of_an_agent_that_end_early_are_reckoned_at_full_length() -> None:
    endpoint = Endpoint(lambda prompt: streamed(prompt, ttft_s=0.1, rate=100, tokens=400))
    answer = agent(endpoint, AgentSettings())
    assert figure(answer, "the whole") == pytest.approx(20 * 0.1 + 16_000 / 100, rel=0.01)
    assert figure(answer, "measured") == pytest.approx(20 * (0.1 + 3.99), rel=0.01)
    assert "8000 of 16000 tokens" in " ".join(answer.notes)


def test_an_agent_forgets_its_oldest_steps_when_the_window_is_full() -> None:
    endpoint = Endpoint(lambda prompt: streamed(prompt, ttft_s=0.1, rate=1000), window=4096)
    answer = agent(endpoint, AgentSettings())
    assert all(characters(prompt) / 4 + 800 < 4096 for prompt in endpoint.asked)
    assert "oldest steps were left out" in " ".join(answer.notes)


def test_a_scenario_whose_answer_fails_ends_with_the_endpoints_words() -> None:
    with pytest.raises(EndpointError, match="answer 1 of the scenario failed: http_5xx: out of memory"):
        agent(Endpoint(lambda prompt: exchange(error="http_5xx", error_words="out of memory")), AgentSettings())


@pytest.mark.parametrize(
    ("ttft_s", "rate", "verdict"),
    [(0.2, 50, "INTERACTIVE"), (0.4, 50, "BACKGROUND"), (0.2, 3.5, "BACKGROUND")],
    ids=["well", "late", "slower than speech"],
)
def test_a_voice_needs_an_early_start_and_words_that_come_faster_than_they_are_spoken(ttft_s: float, rate: float, verdict: str) -> None:
    answer = voice(Endpoint(lambda prompt: streamed(prompt, ttft_s=ttft_s, rate=rate, tokens=40)), VoiceSettings())
    assert answer.verdict == verdict
    assert figure(answer, "first token of the answer, p95") == pytest.approx(ttft_s)
    assert figure(answer, "words, median") == pytest.approx(rate, rel=0.03)


def test_thinking_is_not_spoken() -> None:
    answer = voice(Endpoint(lambda prompt: streamed(prompt, ttft_s=0.1, rate=50, tokens=40, thinking=20)), VoiceSettings())
    assert figure(answer, "first token of the answer, p95") == pytest.approx(0.5)
    assert answer.verdict == "BACKGROUND"


def test_a_pause_is_heard_only_when_the_words_spoken_so_far_do_not_cover_it() -> None:
    covered = [0.0, 0.1, 0.2, 0.3, 0.4, 1.2]
    assert speak(covered, words_per_s=4, delay_s=0.2).gaps_s == ()
    heard = speak([0.0, 0.1, 3.0, 3.1], words_per_s=4, delay_s=0.2)
    assert heard.gaps_s == (pytest.approx(2.3),)
    assert speak([], words_per_s=4, delay_s=0.2).words == 0


def test_words_are_there_when_their_last_character_is() -> None:
    pieces = tuple(Arrival(at_s=float(i), share="answer", characters=2) for i in range(6))
    assert word_times(exchange(arrivals=pieces, text="aa bb cc ddd")) == [1.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize(("prefill", "verdict"), [(50_000, "INTERACTIVE"), (5_000, "BACKGROUND")])
def test_retrieval_lives_by_its_prefill(prefill: float, verdict: str) -> None:
    seen: set[str] = set()

    def answer_of(prompt: Prompt) -> Exchange:
        start = str((prompt.messages or [{}])[0]["content"])[:20]
        known = start in seen
        seen.add(start)
        return streamed(prompt, ttft_s=0.05 if known else characters(prompt) / 4 / prefill, rate=100, tokens=30)

    answer = rag(Endpoint(answer_of), RagSettings())
    assert answer.verdict == verdict
    assert figure(answer, "TTFT of a new context, median") == pytest.approx(50_000 / prefill, rel=0.05)
    assert figure(answer, "TTFT of the next question") == pytest.approx(0.05)
    assert figure(answer, "prefill") == pytest.approx(prefill, rel=0.01)


def test_a_context_that_the_window_cannot_hold_is_scaled_and_said_so() -> None:
    answer = rag(Endpoint(lambda prompt: streamed(prompt, ttft_s=1.0, rate=100, tokens=30), window=8192), RagSettings())
    assert "50000 tokens were wanted; the model's window of 8192 leaves" in answer.notes[0]


def test_reasoning_is_what_was_thought_by_then() -> None:
    def thinker(prompt: Prompt) -> Exchange:
        return streamed(prompt, ttft_s=0.5, rate=100, tokens=1200, thinking=800)

    answer = reasoning(Endpoint(thinker), ReasoningSettings(seconds=5))
    assert answer.verdict == "BACKGROUND"
    assert figure(answer, "thinking tokens in 5 s, median") == pytest.approx(451)
    assert figure(answer, "answer begins") == pytest.approx(8.5)
    assert reasoning(Endpoint(thinker), ReasoningSettings(seconds=10)).verdict == "INTERACTIVE"


def test_a_model_that_shows_no_thinking_is_judged_by_its_tokens() -> None:
    plain = Endpoint(lambda prompt: streamed(prompt, ttft_s=0.0, rate=50, tokens=800))
    answer = reasoning(plain, ReasoningSettings(seconds=10, tokens=600))
    assert (answer.verdict, figure(answer, "tokens in 10 s, median")) == ("BACKGROUND", pytest.approx(501))
    assert "shows no thinking" in answer.notes[0]
    assert tokens_by(exchange(arrivals=(), output_tokens=5), 1.0, ("answer",)) is None


def empty() -> Exchange:
    """An answer that ended at once, without a word."""
    return exchange(arrivals=(), output_tokens=0, last_token_s=None, text=None, first_event_s=0.1, ended_s=0.1)


def sometimes(rate: float) -> Endpoint:
    """Every third answer is empty."""
    count = iter(range(10_000))
    return Endpoint(lambda prompt: empty() if next(count) % 3 == 2 else streamed(prompt, ttft_s=0.1, rate=rate))


@pytest.mark.parametrize("scenario", [lambda e: voice(e, VoiceSettings()), lambda e: rag(e, RagSettings())], ids=["voice", "rag"])
def test_an_empty_answer_is_one_that_was_not_reached_and_not_left_out(scenario: Callable[[Endpoint], Answer]) -> None:
    answer = scenario(sometimes(50))
    assert answer.verdict == "BACKGROUND"
    assert answer.figures[0].value == math.inf
    assert "answers were empty" in " ".join(answer.notes)
    told = json.loads(json.dumps(answer.to_dict(), allow_nan=False))
    assert (told["figures"][0]["value"], told["figures"][0]["keeps"]) == (None, False)


def test_an_agents_empty_answers_cost_as_much_as_the_others() -> None:
    answer = agent(sometimes(100), AgentSettings())
    assert figure(answer, "the whole") == pytest.approx(20 * 0.1 + 16_000 / 100, rel=0.01)
    assert "6 answers were empty" in " ".join(answer.notes)


def test_thinking_of_which_nothing_came_in_time_is_no_tokens() -> None:
    nothing = exchange(arrivals=(), output_tokens=None, last_token_s=None, text=None, error="timeout")
    count = iter(range(100))
    slow = Endpoint(lambda prompt: nothing if next(count) % 5 < 3 else streamed(prompt, ttft_s=0.1, rate=500, tokens=2000))
    answer = reasoning(slow, ReasoningSettings())
    assert (answer.verdict, figure(answer, "tokens in 10 s, median")) == ("BACKGROUND", 0)


def test_settings_that_make_no_sense_are_refused() -> None:
    for build in (
        lambda: AgentSettings(calls=1),
        lambda: AgentSettings(wait_s=0),
        lambda: VoiceSettings(gap_s=0.1),
        lambda: VoiceSettings(words_per_s=0),
        lambda: RagSettings(documents=0),
        lambda: ReasoningSettings(seconds=0),
    ):
        with pytest.raises(UsageError, match="got"):
            build()
