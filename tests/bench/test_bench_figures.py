from __future__ import annotations

import itertools
import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from constructed import cell, crowd, exchange, failed, rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.bench.exchange import Arrival, Exchange, Usage
from swiftsure.bench.figures import DEFINITIONS, Prices, Settings, Slo, Summary, load_summary, summarize
from swiftsure.bench.figures.definitions import known_names
from swiftsure.bench.figures.estimate import Sample
from swiftsure.bench.figures.group import Group
from swiftsure.bench.figures.load import Load, rate
from swiftsure.errors import UsageError
from swiftsure.records.run_record import write_json

FEW = Settings(resamples=100)


def only(exchanges: list[Exchange], settings: Settings = FEW) -> Group:
    summary = summarize(exchanges, [], settings)
    assert len(summary.groups) == 1
    return summary.groups[0]


def value(exchanges: list[Exchange], name: str) -> float | None:
    return only(exchanges).value(name)


def test_every_figure_of_an_even_stream_is_its_formula() -> None:
    group = only([exchange(repeat=i, sent_s=2.0 * i, late_s=0.5) for i in range(6)])
    truth = {
        "ttft": 0.2,
        "ttft_scheduled": 0.7,
        "first_chunk": 0.1,
        "ttfb": 0.1,
        "first_answer": 0.2,
        "decode": 100 / 0.99,
        "decode_corrected": 99 / 0.99,
        "tpot": 0.99 / 99,
        "tpot_whole": 1.19 / 100,
        "itl": 0.01,
        "itl_token": 0.01,
        "e2e": 1.19,
        "e2e_scheduled": 1.69,
        "output_tokens": 100,
        "tokens_per_chunk": 1,
    }
    for name, expected in truth.items():
        assert group.value(f"{name}_p50") == pytest.approx(expected), name


def test_a_first_chunk_of_many_tokens_does_not_make_decoding_look_faster() -> None:
    held = [exchange(repeat=i, tokens=100, first_chunk_tokens=50) for i in range(5)]
    assert value(held, "decode_p50") == pytest.approx(200)  # the document's formula, fooled
    assert value(held, "decode_corrected_p50") == pytest.approx(100)
    unknown = [replace(e, first_arrival_tokens=None) for e in held]
    assert value(unknown, "decode_corrected_p50") == pytest.approx(100)  # by characters


def test_events_that_were_read_together_with_the_first_are_all_taken_off() -> None:
    """One of ten tokens by its own event, but three events came in the first read."""
    plain = exchange(tokens=10)
    first = plain.arrivals[0].at_s
    read_at_once = [replace(a, at_s=first) if i < 3 else a for i, a in enumerate(plain.arrivals)]
    together = [replace(plain, trial=replace(plain.trial, repeat=i), arrivals=read_at_once) for i in range(5)]
    assert value(together, "decode_corrected_p50") == pytest.approx(7 / 0.09)


def test_tokens_that_share_an_arrival_are_told_from_arrivals() -> None:
    group = only([exchange(repeat=i, tokens=101, tokens_a_chunk=5, first_chunk_tokens=1) for i in range(5)])
    assert group.value("itl_p50") == pytest.approx(0.05)
    assert group.value("itl_token_p50") == pytest.approx(0.01)
    assert group.value("tokens_per_chunk_p50") == pytest.approx(101 / 21)
    assert group.value("decode_corrected_p50") == pytest.approx(100)


def test_an_answer_that_never_came_is_not_reached_and_never_zero() -> None:
    cut = [exchange(repeat=i, shares=["reasoning"] * 100, censored=True) for i in range(6)]
    group = only(cut)
    estimate = group.figures["first_answer_p50"]
    assert (estimate.value, estimate.words) == (None, "not reached in 6 of 6")
    assert group.value("ttft_p50") == pytest.approx(0.2)
    assert group.censored == 6
    mixed = only(cut + [exchange(prompt="p1", repeat=i, shares=["reasoning"] * 50 + ["answer"] * 50) for i in range(7)])
    assert mixed.value("first_answer_p50") == pytest.approx(0.7)  # seven of thirteen reached it
    assert mixed.figures["first_answer_p90"].value is None


