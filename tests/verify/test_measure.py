from __future__ import annotations

from typing import Any

import pytest

from swiftsure.verify.proving import measure
from swiftsure.verify.proving.measure import Sample


def sample(
    prompt: str = "p", number: int = 0, *, decode_s: float = 1.0, tokens: int = 11, ttft_s: float | None = 0.1, **drafts: Any
) -> Sample:
    return Sample(
        prompt=prompt,
        kind="chat",
        size="short",
        greedy=True,
        round=number,
        prompt_tokens=20,
        output_tokens=tokens,
        wall_s=decode_s + 0.2,
        ttft_s=ttft_s,
        phases_s={"tokenize": 0.01, "prefill": 0.1, "decode": decode_s, "detokenize": 0.001},
        **drafts,
    )


def test_decode_speed_leaves_the_first_token_out() -> None:
    assert measure.decode_tokens_per_s([sample(decode_s=2.0, tokens=11)]) == pytest.approx(5.0)


def test_a_single_token_has_no_decode_speed() -> None:
    assert measure.decode_tokens_per_s([sample(tokens=1)]) is None
    assert measure.speedup([sample(tokens=1)], [sample(tokens=1)], "decode") is None


def test_medians_are_taken_per_prompt_and_then_over_prompts() -> None:
    samples = [sample("a", i, decode_s=s) for i, s in enumerate((1.0, 1.0, 9.0))] + [sample("b", decode_s=3.0), sample("c", decode_s=2.0)]
    assert measure.typical(samples, "decode") == pytest.approx(0.2)


def test_speedup_pairs_by_prompt_and_round() -> None:
    base = [sample("a", i, decode_s=s) for i, s in enumerate((2.0, 20.0, 2.0, 200.0, 4.0))]
    other = [sample("a", i, decode_s=s / 2) for i, s in enumerate((2.0, 20.0, 2.0, 200.0, 4.0))]
    ratio = measure.speedup(base, other, "decode")
    assert ratio is not None
    assert ratio.value == pytest.approx(2.0)
    assert ratio.low == pytest.approx(2.0)


def test_rounds_that_only_one_side_ran_are_left_out() -> None:
    ratio = measure.speedup([sample("a", 0)], [sample("a", 0), sample("a", 1)], "end_to_end")
    assert ratio is not None
    assert ratio.pairs == 1


def test_worst_prompt_is_named_per_metric() -> None:
    base = [sample("a", decode_s=2.0, ttft_s=0.1), sample("b", decode_s=2.0, ttft_s=0.4)]
    other = [sample("a", decode_s=1.0, ttft_s=0.2), sample("b", decode_s=4.0, ttft_s=0.1)]
    worst = measure.worst(base, other)
    assert (worst["decode"], worst["decode_prompt"]) == (pytest.approx(0.5), "b")
    assert (worst["ttft"], worst["ttft_prompt"]) == (pytest.approx(0.5), "a")


def test_phases_are_one_pass_over_the_workload() -> None:
    samples = [sample("a", i, decode_s=s) for i, s in enumerate((1.0, 3.0, 2.0))] + [sample("b", decode_s=5.0)]
    phases = measure.phase_seconds(samples, load_s=0.5)
    assert phases == pytest.approx({"load": 0.5, "tokenize": 0.02, "prefill": 0.2, "decode": 7.0, "detokenize": 0.002})
    assert measure.request_seconds(samples) == pytest.approx(2.2 + 5.2)


def test_tokens_per_pass_counts_accepted_draft_tokens() -> None:
    assert sample(tokens=11, accepted=0).tokens_per_pass == 1.0
    assert sample(tokens=11, accepted=5).tokens_per_pass == 2.0
    assert sample(tokens=1).tokens_per_pass is None


def test_inconclusive_ratio_is_null_in_the_headline_and_told_in_the_intervals() -> None:
    figures = measure.figures([sample()], [sample(decode_s=0.5)])
    assert figures["speedup"]["decode"] is None
    assert figures["intervals"]["decode"]["verdict"] == "INCONCLUSIVE"
    assert figures["intervals"]["decode"]["ratio"] == pytest.approx(2.0)


def test_drafts_are_pooled_over_samples_beside_their_ceiling() -> None:
    able = [
        sample("a", tokens=101, drafted=80, accepted=60, best_passes=20, best_cost=40.0),
        sample("b", tokens=11, best_passes=10, best_cost=10.0),
    ]
    found = measure.speculation([*able, sample("c", tokens=1)])
    assert found == {
        "tokens_per_pass": pytest.approx(110 / 50),
        "accepted_per_drafted": pytest.approx(60 / 80),
        "ceiling_tokens_per_pass": pytest.approx(110 / 30),
        "ceiling_speedup": pytest.approx(110 / 50),
    }
    assert measure.speculation([sample(tokens=11)]) is None, "where speculation is off there is nothing to say"
    assert measure.speculation(able[1:])["accepted_per_drafted"] is None
