"""A scenario in its folder: what a kill leaves is not asked again, and what it cannot vouch for is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from exchanges import exchange, facts

from swiftsure.bench.exchange import Arrival, ClientFacts, Exchange, Request, Usage
from swiftsure.bench.protocol.endpoint import Found
from swiftsure.bench.protocol.store import read_bench
from swiftsure.bench.scenarios import Answer, agent, rag, reasoning, voice
from swiftsure.bench.scenarios.agent import AgentSettings
from swiftsure.bench.scenarios.rag import RagSettings
from swiftsure.bench.scenarios.reasoning import ReasoningSettings
from swiftsure.bench.scenarios.session import ScenarioAsked, play
from swiftsure.bench.scenarios.voice import VoiceSettings
from swiftsure.bench.target import Target
from swiftsure.errors import EndpointError, UsageError

TARGET = Target(url="http://nowhere/v1", model="m", api_key="secret")
CASES: dict[str, tuple[Callable[..., Answer], Any]] = {
    "agent": (agent, AgentSettings(calls=4, tokens=10, tool_s=0.0)),
    "voice": (voice, VoiceSettings(turns=4, tokens=10)),
    "rag": (rag, RagSettings(context_tokens=500, documents=2)),
    "reasoning": (reasoning, ReasoningSettings(seconds=1, tokens=5, problems=4)),
}


@dataclass
class Client:
    """Answers at once with words that tell the prompt; ``dies_after`` so many answers the process is killed, or ``fails`` as it says."""

    dies_after: int | None = None
    fails: str | None = None
    saturated: str | None = None
    asked: list[Request] = field(default_factory=list)

    def __call__(
        self, target: Target, requests: Sequence[Request], *, users: int | None, on_exchange: Callable[[Exchange], None], **_: Any
    ) -> ClientFacts:
        for request in requests:
            if len(self.asked) == self.dies_after:
                if self.fails is None:
                    raise KeyboardInterrupt
                on_exchange(exchange(trial=request.trial, error=self.fails, error_words="gone"))
                continue
            self.asked.append(request)
            arrivals = tuple(Arrival(at_s=0.01 * (i + 1), share="answer", characters=5) for i in range(20))
            text = f"{request.trial.prompt[-4:]} " * 20
            usage = Usage(prompt_tokens=100, output_tokens=20)
            on_exchange(exchange(trial=request.trial, arrivals=arrivals, last_token_s=0.2, text=text, usage=usage, output_tokens=20))
        return facts(saturated=self.saturated)


def scenario(name: str, **changes: Any) -> ScenarioAsked:
    found = Found(target=TARGET, window=8192, window_from="test")
    play_it, settings = CASES[name]
    values: dict[str, Any] = {"name": name, "scenario": play_it, "settings": settings, "target": TARGET, "find": lambda: found}
    return ScenarioAsked(**{**values, "interfaces": ("chat",), **changes})


def texts(requests: Sequence[Request]) -> list[str]:
    return [str([message["content"] for message in request.prompt.messages or ()]) for request in requests]


@pytest.mark.parametrize("answered", [1, 2, 4])
@pytest.mark.parametrize("name", CASES)
def test_a_scenario_that_was_cut_off_asks_the_rest_and_answers_as_if_nothing_had_happened(tmp_path: Path, name: str, answered: int) -> None:
    whole = Client()
    expected = play(tmp_path / "whole", scenario(name), measure=whole)
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "cut", scenario(name), measure=Client(dies_after=answered))
    before, again = read_bench(tmp_path / "cut").exchanges, Client()
    answer = play(tmp_path / "cut", scenario(name), measure=again)
    assert answer.figures == expected.figures
    assert len(again.asked) + answered == len(whole.asked)  # each has the first request, of the first start
    after = read_bench(tmp_path / "cut")
    assert after.exchanges[: len(before)] == before
    assert len({found.trial for found in after.exchanges}) == len(after.exchanges)
    assert after.head["answer"]["verdict"] == answer.verdict
    assert b"secret" not in (tmp_path / "cut" / "bench.json").read_bytes()
    if answered > 1:
        assert f"{answered - 1} answers are of an earlier start" in answer.notes[-1]
    with pytest.raises(UsageError, match="holds a whole measurement already"):
        play(tmp_path / "cut", scenario(name), measure=Client())


def test_what_goes_on_has_the_same_beginning_for_a_prefix_cache_that_survived(tmp_path: Path) -> None:
    first, again = Client(dies_after=3), Client()
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, scenario("agent"), measure=first)
    play(tmp_path, scenario("agent"), measure=again)
    before, after = texts(first.asked[1:]), texts(again.asked)
    assert len(before) == 2
    assert after[0].startswith(before[1][:-1])  # all that was said, and then more


def test_an_answer_that_failed_is_asked_again(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="answer 3 of the scenario failed: http_5xx: gone"):
        play(tmp_path, scenario("voice"), measure=Client(dies_after=3, fails="http_5xx"))
    again = Client()
    play(tmp_path, scenario("voice"), measure=again)
    assert [request.trial.prompt for request in again.asked] == ["turn-2", "turn-3", "turn-4"]


def test_what_a_client_measured_that_was_too_slow_is_asked_again(tmp_path: Path) -> None:
    class Slow(Client):
        def __call__(self, *arguments: Any, **named: Any) -> ClientFacts:
            found = super().__call__(*arguments, **named)
            return replace(found, saturated="the loop lagged" if len(self.asked) > 2 else None)

    with pytest.raises(EndpointError, match="too busy to measure: the loop lagged"):
        play(tmp_path, scenario("agent"), measure=Slow())
    again = Client()
    play(tmp_path, scenario("agent"), measure=again)
    assert [request.trial.prompt for request in again.asked] == ["call-2", "call-3", "call-4"]


def test_another_scenario_or_other_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, scenario("voice"), measure=Client(dies_after=2))
    with pytest.raises(UsageError, match="was begun for the scenario voice, and this is the scenario rag"):
        play(tmp_path, scenario("rag"), measure=Client())
    with pytest.raises(UsageError, match=r"settings\.turns was 4, is 5"):
        play(tmp_path, scenario("voice", settings=VoiceSettings(turns=5, tokens=10)), measure=Client())