def test_hidden_thinking_makes_decode_speed_not_measurable() -> None:
    usage = Usage(prompt_tokens=100, output_tokens=300, reasoning_tokens=200)
    group = only([exchange(repeat=i, usage=usage, output_tokens=300) for i in range(5)])
    for name in ("decode_p50", "decode_corrected_p50", "tpot_p50", "itl_token_p50"):
        assert group.figures[name].value is None
        assert group.figures[name].words == "not measurable: hidden thinking: how long its tokens took cannot be seen (5 of 5 exchanges)", (
            name
        )
    assert group.value("ttft_p50") == pytest.approx(0.2)
    assert group.hidden_reasoning == 5
    shown = only([exchange(repeat=i, usage=usage, output_tokens=300, shares=["reasoning"] * 60 + ["answer"] * 40) for i in range(5)])
    assert shown.value("decode_p50") == pytest.approx(300 / 0.99)


@pytest.mark.parametrize("how", ["one arrival", "two moments", "same moment"])
def test_a_burst_has_an_end_and_no_speed(how: str) -> None:
    if how == "one arrival":
        burst = [exchange(repeat=i, ttft_s=2.0, tokens_a_chunk=100) for i in range(5)]
    elif how == "two moments":
        burst = [exchange(repeat=i, ttft_s=2.0, tokens_a_chunk=50) for i in range(5)]
    else:
        burst = [exchange(repeat=i, ttft_s=2.0, gap_s=0.0) for i in range(5)]
    group = only(burst)
    assert group.bursts == 5
    assert group.value("e2e_p50") == pytest.approx(2.0 if how != "two moments" else 2.5)
    assert group.value("decode_p50") is None
    assert any("one burst" in finding.words for finding in summarize(burst, [], FEW).findings)


def test_an_even_stream_at_the_speed_of_a_wafer_is_no_burst() -> None:
    assert value([exchange(repeat=i, tokens=400, gap_s=1 / 3000) for i in range(5)], "decode_corrected_p50") == pytest.approx(3000)


def test_role_and_empty_pieces_are_not_the_first_token() -> None:
    plain = exchange()
    early = [Arrival(at_s=0.01, share="role", characters=0), Arrival(at_s=0.02, share="answer", characters=0)]
    assert value([replace(plain, arrivals=[*early, *plain.arrivals])], "ttft_p50") == pytest.approx(0.2)


def test_failures_are_counted_by_kind_and_are_in_no_latency() -> None:
    group = only([exchange(repeat=i) for i in range(5)] + [failed(repeat=5), failed("http_429", repeat=6), failed("http_429", repeat=7)])
    assert group.errors == {"http_429": 2, "timeout": 1}
    assert (group.exchanges, group.succeeded) == (8, 5)
    assert group.value("e2e_p50") == pytest.approx(1.19)
    assert group.value("error_share") == pytest.approx(3 / 8)


def test_the_opening_wave_is_in_no_figure() -> None:
    slow = [exchange(repeat=i, warm_up=True, ttft_s=5.0) for i in range(5)]
    group = only(slow + [exchange(repeat=10 + i, sent_s=10.0 + 2 * i) for i in range(5)])
    assert group.value("ttft_p99") == pytest.approx(0.2)
    assert (group.exchanges, group.warm_up) == (5, 5)


def test_aggregate_and_requests_in_flight_of_a_full_crowd() -> None:
    group = only(crowd(users=8, answers=20))
    rate = 100 / 1.19
    assert group.value("aggregate") == pytest.approx(8 * rate, rel=0.03)
    assert group.value("in_flight") == pytest.approx(8, rel=0.01)
    assert group.value("requests_per_s") == pytest.approx(8 / 1.19, rel=0.03)
    assert group.figures["aggregate"].low is not None


