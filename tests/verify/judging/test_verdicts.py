"""Every kind of verdict, from hand-made trials and a contract."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from trials import ACTIVE, OWNED, array, contract_of, findings_of, pair, trial, verdict_of

from swiftsure.verify.judging.observation import Observation, observe
from swiftsure.verify.judging.verdict import EXIT_CODES, STRONGEST_FIRST, Finding, decide
from swiftsure.verify.subjects.base import Activation, Case

EXACT = contract_of(OWNED + 'kind = "exact"\n')
FAST = contract_of(
    OWNED + 'kind = "fast"\nsizes = [100, 1000]\n[fast.outputs.y]\nabsolute = 0.002\n'
    '[[task]]\nname = "right"\noutput = "score"\nmargin = 0.05\nleast_items = 100\n'
)
BIG = contract_of(
    OWNED + 'kind = "big"\n[big]\ntrained_context = 1500\naccuracy_output = "score"\n'
    "[[big.size]]\nsize = 1000\naccuracy = 0.6\n[[big.size]]\nsize = 2000\naccuracy = 0.6\nmemory_bytes = 100\n"
)


def scored(count: int, wrong: int, size: float = 50, start: int = 0) -> list[Observation]:
    """Cases that the baseline always gets right and the candidate ``wrong`` times not."""
    return [
        pair(
            FAST,
            f"case-{start + i}",
            {"y": array(1, 2), "score": array(1)},
            {"y": array(1, 2.001), "score": array(float(i >= wrong))},
            size,
        )
        for i in range(count)
    ]


def test_exit_codes_are_0_for_pass_1_for_fail_and_3_for_all_that_is_not_proved() -> None:
    assert {kind: EXIT_CODES[kind] for kind in STRONGEST_FIRST} == {
        "NOT_ACTIVE": 3, "FAIL": 1, "NOT_FINISHED": 3, "HOLD": 3, "INCONCLUSIVE": 3, "COMPARED_ONLY": 3, "PASS": 0,
    }  # fmt: skip


def test_nothing_found_proves_nothing() -> None:
    assert decide([]).kind == "NOT_FINISHED"


@pytest.mark.parametrize(("stronger", "weaker"), [*pairwise(STRONGEST_FIRST)])
def test_the_stronger_finding_decides(stronger: Any, weaker: Any) -> None:
    found = decide([Finding(verdict=weaker, about="a", words="w"), Finding(verdict=stronger, about="a", words="s")])
    assert (found.kind, found.reasons) == (stronger, ("s",))


class TestExact:
    def test_equal_bits_pass_and_are_counted(self) -> None:
        found = verdict_of(EXACT, [pair(EXACT, "a", {"y": array(1, 2)}, {"y": array(1, 2)})])
        assert found.kind == "PASS"
        assert "2 elements, 64 bits of arrays, 0 differing" in " ".join(found.reasons)

    def test_1_000_and_2_000_against_1_000_and_2_001_fails_and_says_where(self) -> None:
        found = verdict_of(EXACT, [pair(EXACT, "a", {"y": np.array([1.0, 2.0])}, {"y": np.array([1.0, 2.001])})])
        assert found.kind == "FAIL"
        assert found.exit_code == 1
        assert "y [1]: 2.0" in found.reasons[0]
        assert "1 of 2 elements differ" in found.reasons[0]

    def test_zeros_of_two_signs_are_equal_by_value_and_not_by_bits(self) -> None:
        assert verdict_of(EXACT, [pair(EXACT, "a", {"y": array(0.0)}, {"y": array(-0.0)})]).kind == "FAIL"

    def test_nan_is_itself_to_the_bit(self) -> None:
        assert verdict_of(EXACT, [pair(EXACT, "a", {"y": array(np.nan)}, {"y": array(np.nan)})]).kind == "PASS"

    def test_a_baseline_that_differs_from_itself_makes_exact_not_active(self) -> None:
        case = Case(id="a")
        seen = observe(case, [trial(case, {"y": array(1)}), trial(case, {"y": array(2)})], [trial(case, {"y": array(1)})], EXACT)
        found = verdict_of(EXACT, [seen])
        assert found.kind == "NOT_ACTIVE"
        assert found.exit_code == 3
        assert "the baseline differs from itself in 1 of 1 cases" in found.reasons[0]

    def test_a_baseline_that_breaks_is_not_called_unsteady(self) -> None:
        case = Case(id="a")
        broken = [trial(case, status="failed", reason="exit code 2")] * 2
        found = verdict_of(EXACT, [observe(case, broken, broken[:1], EXACT)])
        assert found.kind == "NOT_FINISHED"
        assert not any("differs from itself" in reason for reason in found.reasons)

    def test_a_case_without_outputs_is_not_passed_over(self) -> None:
        seen = [pair(EXACT, "a", {"x": array(1)}, {"x": array(1)}), pair(EXACT, "b", {}, {})]
        found = verdict_of(EXACT, seen)
        assert found.kind == "NOT_FINISHED"
        assert "nothing was compared in 1 of 2 cases: case b: the baseline has no output to compare" in found.reasons[0]

    def test_a_baseline_asked_once_was_not_compared_with_itself(self) -> None:
        case = Case(id="a")
        seen = observe(case, [trial(case, {"y": array(1)})], [trial(case, {"y": array(1)})], EXACT)
        assert verdict_of(EXACT, [seen]).kind == "NOT_FINISHED"

    def test_only_the_outputs_that_the_contract_names_are_compared(self) -> None:
        some = contract_of(OWNED + 'kind = "exact"\n[exact]\noutputs = ["y"]\n')
        assert verdict_of(some, [pair(some, "a", {"y": array(1), "t": array(1)}, {"y": array(1), "t": array(9)})]).kind == "PASS"

    def test_a_repeat_that_differs_counts_though_the_others_do_not(self) -> None:
        case = Case(id="a")
        base = [trial(case, {"y": array(1)})] * 2
        seen = observe(case, base, [trial(case, {"y": array(v)}) for v in (1, 2, 1)], EXACT)
        assert verdict_of(EXACT, [seen]).kind == "FAIL"


class TestFast:
    def test_within_tolerance_and_as_good_at_the_task_passes(self) -> None:
        found = findings_of(FAST, scored(200, 0))
        assert {finding.verdict for finding in found} == {"PASS"}
        assert "nearest to its limit: y absolute 0.001 of 0.002" in " ".join(finding.words for finding in found)

    def test_the_worst_case_fails_though_the_mean_is_within(self) -> None:
        one = pair(FAST, "far", {"y": array(1, 2), "score": array(1)}, {"y": array(1, 2.01), "score": array(1)}, 500)
        found = verdict_of(FAST, [*scored(200, 0), one])
        assert found.kind == "FAIL"
        assert "at far (over 100 to 1,000 bytes); 1 of 1 cases beyond it" in found.reasons[0]
        same_size = pair(FAST, "far", {"y": array(1, 2), "score": array(1)}, {"y": array(1, 2.01), "score": array(1)}, 50)
        assert "1 of 201 cases beyond it though the mean is within" in verdict_of(FAST, [*scored(200, 0), same_size]).reasons[0]

    def test_a_loss_at_one_input_size_fails_though_the_whole_is_not_worse(self) -> None:
        found = verdict_of(FAST, [*scored(1500, 0), *scored(100, 25, size=500, start=2000)])
        assert found.kind == "FAIL"
        assert any("task right, over 100 to 1,000 bytes" in reason and "though the whole is not" in reason for reason in found.reasons)

    def test_too_few_items_are_inconclusive_with_the_number_that_would_decide(self) -> None:
        found = verdict_of(FAST, scored(20, 0))
        assert found.kind == "INCONCLUSIVE"
        assert found.items_needed is not None
        assert found.items_needed >= 100

    def test_a_shown_loss_fails(self) -> None:
        assert verdict_of(FAST, scored(300, 60)).kind == "FAIL"

    def test_no_tolerance_holds(self) -> None:
        none = contract_of(OWNED + 'kind = "fast"\n[[task]]\nname = "right"\noutput = "score"\nmargin = 0.05\n')
        found = verdict_of(none, scored(200, 0))
        assert (found.kind, found.exit_code) == ("HOLD", 3)
        assert "no tolerance is set" in found.reasons[0]

    def test_no_margin_holds(self) -> None:
        none = contract_of(OWNED + 'kind = "fast"\n[fast.outputs.y]\nabsolute = 1\n[[task]]\nname = "right"\noutput = "score"\n')
        assert "no margin is set" in verdict_of(none, scored(200, 0)).reasons[0]

    def test_outputs_alone_are_compared_only(self) -> None:
        no_task = contract_of(OWNED + 'kind = "fast"\n[fast.outputs.y]\nabsolute = 1\n')
        found = verdict_of(no_task, scored(3, 0))
        assert (found.kind, found.exit_code) == ("COMPARED_ONLY", 3)

    def test_another_shape_and_a_missing_output_are_within_no_tolerance(self) -> None:
        for other in ({"y": array(1)}, {"z": array(1, 2)}):
            assert verdict_of(FAST, [pair(FAST, "a", {"y": array(1, 2)}, other)]).kind == "FAIL"

    def test_a_document_that_differs_in_more_than_numbers_in_one_case_fails_beside_cases_that_do_not(self) -> None:
        same = pair(FAST, "a", {"y": {"n": 1.0, "unit": "m"}}, {"y": {"n": 1.001, "unit": "m"}})
        assert not [f for f in findings_of(FAST, [same]) if f.about == "tolerance" and f.verdict != "PASS"]
        other = pair(FAST, "b", {"y": {"n": 1.0, "unit": "m"}}, {"y": {"n": 1.0, "unit": "ft"}})
        found = verdict_of(FAST, [same, other])
        assert found.kind == "FAIL"
        assert "case b: y cannot be held to a tolerance: $.unit differs in more than a number" in found.reasons

    def test_a_nan_on_one_side_is_within_no_tolerance(self) -> None:
        assert verdict_of(FAST, [pair(FAST, "a", {"y": array(1, 2)}, {"y": array(1, np.nan)})]).kind == "FAIL"

    def test_a_limit_for_which_nothing_was_measured_does_not_hold_by_silence(self) -> None:
        other = contract_of(OWNED + 'kind = "fast"\n[fast.outputs.logits]\nkl_mean = 0.1\n')
        found = findings_of(other, [pair(other, "a", {"y": array(1)}, {"y": array(1)})])
        assert any(f.verdict == "INCONCLUSIVE" and "the limits kl_mean of output logits" in f.words for f in found)

    def test_distributions_are_held_to_their_limits(self) -> None:
        owed = contract_of(OWNED + 'kind = "fast"\n[fast.outputs.logits]\nkl_max = 0.01\ntop1_agreement = 1.0\n')
        a = np.random.default_rng(1).normal(0, 2, (6, 40)).astype(np.float32)
        assert verdict_of(owed, [pair(owed, "a", {"logits": a}, {"logits": a + 1})]).kind == "COMPARED_ONLY"
        assert verdict_of(owed, [pair(owed, "a", {"logits": a}, {"logits": a[:, ::-1].copy()})]).kind == "FAIL"


class TestBig:
    def seen(self, size: float, score: float | None = 1.0, count: int = 40, **more: Any) -> list[Observation]:
        outputs = {} if score is None else {"score": array(score)}
        return [pair(BIG, f"{size:g}-{i}", outputs, outputs, size, **({"peak_bytes": 50} | more)) for i in range(count)]

    def test_sizes_that_run_and_are_accurate_pass(self) -> None:
        assert verdict_of(BIG, [*self.seen(900), *self.seen(2000)]).kind == "PASS"

    @pytest.mark.parametrize("status", ["refused", "out_of_memory", "timed_out", "failed"])
    def test_a_size_that_does_not_run_fails_and_says_how(self, status: str) -> None:
        found = verdict_of(BIG, [*self.seen(900), *self.seen(2000, status=status, reason="it said so")])
        assert found.kind == "FAIL"
        assert f"0 of 40 cases ran, 40 {status.replace('_', ' ')}: it said so" in found.reasons[0]
        assert "beyond the trained context" in found.reasons[0]

    def test_a_size_that_runs_and_is_not_accurate_fails_by_accuracy_alone(self) -> None:
        found = findings_of(BIG, [*self.seen(900), *self.seen(2000, score=0.1)])
        at_2000 = {(f.about, f.verdict) for f in found if f.words.startswith("2,000")}
        assert at_2000 == {("size", "PASS"), ("memory", "PASS"), ("task", "FAIL")}

    def test_few_items_near_the_bar_are_inconclusive(self) -> None:
        found = verdict_of(BIG, [*self.seen(900), *self.seen(2000, score=0.7, count=10)])
        assert found.kind == "INCONCLUSIVE"
        assert found.items_needed is not None
        assert found.items_needed > 10

    def test_running_without_a_score_is_not_being_accurate(self) -> None:
        assert verdict_of(BIG, [*self.seen(900), *self.seen(2000, score=None)]).kind == "COMPARED_ONLY"

    def test_a_promised_size_without_a_case_is_not_finished(self) -> None:
        assert verdict_of(BIG, self.seen(900)).kind == "NOT_FINISHED"

    def test_the_memory_limit_of_a_size_is_its_own(self) -> None:
        found = verdict_of(BIG, [*self.seen(900, peak_bytes=500), *self.seen(2000, peak_bytes=500)])
        assert found.reasons == ("2,000 bytes (beyond the trained context): memory 500 bytes against a limit of 100 bytes",)


class TestConditions:
    def same(self, contract: Any = EXACT) -> list[Observation]:
        return [pair(contract, "a", {"y": array(1)}, {"y": array(1)})]

    def test_not_active_outweighs_everything(self) -> None:
        off = Activation(state="not_active", reason="no such kernel")
        found = verdict_of(EXACT, self.same(), activations={"candidate": (ACTIVE, off)})
        assert (found.kind, found.reasons) == ("NOT_ACTIVE", ("the candidate is not active: no such kernel",))

    def test_a_candidate_that_nothing_tells_of_holds_unless_the_contract_says_otherwise(self) -> None:
        silent = {"candidate": (Activation(state="unknown"),)}
        assert verdict_of(EXACT, self.same(), activations=silent).kind == "HOLD"
        easy = contract_of(OWNED + 'kind = "exact"\n[activation]\nrequired = false\n')
        assert verdict_of(easy, self.same(easy), activations=silent).kind == "PASS"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "nobody owns it"),
            (OWNED + "recheck = 2026-12-02\n", "its recheck date, 2026-12-02, has come"),
            (OWNED + '[pins]\nhardware = "H100"\n', "the target cannot be measured here: the contract pins 'H100'"),
            (OWNED + "[time]\ngoal_s = 1.5\n", "the goal is met already: the baseline takes 1 s a case"),
        ],
    )
    def test_what_is_not_settled_holds(self, text: str, words: str) -> None:
        contract = contract_of(f'kind = "exact"\n{text}')
        found = verdict_of(contract, self.same(contract))
        assert found.kind == "HOLD"
        assert words in found.reasons[0]

    def test_a_release_other_than_the_pinned_one_holds_and_an_unstated_one_does_not(self) -> None:
        contract = contract_of(OWNED + f'kind = "exact"\n[pins.candidate]\nweights_sha256 = "{"0" * 64}"\n')
        stated = {"candidate": {"model": {"sha256": "1" * 64}}}
        assert "is not the one that is pinned" in verdict_of(contract, self.same(contract), pins=stated).reasons[0]
        assert verdict_of(contract, self.same(contract)).kind == "PASS"

    def test_a_run_that_was_cut_short_is_not_finished(self) -> None:
        assert verdict_of(EXACT, self.same(), cut_short="interrupted").kind == "NOT_FINISHED"

    def test_a_case_that_only_the_baseline_answers_fails(self) -> None:
        case = Case(id="a")
        base = [trial(case, {"y": array(1)})] * 2
        seen = observe(case, base, [trial(case, status="out_of_memory", reason="too much")], EXACT)
        found = verdict_of(EXACT, [seen])
        assert (found.kind, found.reasons) == ("FAIL", ("case a: the baseline ran, the candidate out of memory: too much",))
        turned = observe(case, [trial(case, status="timed_out", reason="slow")], base, EXACT)
        assert verdict_of(EXACT, [turned]).kind == "NOT_FINISHED"
