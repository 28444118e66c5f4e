"""Paired comparisons: their formulas by hand, and by simulation what their intervals and decisions promise."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from swiftsure.records.flips import mcnemar_exact, non_inferiority_exact, score_interval
from swiftsure.records.paired import (
    BOOTSTRAP,
    BOOTSTRAP_T,
    CLUSTERED,
    CONSERVATIVE,
    SCORE,
    compare_counts,
    compare_paired,
    items_needed,
)
from swiftsure.records.statistics import student_t

RNG = np.random.Generator


def flips(lost: int, gained: int, items: int) -> tuple[list[int], list[int]]:
    same = items - lost - gained
    return [1] * lost + [0] * gained + [1] * same, [0] * lost + [1] * gained + [1] * same


def test_mcnemar_is_the_exact_binomial_test_on_the_flips() -> None:
    assert mcnemar_exact(1, 8) == pytest.approx(2 * (1 + 9) / 2**9)
    assert mcnemar_exact(3, 3) == 1.0
    assert mcnemar_exact(0, 0) == 1.0
    assert mcnemar_exact(400, 300) < 0.001


def test_without_a_flip_the_exact_p_value_is_that_of_never_seeing_the_margins_losses() -> None:
    for items in (50, 98, 99, 300):
        assert non_inferiority_exact(0, 0, items, 0.03) == pytest.approx(0.97**items + 5e-4, rel=1e-6)


def test_no_flip_in_few_items_is_not_equality() -> None:
    few, many = (compare_paired(*flips(0, 0, items), margin=0.03) for items in (60, 200))
    assert few.decision == "undecided"
    assert few.items_to_decide is not None
    assert few.items_to_decide >= 99
    assert few.low is not None
    assert few.low < -0.03
    assert many.decision == "non_inferior"


def test_score_interval_is_the_published_example() -> None:
    """Tango (1998), the contact lens data: 44 pairs, flips 1 and 0."""
    low, high = score_interval(0, 1, 44)
    assert low == pytest.approx(-0.0600, abs=0.002)
    assert high == pytest.approx(0.1180, abs=0.002)
    mirrored = score_interval(1, 0, 44)
    assert mirrored == pytest.approx((-high, -low))


def test_counts_reproduce_a_published_table_of_task_checks() -> None:
    """FoldBench-Lite: 1,925 pairs, 54.8 % against 55.0, 54.5 and 54.2; one setting at -3.5 points, interval -7.7 to 0.0."""
    right = {"exact": 1059, "fast": 1049, "big": 1043}
    for mode, count in right.items():
        lost, gained = (20, 20 + count - 1055) if count > 1055 else (20 + 1055 - count, 20)
        found = compare_counts(both=1055 - lost, lost=lost, gained=gained, neither=1925 - 1055 - gained, margin=0.03)
        assert f"{found.baseline:.1%}" == "54.8%"
        assert f"{found.candidate:.1%}" == {"exact": "55.0%", "fast": "54.5%", "big": "54.2%"}[mode]
        assert found.low is not None
        assert found.high is not None
        assert found.low < 0 < found.high
    setting = compare_counts(both=80, lost=6, gained=1, neither=56, margin=0.03, interval="bootstrap")
    assert (f"{setting.difference:.1%}", f"{setting.low:.1%}", f"{setting.high:.1%}") == ("-3.5%", "-7.7%", "0.0%")
    assert setting.decision == "undecided"  # an interval that holds 0 is not equality


def test_a_clear_loss_is_inferior_and_a_clear_tie_is_not() -> None:
    assert compare_paired(*flips(80, 5, 600), margin=0.03).decision == "inferior"
    assert compare_paired(*flips(10, 9, 600), margin=0.03).decision == "non_inferior"
    assert compare_paired(*flips(20, 6, 600), margin=0.03).decision == "undecided"


def test_equivalence_needs_both_sides() -> None:
    better = compare_paired(*flips(2, 40, 600), margin=0.03)
    assert better.decision == "non_inferior"
    assert better.p_equivalent is not None
    assert better.p_equivalent > 0.5


def test_the_worst_group_shows_although_the_mean_is_fine() -> None:
    good, bad = flips(5, 5, 900), flips(20, 0, 100)
    found = compare_paired(good[0] + bad[0], good[1] + bad[1], margin=0.05, groups=["short"] * 900 + ["long"] * 100)
    assert found.decision == "non_inferior"
    assert found.worst_group == "long"
    assert found.groups["long"].decision == "inferior"
    assert found.groups["short"].decision == "non_inferior"
    assert found.to_dict()["groups"]["long"]["lost"] == 20


def test_clusters_widen_the_interval_and_keep_bunched_losses_from_passing() -> None:
    a, b = flips(12, 0, 600)
    alone, bunched = compare_paired(a, b, margin=0.04), compare_paired(a, b, margin=0.04, clusters=[i // 12 for i in range(600)])
    assert alone.decision == "non_inferior"
    assert bunched.decision == "undecided"  # all twelve losses are one text of fifty
    assert (bunched.clusters, bunched.items) == (50, 600)
    assert bunched.low is not None
    assert alone.low is not None
    assert bunched.low < alone.low


def test_right_and_wrong_take_the_score_interval_and_say_where_few_flips_make_it_conservative() -> None:
    assert compare_paired(*flips(2, 1, 200), margin=None).interval == SCORE + CONSERVATIVE
    assert compare_paired(*flips(9, 7, 200), margin=None).interval == SCORE
    assert compare_paired(*flips(2, 1, 200), margin=None, interval="bootstrap").interval == BOOTSTRAP
    found = compare_paired(*flips(9, 7, 200), margin=None)
    assert (found.low, found.high) == score_interval(9, 7, 200)


def test_clusters_take_the_score_interval_of_so_many_items_as_they_are_worth() -> None:
    """Two of each four neighbours fall together, so that the variance is that of half as many items and a little more."""
    a = [1] * 400
    b = [0 if i % 40 < 2 else 1 for i in range(400)]
    found = compare_paired(a, b, margin=None, clusters=[i // 4 for i in range(400)])
    assert found.interval == CLUSTERED
    assert found.mcnemar_p == pytest.approx(2 * 0.5**10)  # ten clusters lost, none gained
    d = np.array([-2.0] * 10 + [0.0] * 90)
    effect = (100 / 99 * ((d + 0.2) ** 2).sum() / 400**2) / (0.05 * 0.95 / 400)
    expected = score_interval(20 / effect, 0, 400 / effect, z=student_t(0.975, 18))
    assert (found.low, found.high) == pytest.approx(expected)


def test_other_scores_take_the_bootstrap_t_whose_bounds_lie_further_on_the_longer_tail() -> None:
    rng = np.random.default_rng(3)
    base = rng.uniform(0.3, 0.9, 60)
    found = compare_paired(base, base - rng.exponential(0.1, 60), margin=None)
    assert found.interval == BOOTSTRAP_T
    assert found.low is not None
    assert found.high is not None
    assert found.difference - found.low > found.high - found.difference > 0


def test_the_same_seed_gives_the_same_interval_and_no_margin_no_decision() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.random(300), rng.random(300)
    first, second = (compare_paired(a, b, margin=None, seed=7) for _ in range(2))
    assert first == second
    assert first.decision is None
    assert first.both is None


def test_fewer_than_five_independent_units_decide_nothing() -> None:
    found = compare_paired(*flips(0, 30, 400), margin=0.03, clusters=[i // 100 for i in range(400)])
    assert (found.low, found.decision) == (None, "undecided")


def test_items_needed_follow_the_formula_and_are_unknown_at_the_margin() -> None:
    z = 1.6448536 + 0.8416212
    assert items_needed(margin=0.03, flip_rate=0.05) == math.ceil(z * z * 0.05 / 0.03**2)
    assert items_needed(margin=0.03, flip_rate=0.0) == 99
    assert items_needed(margin=0.03, flip_rate=0.05, difference=-0.03) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"candidate": [1, 0]}, "candidate must have one entry for each of 3 items, got 2"),
        ({"clusters": ["a"]}, "clusters must have one entry for each of 3 items, got 1"),
        ({"margin": 0}, "margin must be a number above 0, got 0"),
        ({"baseline": [1, math.nan, 0]}, "baseline must hold finite scores, got nan at item 1"),
        ({"baseline": [], "candidate": []}, "at least 1 item, got 0"),
        ({"interval": "exact"}, "interval must be auto, bootstrap or score, got 'exact'"),
    ],
)
def test_bad_input_states_rule_and_value(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"baseline": [1, 0, 1], "candidate": [1, 1, 0], "margin": 0.1}
    with pytest.raises(ValueError, match=message):
        compare_paired(**(arguments | change))  # type: ignore[arg-type]


# --- by simulation ----------------------------------------------------------------------------------------------------------


@cache
def interval_of(lost: int, gained: int, items: int) -> tuple[float, float]:
    found = compare_paired(*flips(lost, gained, items), margin=None, resamples=1000)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def trial(rng: RNG, items: int, rate: float, difference: float) -> tuple[int, int]:
    lost, gained, _ = rng.multinomial(items, [(rate - difference) / 2, (rate + difference) / 2, 1 - rate])
    return int(lost), int(gained)


@pytest.mark.parametrize(("items", "rate", "difference"), [(150, 0.1, 0.0), (500, 0.04, -0.02), (300, 0.3, 0.02)])
def test_nominal_95_percent_intervals_cover_93_to_97_percent(full: bool, items: int, rate: float, difference: float) -> None:
    rng, trials = np.random.default_rng(11), 6000 if full else 1500
    bounds = [interval_of(*trial(rng, items, rate, difference), items) for _ in range(trials)]
    covered = np.mean([low - 1e-9 <= difference <= high + 1e-9 for low, high in bounds])
    assert 0.93 <= covered <= 0.97


@pytest.mark.parametrize(("items", "rate"), [(60, 0.03), (100, 0.03), (200, 0.03), (200, 0.08), (500, 0.04)])
def test_a_candidate_worse_by_the_margin_is_accepted_at_most_5_percent_of_the_time(full: bool, items: int, rate: float) -> None:
    rng, trials = np.random.default_rng(13), 20_000 if full else 4000
    outcomes: dict[tuple[int, int], int] = {}
    for _ in range(trials):
        outcome = trial(rng, items, rate, -0.03)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    accepted = sum(n for (lost, gained), n in outcomes.items() if non_inferiority_exact(lost, gained, items, 0.03) <= 0.05)
    assert accepted / trials <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / trials)


def clustered(rng: RNG, clusters: int, size: int, rate: float, difference: float, correlation: float) -> tuple[np.ndarray, np.ndarray]:
    """Differences ``(items,)`` and their clusters: each cluster has rates of its own, drawn around the common ones."""
    spread = (1 - correlation) / correlation
    means = np.array([(rate - difference) / 2 + 1e-9, (rate + difference) / 2 + 1e-9, 1 - rate])
    found, names = [], []
    for name in range(clusters):
        count = int(rng.integers(size // 2, size * 3 // 2 + 1))
        found.append(rng.choice([-1.0, 1.0, 0.0], count, p=rng.dirichlet(means * spread)))
        names.append(np.full(count, name))
    return np.concatenate(found), np.concatenate(names)


@pytest.mark.parametrize(
    ("clusters", "rate", "correlation"), [(20, 0.03, 0.3), (40, 0.06, 0.1), (100, 0.15, 0.1)], ids=["rare bunches", "some", "many"]
)
def test_clusters_keep_coverage_and_false_accepts(full: bool, clusters: int, rate: float, correlation: float) -> None:
    rng, trials, margin = np.random.default_rng(17), 2000 if full else 120, 0.03
    covered = accepted = 0
    for _ in range(trials):
        d, names = clustered(rng, clusters, 10, rate, -margin, correlation)
        found = compare_paired((d <= 0).astype(float), (d <= 0) + d, margin=margin, clusters=names.tolist(), resamples=1000)
        assert found.low is not None
        assert found.high is not None
        covered += found.low - 1e-9 <= -margin <= found.high + 1e-9
        accepted += found.decision == "non_inferior"
    noise = 2.6 * math.sqrt(0.05 * 0.95 / trials)
    assert covered / trials >= 0.93 - noise
    assert accepted / trials <= 0.05 + noise


@pytest.mark.parametrize("kind", ["normal", "skewed", "rare"])
def test_real_scores_keep_coverage_and_false_accepts(full: bool, kind: str) -> None:
    rng, trials, items, margin = np.random.default_rng(19), 2000 if full else 120, 60, 0.03
    draws = {
        "normal": lambda: rng.normal(-margin, 0.1, items),
        "skewed": lambda: margin - rng.exponential(2 * margin, items),
        "rare": lambda: np.where(rng.random(items) < 0.05, -0.6, 0.0),
    }
    covered = accepted = 0
    for _ in range(trials):
        base = rng.uniform(0.3, 0.9, items)
        found = compare_paired(base, base + draws[kind](), margin=margin, resamples=1000)
        assert found.low is not None
        assert found.high is not None
        covered += found.low - 1e-9 <= -margin <= found.high + 1e-9
        accepted += found.decision == "non_inferior"
    noise = 2.6 * math.sqrt(0.05 * 0.95 / trials)
    assert covered / trials >= 0.93 - noise
    assert accepted / trials <= 0.05 + noise