def test_loads_on_two_clocks_are_not_laid_over_each_other() -> None:
    first = [exchange(repeat=i, sent_s=1.2 * i) for i in range(10)]
    resumed = [replace(e, started="2026-12-03T09:00:00+00:00", sent_s=e.sent_s) for e in first]
    resumed = [replace(e, started=f"2026-12-03T09:00:{int(e.sent_s):02d}+00:00") for e in resumed]
    assert value(first + resumed, "aggregate") == pytest.approx(100 / 1.2, rel=0.02)


def test_arrivals_at_a_constant_rate_have_that_rate() -> None:
    steady = only([exchange(repeat=i, sent_s=i / 2, rate_per_s=2.0) for i in range(20)], Settings(slo=Slo.parse("ttft=0.3"), resamples=100))
    assert steady.value("requests_per_s") == pytest.approx(2)
    assert steady.value("goodput") == pytest.approx(2)


@pytest.mark.parametrize("where", ["first", "last"])
def test_the_time_in_which_an_endpoint_failed_counts_in_every_rate(where: str) -> None:
    """Twenty requests at 2 a second, of which one half failed: half the rate, whichever half it was."""
    fails = range(10) if where == "first" else range(10, 20)
    load = [(failed if i in fails else exchange)(repeat=i, sent_s=i / 2, rate_per_s=2.0) for i in range(20)]
    group = only(load, Settings(slo=Slo.parse("ttft=0.3"), resamples=100))
    assert group.value("requests_per_s") == pytest.approx(1, rel=0.06)
    assert group.value("goodput") == pytest.approx(1, rel=0.06)


def test_a_round_in_which_everything_failed_lowers_the_goodput_of_all_rounds() -> None:
    well = rounds(number=2, prompts=5, repeats=4)
    chosen = Settings(slo=Slo.parse("ttft=0.3"), resamples=100)
    down = [failed(e.error or "timeout", round_number=2, prompt=e.trial.prompt, repeat=e.trial.repeat, sent_s=e.sent_s) for e in well[:20]]
    whole, broken = only(well, chosen).value("goodput"), only(well + down, chosen).value("goodput")
    assert whole is not None
    assert broken == pytest.approx(whole * 2 / 3, rel=0.02)
    nothing = only(down, chosen)
    assert (nothing.value("goodput"), nothing.value("requests_per_s"), nothing.value("aggregate")) == (0, 0, 0)


def test_goodput_counts_what_kept_every_limit() -> None:
    mixed = [exchange(repeat=i, sent_s=2.0 * i, ttft_s=0.2 if i % 2 else 0.4) for i in range(20)]
    group = only(mixed, Settings(slo=Slo.parse("ttft=0.3,itl=0.05"), resamples=100))
    assert group.value("good_share") == pytest.approx(0.5)
    goodput, every = group.value("goodput"), group.value("requests_per_s")
    assert goodput is not None
    assert every is not None
    assert goodput == pytest.approx(every / 2)
    strict = only(mixed, Settings(slo=Slo.parse("decode=1000"), resamples=100))
    assert strict.value("good_share") == 0


def test_cost_is_told_with_cached_tokens_at_their_price() -> None:
    usage = Usage(prompt_tokens=1000, output_tokens=100, cached_tokens=400)
    prices = Prices(prompt=5, output=30, cached=0.5)
    group = only([exchange(usage=usage)], Settings(prices=prices, resamples=100))
    assert group.value("cost_p50") == pytest.approx((600 * 5 + 400 * 0.5 + 100 * 30) / 1e6)


def test_prefill_costs_the_difference_of_ttft_for_each_thousand_tokens() -> None:
    def wait(row: str) -> list[Exchange]:
        extra = 3.0 if row == "context" else 0.0
        tokens = 30_100 if row == "context" else 100
        return rounds(row=row, prompts=6, repeats=3, ttft=lambda p, r, k: 0.1 * (p + 1) + 0.01 * k + extra, prompt_tokens=tokens)

    prefill = summarize(wait("cold") + wait("context"), [], FEW).prefill
    assert prefill is not None
    assert prefill.value == pytest.approx(0.1)
    assert prefill.conclusive
    silent = [replace(e, usage=None) for e in wait("cold") + wait("context")]
    unknown = summarize(silent, [], FEW).prefill
    assert unknown is not None
    assert unknown.value is None
    stated = summarize(silent, [], Settings(resamples=100, context_tokens=30_000)).prefill
    assert stated is not None
    assert stated.value == pytest.approx(0.1)


