"""What the bench finds in its own output: each check against exchanges that break it, and against sound ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from constructed import cell, crowd, exchange

from swiftsure.bench.exchange import Exchange, Usage
from swiftsure.bench.figures import Settings, summarize

FEW = Settings(resamples=100)


def test_usage_that_disagrees_with_the_tokenizer_is_a_warning() -> None:
    told = [exchange(repeat=i, tokenizer_tokens=50) for i in range(5)]
    assert any("disagree, for example 100 against 50 tokens" in f.words for f in summarize(told, [], FEW).warnings)
    hidden = [replace(e, hidden_reasoning=True) for e in told]
    assert not any(f.check == "token counts" for f in summarize(hidden, [], FEW).findings)


def test_littles_law_finds_exchanges_that_are_missing() -> None:
    load = crowd(users=4, answers=10)
    whole = cell(row="sweep", users=4, wall_s=12.8, mean_in_flight=3.72)
    assert not [f for f in summarize(load, [whole], FEW).findings if f.check == "Little's law"]
    assert [f for f in summarize(load[:25], [whole], FEW).findings if f.check == "Little's law"]


def test_a_speed_above_the_stated_hardware_is_flagged() -> None:
    stated = Settings(hardware_gb_per_s=30, model_bytes=1_000_000_000, resamples=100)
    found = [f for f in summarize([exchange(repeat=i) for i in range(5)], [], stated).warnings if f.check == "physical bound"]
    assert found[0].words.startswith("above bound: implies speculation or more chips: 100 tokens/s for one user, 30")
    roomy = replace(stated, hardware_gb_per_s=300)
    assert not summarize([exchange(repeat=i) for i in range(5)], [], roomy).warnings


def ten(**fields: object) -> list[Exchange]:
    return [exchange(repeat=i, sent_s=2.0 * i, **fields) for i in range(10)]


BUNDLED = exchange(tokens=20)
BUNDLED = replace(BUNDLED, arrivals=[replace(a, at_s=0.2 + 0.04 * (i // 4)) for i, a in enumerate(BUNDLED.arrivals)], last_token_s=None)


@pytest.mark.parametrize(
    ("exchanges", "check", "words"),
    [
        (crowd(users=4, answers=12, ended_s=3.0), "tokens x time", "9.7 in flight at their own speeds make 817 tokens/s, 336 were counted"),
        (ten(client_lag_s=0.05), "client", "the client's own loop stood still for over 20 ms during 10 of 10 exchanges"),
        (ten(characters=5000), "token counts", "10 of 10 answers have an odd number of characters a token (50): hidden or repeated text"),
        ([replace(BUNDLED, trial=e.trial, sent_s=e.sent_s) for e in ten()], "streaming", "79% of the gaps are under 0.1 ms"),
        (ten(row="warm", usage=Usage(prompt_tokens=100, output_tokens=100, cached_tokens=0)), "prefix cache", "reuses no prompts"),
        (
            ten(first_event_s=0.02),
            "first chunk",
            "the first chunk comes after 0.02 s and holds nothing; the first content comes after 0.2 s",
        ),
        (ten(tokens_by="estimated", usage=None), "token counts", "tokens of 10 of 10 answers are ESTIMATED from characters"),
        (ten(settings_dropped=("stream_options",)), "settings", "the endpoint refused stream_options; 10 requests went without it"),
    ],
    ids=["tokens x time", "lag", "characters", "bundles", "warm", "first chunk", "estimated", "dropped"],
)
def test_each_check_finds_what_it_is_for_and_nothing_in_sound_exchanges(exchanges: list[Exchange], check: str, words: str) -> None:
    def found(of: list[Exchange]) -> list[str]:
        return [finding.words for finding in summarize(of, [], FEW).findings if finding.check == check]

    assert any(words in text for text in found(exchanges)), found(exchanges)
    sound = crowd(users=4, answers=12) if check == "tokens x time" else ten(first_event_s=0.19)
    assert not found(sound)


def test_requests_that_left_late_are_a_warning_of_coordinated_omission() -> None:
    late = [exchange(repeat=i, sent_s=2.0 * i, late_s=1.0) for i in range(20)]
    assert any(f.check == "coordinated omission" for f in summarize(late, [], FEW).warnings)


def test_a_cold_row_that_a_cache_served_is_a_warning() -> None:
    served = [exchange(repeat=i, usage=Usage(prompt_tokens=100, output_tokens=100, cached_tokens=90)) for i in range(5)]
    assert any("this row is not cold" in f.words for f in summarize(served, [], FEW).warnings)


def test_gaps_that_do_not_sum_to_the_whole_are_a_warning() -> None:
    assert any(f.check == "sum of gaps" for f in summarize([exchange(repeat=i, last_token_s=3.0) for i in range(5)], [], FEW).warnings)
