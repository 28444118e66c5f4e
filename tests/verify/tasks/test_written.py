"""Tasks of texts: the right answer scores, its neighbours do not, and every item says what it expects."""

from __future__ import annotations

import json

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.tasks.catalogue import TASKS, tasks_named
from swiftsure.verify.tasks.items import Completion
from swiftsure.verify.tasks.programs import programs
from swiftsure.verify.tasks.run import work_of
from swiftsure.verify.tasks.written import copies, needles, records, sums

BODIES = {
    "add": "    return a + b", "square": "    return x * x", "is_even": "    return n % 2 == 0", "largest": "    return max(numbers)",
    "reverse": "    return text[::-1]", "factorial": "    return 1 if n < 2 else n * factorial(n - 1)",
    "gcd": "    import math\n    return math.gcd(a, b)",
}  # fmt: skip


def test_the_suite_has_more_than_five_hundred_items_with_names_of_their_own() -> None:
    works = {task.name: work_of(task, None) for task in TASKS}
    assert sum(work.items for some in works.values() for work in some) > 1000
    for some in works.values():
        assert len({work.id for work in some}) == len(some)
        assert sum(work.items for work in some) >= 30


@pytest.mark.parametrize("build", [sums, copies, records, needles, programs])
def test_generators_make_the_same_items_every_time(build: object) -> None:
    first, second = (build() for _ in range(2))  # type: ignore[operator]
    assert [(item.id, item.prompt) for item in first] == [(item.id, item.prompt) for item in second]


def last_line(item: Completion) -> str:
    return item.prompt.splitlines()[-1]


def test_a_sum_is_right_when_it_equals_what_was_asked() -> None:
    for item in sums():
        expected = eval(last_line(item).removesuffix("="))  # our own two numbers and a sign
        assert item.check(f" {expected}") == 1.0
        assert item.check(f" {expected}1") == item.check("") == item.check(f" {expected} apples") == 0.0


def test_a_copy_is_right_when_nothing_was_changed() -> None:
    for item in copies():
        words = item.prompt.splitlines()[-2].removeprefix("Text: ")
        assert item.check(f" {words}") == 1.0
        assert item.check(f" {words} stone") == item.check(words[:-1]) == 0.0


def test_a_number_is_found_or_not() -> None:
    for item in needles():
        name = last_line_but_one(item).removeprefix("Question: Which number did ").removesuffix(" write down?")
        number = item.prompt.split(f"{name} wrote down the number ")[1].split(".")[0]
        assert item.check(f" {number}.") == item.check(f" {number}") == 1.0
        assert item.check(f" {number}0") == item.check(" unknown") == 0.0


def test_json_needs_all_fields_with_the_right_types_and_values() -> None:
    item = records()[0]
    name, _, count, goods, *_, price, _ = last_record(item).replace(".", "").split()
    right = {"name": name, "item": goods, "count": int(count), "price": int(price)}
    assert item.check(" " + json.dumps(right)) == 1.0
    assert item.check(json.dumps(right) + " and so on") == 1.0
    for wrong in (right | {"count": count}, right | {"price": 0}, right | {"more": 1}, {"name": name}, [right]):
        assert item.check(json.dumps(wrong)) == 0.0
    assert item.check("{") == 0.0


def last_line_but_one(item: Completion) -> str:
    return item.prompt.splitlines()[-2]


def last_record(item: Completion) -> str:
    return item.prompt.splitlines()[-2].removeprefix("Order: ")


def test_code_passes_its_checks_or_does_not() -> None:
    found = {item.id.removeprefix("code-"): item for item in programs()}
    for name, body in BODIES.items():
        assert found[name].check("\n" + body) == 1.0, name
    assert found["add"].check("\n    return a - b") == 0.0
    assert found["add"].check("\n    while True: return") == 0.0
    assert found["add"].check("\n    return a +") == 0.0


def test_an_unknown_task_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="a task is one of words, sentences, arithmetic, copying, json, needle, code, got 'poetry'"):
        tasks_named(["poetry"])