def test_prefill_is_of_the_fewest_users_that_both_rows_have() -> None:
    def wait(row: str, users: int, ttft_s: float) -> list[Exchange]:
        tokens = 30_100 if row == "context" else 100
        return rounds(row=row, users=users, prompts=6, repeats=3, number=1, ttft=lambda p, r, k: ttft_s, prompt_tokens=tokens)

    alone, crowded = wait("cold", 1, 0.2) + wait("context", 1, 3.2), wait("cold", 4, 0.4) + wait("context", 4, 9.4)
    prefill = summarize(alone + crowded, [], FEW).prefill
    assert prefill is not None
    assert prefill.value == pytest.approx(0.1)


def test_an_interval_over_rounds_is_as_wide_as_the_rounds_are_apart() -> None:
    """Every prompt alike, one slow hour of three: no interval may say that the day is known to a hundredth."""
    estimate = only(rounds(prompts=8, repeats=5, ttft=lambda p, r, k: 0.2 if r else 0.4)).figures["ttft_p50"]
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.2, 0.2, 0.4))


def test_an_interval_is_wider_where_there_are_few_prompts() -> None:
    """Seven prompts, a draw's median is the fastest one's in 1.0 % of draws: more than the 0.4 % that few prompts leave outside."""
    estimate = only(rounds(number=1, prompts=7, ttft=lambda p, r, k: 0.1 * (p + 1)), Settings()).figures["ttft_p50"]
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((0.4, 0.1, 0.7))


def test_the_interval_of_a_rate_is_students_over_its_slices() -> None:
    load = Load(window_s=10, tokens=np.array([10.0, 20.0] * 5), answers=np.ones(10), good=None, in_flight=1, exchanges=10)
    estimate = rate([load], [load.tokens], rounds=1)
    assert estimate.value == pytest.approx(15)
    reach = 2.2622 * math.sqrt(250 / 9) / math.sqrt(10)  # t of 9 degrees of freedom, the spread of ten slices
    assert (estimate.low, estimate.high) == (pytest.approx(15 - reach, rel=1e-4), pytest.approx(15 + reach, rel=1e-4))


def test_what_the_client_says_is_of_the_load_that_ended_and_not_of_one_that_was_cut_off_before() -> None:
    cut = [exchange(repeat=i, sent_s=2.0 * i) for i in range(5)]
    resumed = [replace(e, trial=replace(e.trial, repeat=5 + i), started=f"2026-12-03T09:00:0{2 * i}+00:00") for i, e in enumerate(cut)]
    resumed = [replace(e, arrivals=[replace(a, at_s=a.at_s + 1) for a in e.arrivals], last_token_s=None) for e in resumed]
    summary = summarize(cut + resumed, [cell(saturated="processor full")], FEW)
    assert summary.groups[0].value("ttft_p50") == pytest.approx(0.2)
    assert summary.groups[0].succeeded == 5
    stopped = summarize([replace(e, client_lag_s=1.5) for e in cut] + resumed, [cell()], FEW)
    assert stopped.groups[0].value("ttft_p50") == pytest.approx(1.2)
    assert any("left out, round 0: the client stood still for 1.5 s" in finding.words for finding in stopped.findings)
    whole = summarize(cut + resumed, [cell()], FEW)
    assert any("1 of 2 loads of round 0 was cut off" in finding.words for finding in whole.findings)


def test_rounds_over_the_day_stand_apart() -> None:
    summary = summarize(rounds(ttft=lambda p, r, k: 0.2 + 0.1 * r), [], FEW)
    assert [group.value("ttft_p50") for group in summary.by_round] == pytest.approx([0.2, 0.3, 0.4])
    assert [(group.started or "")[11:13] for group in summary.by_round] == ["06", "09", "12"]
    assert summary.groups[0].value("ttft_p50") == pytest.approx(0.3)


