"""Which control tokens of a rendered conversation a user wrote, whatever the template did with the texts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftsure.models.control_marks import ControlTokens, Marks, marked, spells_control_token
from swiftsure.models.conversation import conversation

TOKENS = ControlTokens(("<s>", "<|a|>", "<|ab|>", "<|ab|>>", ""))


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in TOKENS.find(text)]


def pieces(text: str) -> list[str]:
    return [text[start:end] for start, end in TOKENS.pieces(text)]


def test_longest_token_that_starts_first_is_found() -> None:
    assert found("x<|ab|>>y<|a|><s><|ac|><|ab|>") == ["<|ab|>>", "<|a|>", "<s>", "<|ab|>"]
    assert found("plain") == []
    assert list(ControlTokens(()).find("<s>")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <|", ["<|"]),
        ("a <|a \n", ["<|a"]),
        ("  |>b", ["|>"]),
        ("b|> c <", ["b|>", "<"]),
        ("s>", ["s>"]),
        ("<|a|>", ["<|a|>"]),
        ("x > y < z", []),
        ("", []),
    ],
)
def test_pieces_of_tokens_count_at_the_edges_of_a_text(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@given(st.text(alphabet="<|>abs \n", max_size=40))
def test_pieces_are_ascending_and_hold_every_token(text: str) -> None:
    spans = TOKENS.pieces(text)
    assert all(start < end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(any(a <= start and end <= b for a, b in spans) for start, end in TOKENS.find(text))


@given(st.text(alphabet="<|>abs \n", max_size=40), st.booleans())
def test_what_is_marked_is_read_again(text: str, edges: bool) -> None:
    chat = conversation([{"role": "user", "content": text}])
    marks = Marks.absent_from(text)
    written = marked(chat, TOKENS, marks, edges=edges).messages[0]["content"]
    assert marks.read(written) == (text, TOKENS.pieces(text) if edges else list(TOKENS.find(text)))


def test_marks_are_characters_that_occur_nowhere() -> None:
    taken = "".join(map(chr, range(0xF0000, 0xF0010)))
    marks = Marks.absent_from("abc", taken)
    assert marks.opening not in taken
    assert marks.closing not in taken
    assert marks.opening != marks.closing


def test_mark_without_its_other_half_stands_for_nothing() -> None:
    marks = Marks("(", ")")
    assert marks.read("a)b(c(d)e(f") == ("abcdef", [(3, 4)])
    assert marks.read("()") == ("", [])


def test_place_of_a_spelled_token_is_named() -> None:
    user = {"role": "user", "content": "hi"}
    tool = {"name": "f", "description": "ends with <s>"}
    assert spells_control_token(conversation([user]), TOKENS) is None
    assert spells_control_token(conversation([user, {"role": "user", "content": "<s>"}]), TOKENS) == "message 1"
    assert spells_control_token(conversation([user], tools=[tool]), TOKENS) == "tool 0"
    assert spells_control_token(conversation([user], documents=[{"<s>": 1}]), TOKENS) == "document 0"
    assert spells_control_token(conversation([user], template_variables={"x": ["<s>"]}), TOKENS) == "template variable x"
