"""Tokens to text: whole characters, and stop strings wherever they fall."""

from __future__ import annotations

import pytest
from fakes import EOS, FakeTokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftsure.engine.text import TextAssembler

tokenizer = FakeTokenizer()


def assemble(ids, stop=()) -> tuple[list[str], TextAssembler]:
    """Pieces as a stream would see them: tokens after a stop are not pushed."""
    assembler = TextAssembler(tokenizer, tuple(stop))
    pieces = []
    for token in ids:
        pieces.append(assembler.push(token))
        if assembler.stopped:
            break
    pieces.append(assembler.finish())
    return pieces, assembler


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 318), max_size=40))
def test_pieces_join_to_the_text_that_decoding_at_once_gives(ids):
    pieces, assembler = assemble(ids)
    assert "".join(pieces) == assembler.text == tokenizer.decode(ids)


def test_character_split_over_tokens_comes_out_whole():
    first, second = 260, 261  # the two bytes of é
    assert assemble([first, second])[0] == ["", "é", ""]


def test_unfinished_character_becomes_a_replacement_at_the_end_only():
    assert assemble([97, 260])[0] == ["a", "", "\N{REPLACEMENT CHARACTER}"]
    assert assemble([260, 97])[0] == ["", "\N{REPLACEMENT CHARACTER}a", ""]


def test_special_tokens_are_no_text():
    assert assemble([97, EOS, 98])[1].text == "ab"


@pytest.mark.parametrize(
    ("ids", "stop", "text"),
    [
        ([258, 259, 97], ["STOP!"], ""),  # "STO" "P!"
        (list(b"abSTOP!cd"), ["STOP!"], "ab"),
        (list(b"abSTOPcd"), ["STOP!"], "abSTOPcd"),
        (list(b"aaab"), ["aab"], "a"),  # the first partial match fails, a later one holds
        (list(b"one two"), ["two", "ne"], "o"),
        ([256, 257, 97], ["e e"], "th"),  # across the edge of "the " and "end"
        ([260, 261, 97], ["é"], ""),
        (list(b"ends with ST"), ["STOP!"], "ends with ST"),
    ],
)
def test_stop_string_ends_the_text_and_is_left_out(ids, stop, text):
    pieces, assembler = assemble(ids, stop)
    assert assembler.text == "".join(pieces) == text
    assert assembler.stopped == (text != bytes(b"".join(tokenizer.pieces[i] for i in ids)).decode())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from([97, 98, 99, 256, 257]), max_size=30),
    st.lists(st.text("abce ", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_no_stop_string_survives_and_nothing_else_is_lost(ids, stop):
    pieces, assembler = assemble(ids, stop)
    whole = tokenizer.decode(ids)
    assert whole.startswith(assembler.text)
    if assembler.stopped:
        assert any(whole[len(assembler.text) :].startswith(s) for s in stop)
    else:
        assert assembler.text == whole
    assert not any(s in assembler.text for s in stop)
    assert "".join(pieces) == assembler.text


def test_text_is_released_as_soon_as_no_stop_string_can_begin_in_it():
    assembler = TextAssembler(tokenizer, ("STOP!",))
    assert [assembler.push(t) for t in b"xSTx"] == ["x", "", "", "STx"]