def test_a_saturated_load_is_refused_with_its_reason_and_the_others_stay() -> None:
    everything = rounds(number=2, ttft=lambda p, r, k: 0.2 if r == 0 else 9.0)
    late = cell(round_number=1, saturated="the loop was late by 80 ms")
    summary = summarize(everything, [cell(), late], FEW)
    assert summary.groups[0].value("ttft_p99") == pytest.approx(0.2)
    assert "the loop was late by 80 ms" in next(f.words for f in summary.findings if f.grade == "refused")
    both = summarize(everything, [cell(saturated="processor full"), late], FEW)
    assert both.verdict == "REFUSED"
    assert not both.groups[0].figures
    assert both.groups[0].refused == "round 0: processor full; round 1: the loop was late by 80 ms"


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_samples_are_inconclusive_and_said_so(count: int) -> None:
    summary = summarize([exchange(repeat=i) for i in range(count)], [], FEW)
    assert summary.verdict == ("FAILED" if count == 0 else "INCONCLUSIVE")
    for group in summary.groups:
        assert group.figures["ttft_p50"].value == pytest.approx(0.2)
        assert group.figures["ttft_p50"].words == f"INCONCLUSIVE: {count} exchanges, the 50th percentile needs 5"


def test_a_tail_needs_more_samples_than_a_median() -> None:
    group = only([exchange(repeat=i) for i in range(30)])
    assert group.figures["ttft_p95"].conclusive
    assert group.figures["ttft_p99"].words == "INCONCLUSIVE: 30 values, the 99th percentile needs 100"


def test_all_failed_has_a_verdict_and_no_figure() -> None:
    summary = summarize([failed(repeat=i) for i in range(6)], [], FEW)
    assert summary.verdict == "FAILED"
    assert summary.groups[0].value("ttft_p50") is None


def test_an_empty_answer_is_a_failure_of_its_own_kind_and_hidden_thinking_to_the_limit_is_censored() -> None:
    nothing: dict[str, object] = {"arrivals": (), "last_token_s": None}
    well = [exchange(repeat=i, sent_s=2.0 * i) for i in range(5)]
    thought = exchange(repeat=9, usage=Usage(output_tokens=100, reasoning_tokens=100), censored=True, **nothing)
    summary = summarize([*well, exchange(repeat=8, output_tokens=0, **nothing), thought], [], FEW)
    group = summary.groups[0]
    assert (group.errors, group.censored, group.succeeded) == ({"empty": 2}, 1, 5)
    words = [finding.words for finding in summary.warnings]
    assert any("the answer ended well and held nothing" in text for text in words)
    assert any("1 of 7 answers were censored" in text for text in words)


@pytest.mark.parametrize(
    "damage",
    [
        {"first_byte_s": math.nan},
        {"sent_s": math.inf},
        {"last_token_s": -1.0},
        {"arrivals": [Arrival(at_s=0.3, share="answer", characters=1), Arrival(at_s=0.2, share="answer", characters=1)]},
        {"arrivals": [Arrival(at_s=math.nan, share="answer", characters=1)]},
        {"arrivals": ()},
        {"output_tokens": -5},
    ],
)
def test_a_record_that_contradicts_itself_is_unsound_and_not_used(damage: dict[str, object]) -> None:
    group = only([exchange(repeat=i, sent_s=2.0 * i) for i in range(5)] + [replace(exchange(repeat=9), **damage)])
    assert group.errors == {"unsound": 1}
    assert group.value("ttft_p50") == pytest.approx(0.2)


def noisy(seed: int) -> list[Exchange]:
    dice = random.Random(seed)
    return rounds(prompts=4, repeats=2, number=2, ttft=lambda p, r, k: dice.uniform(0.1, 0.5), tokens=20)


