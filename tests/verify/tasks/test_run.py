from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import swiftsure
from swiftsure.errors import ContextLengthError, UsageError
from swiftsure.verify.tasks.items import Choice, Completion, ItemResult, Passage, Place, Task, Work
from swiftsure.verify.tasks.pairing import pair_results
from swiftsure.verify.tasks.run import answer_pairs, run_suite, work_of
from swiftsure.verify.tasks.scoring import ModelScorer, Weighed, Written


class Known:
    """Prefers the choice named in ``likes``; writes the prompt backwards; refuses passages and prompts that hold ``long``."""

    name, can_weigh, batch = "known", True, 3

    def __init__(self, likes: str = "a") -> None:
        self.likes = likes
        self.batches: list[int] = []

    def read(self, passage: Passage) -> list[Weighed]:
        if any("long" in place.before for place in passage.places):
            raise ContextLengthError("9 tokens do not fit")
        return [self._weighed(place.choices) for place in passage.places]

    def choose(self, choice: Choice) -> Weighed:
        return self._weighed(choice.choices)

    def complete(self, items: Sequence[Completion]) -> list[Written]:
        self.batches.append(len(items))
        if any("long" in item.prompt for item in items):
            raise ContextLengthError("9 tokens do not fit")
        return [Written(text=item.prompt[::-1], size=len(item.prompt)) for item in items]

    def _weighed(self, choices: Sequence[str]) -> Weighed:
        return Weighed(weights=tuple(float(choice == self.likes) for choice in choices), size=7)


def passage(name: str, before: str = "x", count: int = 3) -> Passage:
    return Passage(id=name, places=tuple(Place(before=before, choices=("a", "b"), right=i % 2) for i in range(count)))


def task(*works: Work, method: str = "likelihood") -> Task:
    return Task(name="t", about="", method=method, build=lambda: works)  # type: ignore[arg-type]


def text(name: str, prompt: str) -> Completion:
    return Completion(id=name, cluster=name, prompt=prompt, max_tokens=4, stop=(), check=lambda new: float(new == "ba"))


def test_places_choices_and_texts_are_scored_one_by_one() -> None:
    choice = Choice(id="c", cluster="c", context="", choices=("b", "a"), right=1)
    result = run_suite(Known(), [task(passage("p"), choice, text("t1", "ab"), text("t2", "ba"))])
    assert [r.score for r in result.results] == [1.0, 0.0, 1.0, 1.0, 1.0, 0.0]
    assert [r.cluster for r in result.results[:3]] == ["p"] * 3
    assert len({r.id for r in result.results}) == 6


def test_a_tie_with_the_right_answer_is_not_right() -> None:
    [result] = run_suite(Known("neither"), [task(passage("p", count=1))]).results
    assert (result.score, result.answer) == (0.0, "b")


def test_what_is_too_long_stays_unanswered_with_the_reason_and_the_others_go_on() -> None:
    scorer = Known()
    result = run_suite(scorer, [task(passage("p", "long"), text("t1", "long"), text("t2", "ab"), passage("q"))])
    by_id = {r.id: r for r in result.results}
    assert by_id["p-0"].reason == by_id["t1"].reason == "9 tokens do not fit"
    assert by_id["t2"].score == 1.0
    assert by_id["q-0"].reason is None
    assert scorer.batches == [2, 1, 1]
    assert result.summaries()[0].unanswered == 4


def test_a_limit_counts_items_and_cuts_a_passage_where_they_end() -> None:
    works = work_of(task(passage("p"), passage("q"), passage("r")), 5)
    assert [work.items for work in works] == [3, 2]


def test_time_per_right_answer_counts_the_wrong_ones_too() -> None:
    results = run_suite(Known(), [task(passage("p", count=4))])
    [summary] = results.summaries()
    assert summary.score == 0.5
    assert summary.seconds_per_correct == pytest.approx(summary.wall_s / 2)
    assert run_suite(Known("none"), [task(passage("p", count=1))]).summaries()[0].seconds_per_correct is None


