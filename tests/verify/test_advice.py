"""Advice by what must be preserved and what limits the run."""

from __future__ import annotations

import pytest

from swiftsure.errors import UsageError
from swiftsure.verify.advice import advise


@pytest.mark.parametrize(
    ("preserve", "limit", "mode", "words"),
    [
        ("bits", None, "exact", "the bits of default, sooner"),
        ("bits", "memory", "exact", "only big is made for that"),
        ("task", "forward", "fast", "your task measured on the same items"),
        ("task", "memory", "fast", "may use more memory"),
        ("size", "memory", "big", "whether they are accurate is measured separately"),
        ("bits", "other", None, "hold off"),
        ("task", "other", None, "hold off"),
    ],
)
def test_each_promise_has_its_mode_and_none_helps_outside_the_forward_pass(
    preserve: str, limit: str | None, mode: str | None, words: str
) -> None:
    found = advise(preserve, limit)
    assert found.mode == mode
    assert words in " ".join(found.reasons)


def test_measured_phases_outweigh_what_is_believed_to_limit_the_run() -> None:
    mostly_reading = {"read": 90.0, "decode": 10.0}
    assert advise("task", "forward", mostly_reading).mode is None
    found = advise("task", None, {"load": 59.0, "decode": 41.0})
    assert found.mode == "fast"
    assert found.reasons[0] == "decode is 41% of 100 s: made 4.1x faster, the whole becomes 1.45x faster"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("speed",), "--preserve must be one of bits, task, size, got 'speed'"),
        (("bits", "gpu"), "--limit must be one of forward, other, memory, got 'gpu'"),
        (("bits", None, {"load": 1.0}), "no phase 'decode'; it has load"),
        (("bits", None, {"decode": 0.0}), "take no time at all"),
    ],
)
def test_words_that_are_not_known_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        advise(*arguments)  # type: ignore[arg-type]