@settings(max_examples=6, deadline=None)
@given(order=st.randoms(use_true_random=False), seed=st.integers(0, 100))
def test_the_order_of_exchanges_does_not_matter(order: random.Random, seed: int) -> None:
    straight = noisy(seed)
    shuffled = list(straight)
    order.shuffle(shuffled)
    assert summarize(shuffled, [], FEW).to_dict() == summarize(straight, [], FEW).to_dict()


@settings(max_examples=6, deadline=None)
@given(power=st.integers(-3, 3), seed=st.integers(0, 100))
def test_figures_scale_with_time(power: int, seed: int) -> None:
    factor = 2.0**power
    plain = noisy(seed)
    moments = ("scheduled_s", "sent_s", "first_byte_s", "first_event_s", "last_token_s", "ended_s")
    stretched = [
        replace(
            e,
            **{name: getattr(e, name) * factor for name in moments},
            arrivals=[replace(a, at_s=a.at_s * factor) for a in e.arrivals],
            started=f"2026-12-0{3 + e.trial.round}T00:00:00+00:00",
        )
        for e in plain
    ]
    one, other = only(plain), only(stretched)
    for name, estimate in one.figures.items():
        unit = DEFINITIONS[name.rpartition("_p")[0] if name not in DEFINITIONS else name].unit
        if name in ("aggregate", "requests_per_s", "in_flight") or estimate.value is None:
            continue  # slices of a window: see the crowd above
        scale = {"s": factor, "tokens/s": 1 / factor}.get(unit, 1.0)
        assert other.value(name) == pytest.approx(estimate.value * scale), name


def test_a_summary_survives_its_file(tmp_path) -> None:
    chosen = Settings(slo=Slo.parse("ttft=0.3"), prices=Prices(prompt=1, output=2), resamples=100, about={"prompts_sha256": "ab"})
    summary = summarize([*rounds(prompts=3), failed(repeat=99), *crowd(users=2)], [cell()], chosen)
    write_json(tmp_path / "a.json", summary.to_dict())
    again = load_summary(tmp_path / "a.json")
    assert json.loads(json.dumps(again.to_dict())) == json.loads((tmp_path / "a.json").read_text())
    assert isinstance(again, Summary)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "swiftsure.bench-summary/1"}', '{"schema": "other/3"}'])
def test_what_is_no_summary_is_refused_in_words(tmp_path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError, match=r"summary"):
        load_summary(tmp_path / "a.json")


@pytest.mark.parametrize("text", ["", "ttft", "ttft=0", "ttft=nan", "speed=3", "ttft=1,ttft=2"])
def test_a_service_level_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"limit"):
        Slo.parse(text)


def test_every_name_of_a_figure_is_known_and_defined() -> None:
    names = set(only(crowd(users=2), Settings(slo=Slo.parse("ttft=1"), prices=Prices(prompt=1, output=1), resamples=100)).figures)
    assert names <= set(known_names())
    assert all(definition.formula for definition in DEFINITIONS.values())


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """The median over prompts, rounds and repeats that all vary, drawn 100 times anew: 95 % intervals, so about 95 cover it."""
    rng = np.random.default_rng(7)
    covered, runs = 0, 100
    names = [(f"p{p}", r) for p, r, _ in itertools.product(range(15), range(3), range(5))]
    for run in range(runs):
        by_prompt, by_round = rng.normal(0, 0.3, 15), rng.normal(0, 0.05, 3)
        values = np.exp(np.array([by_prompt[int(p[1:])] + by_round[r] for p, r in names]) + rng.normal(0, 0.1, len(names)))
        estimate = Sample([p for p, _ in names], [r for _, r in names], resamples=300, seed=run).percentiles(values, [50])[0]
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 1.0 <= estimate.high
    assert covered >= 88, covered


def test_the_first_request_of_all_is_told_apart_from_the_figures() -> None:
    first = exchange(row="start", warm_up=True, ttft_s=7.0)
    summary = summarize([first, *rounds(number=1, prompts=2)], [], FEW)
    assert [group.row for group in summary.groups] == ["cold"]
    assert [reading.values["ttft"] for reading in summary.cold_starts] == [7.0]