def test_results_are_written_as_lines_of_json_and_as_csv(tmp_path: Path) -> None:
    results = run_suite(Known(), [task(passage("p"))])
    lines = [json.loads(line) for line in results.write(tmp_path / "items.jsonl").read_text().splitlines()]
    with results.write(tmp_path / "items.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [line["score"] for line in lines] == [float(row["score"]) for row in rows] == [1.0, 0.0, 1.0]


def test_a_task_of_likelihoods_is_refused_for_one_that_gives_texts_only() -> None:
    scorer = Known()
    scorer.can_weigh = False  # type: ignore[misc]
    with pytest.raises(UsageError, match="task t needs likelihoods, and known gives texts only"):
        run_suite(scorer, [task(passage("p"))])


def test_subjects_answer_the_same_items_in_turn_until_the_time_is_up() -> None:
    works = task(passage("p"), passage("q"))
    both = answer_pairs({"a": Known("a"), "b": Known("b")}, works, limit=None, budget_s=60, progress=lambda _: None)
    assert [r.id for r in both["a"]] == [r.id for r in both["b"]]
    assert sum(r.score for r in both["a"]) == 4
    assert answer_pairs({"a": Known()}, works, limit=None, budget_s=-1, progress=lambda _: None) == {"a": []}


def result(name: str, score: float, reason: str | None = None) -> ItemResult:
    return ItemResult(task="t", id=name, cluster=name, score=score, reason=reason)


def test_items_without_a_partner_are_reported_and_not_compared() -> None:
    base = [result("1", 1), result("2", 1), result("3", 0, "too long"), result("4", 1)]
    pairing = pair_results(base, [result("2", 0), result("4", 1), result("3", 1), result("9", 1)])
    assert [r.id for r in pairing.baseline] == ["2", "4"]
    assert pairing.compare(margin=None).lost == 1
    assert pairing.remarks() == [
        "1 items only in the baseline's results: 1",
        "1 items only in the candidate's results: 9",
        "1 items not answered by the baseline: 3",
    ]


def test_results_that_share_nothing_or_say_it_twice_are_refused() -> None:
    with pytest.raises(UsageError, match="none of 1 and 1 ids pair; first ids: '1' and '2'"):
        pair_results([result("1", 1)], [result("2", 1)])
    with pytest.raises(UsageError, match="in the candidate's results, '1' of 't' comes twice"):
        pair_results([result("1", 1)], [result("1", 1), result("1", 0)])


def test_a_loaded_model_weighs_and_writes_as_its_logits_say(tiny_path: Path) -> None:
    with swiftsure.load(str(tiny_path), mode="default", threads=1) as llm:
        scorer, tokenizer = ModelScorer(llm), llm.model.tokenizer
        places = (Place(before="the cat", choices=("sat", "ran"), right=0), Place(before=" sat on", choices=("the", "mat"), right=0))
        first, second = scorer.read(Passage(id="p", places=places))
        ids = [*tokenizer.prefix_ids, *tokenizer.encode("the cat", special=False)]
        row = llm.logits(ids)[-1]
        assert first.weights == tuple(float(row[tokenizer.encode(f" {word}", special=False)[0]]) for word in ("sat", "ran"))
        assert second.size > first.size == len(ids)
        [written] = scorer.complete([text("t", "the cat")])
        assert written.text == llm.generate("the cat", max_tokens=4).text


@pytest.mark.model
def test_the_pinned_model_is_right_often_and_not_always(smollm2_path: Path) -> None:
    from swiftsure.verify.tasks.catalogue import tasks_named

    with swiftsure.load(str(smollm2_path), mode="exact", threads=2) as llm:
        for found in run_suite(ModelScorer(llm), tasks_named(["words"]), limit=90).summaries():
            assert 0.6 < found.score < 0.95
