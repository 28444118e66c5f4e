"""The sampler against its float64 twin, against statistics, and against itself under other schedules and instruction sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from swiftsure.errors import ContractError, NotActiveError, UsageError
from swiftsure.kernels import _core
from swiftsure.kernels import sampling_reference as twin
from swiftsure.kernels.reference import log_softmax, softmax
from swiftsure.kernels.sampling import Sampler, log_probs, top_log_probs

ISAS = tuple(_core.supported_isas())
BEST = ISAS[0]
Row = NDArray[np.float32]


def make_row(vocab: int, seed: int, spread: float = 3.0) -> Row:
    return (np.random.default_rng(seed).standard_normal(vocab) * spread).astype(np.float32)


def winners(row: Row, temperature: float, count: int, *, isa: str = BEST, seed: int = 11) -> NDArray[np.int64]:
    return np.array([_core.gumbel_argmax(isa, row, temperature, seed, 0, position) for position in range(count)])


# --- the generator ------------------------------------------------------------------------------------------------------------------

PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (PI, (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_published_words(isa: str, counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    # Known answers of Random123's kat_vectors for philox4x32-10.
    words = _core.philox4x32(isa, np.array(counter, np.uint32), np.array(key, np.uint32))
    assert tuple(words) == expected
    assert tuple(twin.philox4x32(counter, key)) == expected


def test_noise_follows_its_twin_and_stays_finite_at_the_uniform_extremes() -> None:
    edges = np.array([0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**24, 2**23 + 1], dtype=np.uint32)
    words = np.concatenate([edges, np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)])
    noise, _ = _core.gumbel_of_words(BEST, words)
    assert np.isfinite(noise).all()
    np.testing.assert_allclose(noise, twin.noise_of_words(words), rtol=2e-7, atol=3e-7)
    assert noise[0] == pytest.approx(33 * math.log(2), rel=1e-6)  # the rarest word still has its full weight


def test_the_bound_that_prunes_is_never_below_the_noise() -> None:
    words = np.concatenate([np.arange(2**16, dtype=np.uint32), np.random.default_rng(2).integers(0, 2**32, 500_000, dtype=np.uint32)])
    words = np.concatenate([words, (np.uint64(1) << np.arange(32, dtype=np.uint64)).astype(np.uint32)])
    noise, bound = _core.gumbel_of_words(BEST, words)
    assert (bound >= noise).all()
    common = (noise > 3) & (noise < 15)
    assert (bound[common] - noise[common]).max() < 0.1


def test_noise_has_the_same_bits_on_every_instruction_set() -> None:
    words = np.random.default_rng(3).integers(0, 2**32, 20_011, dtype=np.uint32)
    expected, _ = _core.gumbel_of_words("portable", words)
    for isa in ISAS:
        assert _core.gumbel_of_words(isa, words)[0].tobytes() == expected.tobytes()


# --- argmax and sampling kernels ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab", [1, 15, 16, 17, 63, 64, 65, 1000, 4099])
def test_argmax_takes_the_lowest_id_of_the_greatest(isa: str, vocab: int) -> None:
    rng = np.random.default_rng(vocab)
    for _ in range(50):
        row = rng.integers(-3, 3, vocab).astype(np.float32)
        assert _core.argmax(isa, row) == int(np.argmax(row))


@pytest.mark.parametrize("isa", ISAS)
def test_argmax_never_takes_nan_unless_there_is_nothing_else(isa: str) -> None:
    nan, infinity = np.nan, np.inf
    cases: list[tuple[list[float], int]] = [
        ([nan, 1, nan, 2, nan], 3),
        ([nan, -infinity, nan, -infinity], 1),
        ([nan] * 40, 0),
        ([nan] * 70 + [-5.0] + [nan] * 9, 70),
        ([-0.0, 0.0], 0),
        ([1, infinity, infinity], 1),
    ]
    for row, expected in cases:
        assert _core.argmax(isa, np.array(row, np.float32)) == expected


@pytest.mark.parametrize("vocab", [1, 7, 64, 100, 2051, 49_152])
@pytest.mark.parametrize("temperature", [0.05, 0.7, 1.0, 5.0])
def test_pruned_sampling_chooses_what_the_twin_scores_best(vocab: int, temperature: float) -> None:
    row = make_row(vocab, vocab)
    for position in range(3 if vocab > 10_000 else 20):
        words = twin.noise_words(vocab, seed=2**40 + 5, choice=3, position=position)
        score = (row.astype(np.float64) - row.max()) / temperature + twin.noise_of_words(words)
        token = _core.gumbel_argmax(BEST, row, temperature, 2**40 + 5, 3, position)
        assert score[token] >= score.max() - 1e-5 * max(1.0, 1 / temperature)


@pytest.mark.parametrize("spread", [0.0, 0.01, 3.0, 30.0])
def test_every_instruction_set_samples_the_same_tokens(spread: float) -> None:
    row = make_row(3001, 4, spread)
    expected = winners(row, 0.9, 200, isa="portable")
    for isa in ISAS:
        assert (winners(row, 0.9, 200, isa=isa) == expected).all()


def test_sampled_frequencies_follow_the_softmax() -> None:
    # Chi-square over 20,000 draws; seeds are fixed, so this passes always or never. 99.9 % quantile for 19 degrees of freedom: 43.8.
    row, temperature, draws = make_row(20, 5, 1.5), 0.8, 20_000
    expected = softmax(row.astype(np.float64) / temperature) * draws
    for seed in (1, 2, 3):
        observed = np.bincount(winners(row, temperature, draws, seed=seed), minlength=20)
        assert (((observed - expected) ** 2) / expected).sum() < 43.8


def test_choices_and_seeds_draw_independently() -> None:
    row = np.zeros(256, dtype=np.float32)
    draws = [
        [_core.gumbel_argmax(BEST, row, 1.0, seed, choice, p) for p in range(400)]
        for seed, choice in ((1, 0), (1, 1), (2, 0), (2**32 + 1, 0))
    ]
    for i, a in enumerate(draws):
        for b in draws[i + 1 :]:
            assert sum(x == y for x, y in zip(a, b, strict=True)) < 12  # 400 / 256 expected


def test_removing_a_losing_token_never_changes_the_winner() -> None:
    row = make_row(500, 6, 1.0)
    for position in range(100):
        winner = _core.gumbel_argmax(BEST, row, 1.0, 9, 0, position)
        fewer = row.copy()
        fewer[[t for t in range(0, 500, 3) if t != winner and t != int(row.argmax())]] = -np.inf
        assert _core.gumbel_argmax(BEST, fewer, 1.0, 9, 0, position) == winner


def test_tokens_of_minus_infinity_and_nan_are_never_sampled() -> None:
    row = np.full(300, -np.inf, dtype=np.float32)
    row[[3, 200]] = 0.0
    row[7] = np.nan
    assert set(winners(row, 100.0, 300)) == {3, 200}


def test_a_temperature_near_zero_is_greedy_without_overflow() -> None:
    row = make_row(1000, 7, 30.0)
    assert (winners(row, 1e-30, 50) == row.argmax()).all()
    assert (winners(row, 1e-6, 50) == row.argmax()).all()


# --- the processors -------------------------------------------------------------------------------------------------------------------

SETTINGS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 0.3, 1.0, 2.5]),
        "top_k": st.sampled_from([0, 1, 2, 5, 40, 10_000]),
        "top_p": st.sampled_from([1.0, 0.95, 0.6, 0.1]),
        "min_p": st.sampled_from([0.0, 0.01, 0.2, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.3, 0.8]),
        "presence_penalty": st.sampled_from([0.0, 0.7, -0.4]),
        "frequency_penalty": st.sampled_from([0.0, 0.3, -0.2]),
        "logit_bias": st.dictionaries(st.integers(0, 99), st.sampled_from([-100.0, -1.5, 2.0, -math.inf]), max_size=4),
    }
)


def on_a_boundary(row: Row, kwargs: dict[str, Any], prompt: list[int], output: list[int]) -> bool:
    """Whether rounding in float32 may decide otherwise than float64: a kept set that differs for slightly other limits."""

    def kept(factor: float) -> list[bool]:
        limits = {"top_p": min(1.0, kwargs["top_p"] * factor) if kwargs["top_p"] < 1 else 1.0, "min_p": min(1.0, kwargs["min_p"] / factor)}
        return list(np.isfinite(twin.process(row, **{**kwargs, **limits}, prompt=prompt, output=output)))

    return kwargs["min_p"] < 1 and kept(1 - 1e-5) != kept(1 + 1e-5)


@settings(max_examples=400, deadline=None)
@given(SETTINGS, st.integers(0, 2**32 - 1), st.lists(st.integers(0, 99), max_size=12), st.integers(0, 6), st.sampled_from(ISAS))
def test_processed_logits_are_the_twins(kwargs: dict[str, Any], seed: int, prompt: list[int], generated: int, isa: str) -> None:
    row = make_row(100, seed)
    sampler = Sampler(100, isa=isa, seed=seed, **kwargs)
    sampler.prime(prompt)
    output = [int(sampler.accept(make_row(100, seed + i)[None])[0]) for i in range(generated)]
    assert sampler.position == len(prompt) + generated
    if on_a_boundary(row, kwargs, prompt, output):
        return
    got, expected = sampler.process(row), twin.process(row, **kwargs, prompt=prompt, output=output)
    assert (np.isfinite(got) == np.isfinite(expected)).all()
    finite = np.isfinite(expected)
    np.testing.assert_allclose(got[finite], expected[finite], rtol=1e-5, atol=2e-5)


@settings(max_examples=200, deadline=None)
@given(SETTINGS, st.integers(0, 2**32 - 1), st.lists(st.integers(0, 99), max_size=8))
def test_the_token_is_the_best_of_the_processed_logits_plus_the_noise_of_its_id(
    kwargs: dict[str, Any], seed: int, prompt: list[int]
) -> None:
    sampler = Sampler(100, isa=BEST, seed=seed, choice=2, **kwargs)
    sampler.prime(prompt)
    row = make_row(100, seed)
    score = sampler.process(row).astype(np.float64)
    if kwargs["temperature"] > 0:
        score += twin.noise_of_words(twin.noise_words(100, seed=seed, choice=2, position=len(prompt)))
    token = int(sampler.accept(row[None])[0])
    assert score[token] >= score.max() - 1e-5


@settings(max_examples=200, deadline=None)
@given(SETTINGS, st.integers(0, 2**32 - 1), st.sampled_from(ISAS), st.integers(1, 9))
def test_accepting_a_draft_gives_the_tokens_of_one_row_at_a_time(kwargs: dict[str, Any], seed: int, isa: str, rows: int) -> None:
    # Logits that depend on the history, as a model's do: the same function answers both schedules.
    rng = np.random.default_rng(seed)
    table = make_row(64 * 100, seed).reshape(64, 100)
    prompt = list(rng.integers(0, 100, 5))

    def logits(history: list[int]) -> Row:
        return np.asarray(table[hash(tuple(history)) % 64])

    plain = Sampler(100, isa="portable", seed=seed, **kwargs)
    plain.prime(prompt)
    expected = list(prompt)
    for _ in range(30):
        expected.append(int(plain.accept(logits(expected)[None])[0]))

    speculating = Sampler(100, isa=isa, seed=seed, **kwargs)
    speculating.prime(prompt)
    history = list(prompt)
    while len(history) < len(expected):
        at = len(history)
        draft = [t if rng.random() < 0.8 else int(rng.integers(0, 100)) for t in expected[at : at + rows - 1]]
        batch = np.stack([logits(history + draft[:i]) for i in range(len(draft) + 1)])
        tokens = [int(t) for t in speculating.accept(batch, draft)]
        right = next((i for i, (a, b) in enumerate(zip(draft, expected[at:], strict=False)) if a != b), len(draft))
        assert len(tokens) == right + 1
        history += tokens
    assert history[: len(expected)] == expected


def test_a_wide_vocabulary_is_filtered_exactly_however_deep_the_cut_lies() -> None:
    # Flat logits need every depth of the search, peaked ones the first.
    for spread, top_p, top_k in ((0.0, 0.5, 0), (0.001, 0.9, 0), (5.0, 0.999, 0), (5.0, 1.0, 5000), (20.0, 0.9, 3000)):
        row = make_row(6000, 8, spread)
        sampler = Sampler(6000, isa=BEST, temperature=1.0, top_p=top_p, top_k=top_k)
        got, expected = sampler.process(row), twin.process(row, temperature=1.0, top_p=top_p, top_k=top_k)
        assert abs(int(np.isfinite(got).sum()) - int(np.isfinite(expected).sum())) <= 1


def test_equal_logits_are_cut_by_the_lower_id() -> None:
    row = np.zeros(10, dtype=np.float32)
    assert list(np.flatnonzero(np.isfinite(Sampler(10, isa=BEST, temperature=1.0, top_k=3).process(row)))) == [0, 1, 2]
    assert list(np.flatnonzero(np.isfinite(Sampler(10, isa=BEST, temperature=1.0, top_p=0.25).process(row)))) == [0, 1, 2]


def test_prompt_tokens_count_for_repetition_only() -> None:
    row = np.ones(4, dtype=np.float32)
    sampler = Sampler(4, isa=BEST, repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    sampler.prime([1, 1, 2])
    assert list(sampler.process(row)) == [1.0, 0.5, 0.5, 1.0]
    assert list(sampler.accept(np.stack([row, row]), [0])) == [0, 3]
    assert list(sampler.process(row)) == [0.5 - 0.75, 0.5, 0.5, 0.5 - 0.75]


# --- log-probabilities ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocab", [1, 17, 1024, 1025, 49_152])
def test_log_probabilities_are_those_of_the_raw_logits(vocab: int) -> None:
    row = make_row(vocab, vocab, 4.0)
    expected = log_softmax(row.astype(np.float64))
    np.testing.assert_allclose(log_probs(row, np.arange(vocab)), expected, atol=3e-7, rtol=0)
    ids, values = top_log_probs(row, 20)
    assert list(ids) == list(np.lexsort((np.arange(vocab), -row))[:20])
    np.testing.assert_allclose(values, expected[ids], atol=3e-7, rtol=0)


def test_log_probabilities_have_the_same_bits_on_every_instruction_set() -> None:
    row = make_row(5001, 9)
    expected = log_probs(row, np.arange(5001), isa="portable")
    for isa in ISAS:
        assert log_probs(row, np.arange(5001), isa=isa).tobytes() == expected.tobytes()


def test_top_log_probabilities_of_equal_logits_come_by_id() -> None:
    ids, values = top_log_probs(np.zeros(100, dtype=np.float32), 5)
    assert list(ids) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(values, -math.log(100), atol=1e-7)


# --- what is refused ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("temperature", math.nan, "temperature must be between 0 and 1000000, got nan"),
        ("temperature", -1.0, "temperature must be between 0 and 1000000, got -1"),
        ("temperature", math.inf, "temperature must be between 0 and 1000000, got inf"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1, got 0"),
        ("top_p", -1.0, "top_p must be above 0 and at most 1, got -1"),
        ("top_k", -3, "top_k must be at least 0, got -3"),
        ("min_p", 1.5, "min_p must be between 0 and 1, got 1.5"),
        ("repetition_penalty", 0.0, "repetition_penalty must be finite and above 0, got 0"),
        ("presence_penalty", math.inf, "presence_penalty must be finite, got inf"),
        ("frequency_penalty", math.nan, "frequency_penalty must be finite, got nan"),
        ("logit_bias", {10: 1.0}, "logit_bias ids must be in the vocabulary, got 10"),
        ("logit_bias", {1: math.nan}, "logit_bias values must be finite or -infinity, got nan"),
        ("isa", "sse9", "isa must be one of .* on this machine, got .sse9."),
    ],
)
def test_settings_out_of_range_are_refused_with_rule_and_value(name: str, value: Any, rule: str) -> None:
    with pytest.raises(UsageError, match=rule):
        Sampler(10, **{"isa": BEST, name: value})


def test_rows_of_the_wrong_shape_and_unknown_ids_are_refused() -> None:
    sampler = Sampler(10, isa=BEST)
    with pytest.raises(UsageError, match=r"logits must have shape \(rows, 10\)"):
        sampler.accept(np.zeros((1, 9), np.float32))
    with pytest.raises(UsageError, match="one token less than there are rows, got 0 for 2 rows"):
        sampler.accept(np.zeros((2, 10), np.float32))
    with pytest.raises(UsageError, match="prompt ids must be in the vocabulary, got 10"):
        sampler.prime([3, 10])
    with pytest.raises(UsageError, match="ids must be in the vocabulary, got -1"):
        log_probs(np.zeros(10, np.float32), [-1])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_a_row_without_a_token_to_choose_is_an_error_not_a_token(temperature: float, bad: float) -> None:
    sampler = Sampler(50, isa=BEST, temperature=temperature)
    rows = np.stack([make_row(50, 1), np.full(50, bad, np.float32)])
    draft = [int(Sampler(50, isa=BEST, temperature=temperature).accept(rows[:1])[0])]
    assert sampler.accept(rows, draft).tolist() == draft  # what was sampled before it stands
    with pytest.raises(ContractError, match="no token can be chosen at position 1"):
        sampler.accept(rows[1:])


@pytest.mark.usefixtures("without_amx")
def test_log_probabilities_heed_the_environment_and_refuse_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    row = np.zeros(4, dtype=np.float32)
    monkeypatch.setenv("SWIFTSURE_ISA", "amx")
    for call in (lambda: log_probs(row, [1]), lambda: top_log_probs(row, 1)):
        with pytest.raises(NotActiveError, match="amx is not available"):
            call()
    assert log_probs(row, [1], isa="portable")[0] == pytest.approx(-np.log(4))
