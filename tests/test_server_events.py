"""The event parser against the standard's rules, however the bytes are cut."""

from __future__ import annotations

import pytest

from swiftsure.server_events import EventParser


def parsed(pieces: list[bytes]) -> list[str]:
    parser = EventParser()
    return [data for piece in pieces for data in parser.feed(piece)]


STREAM = (
    "\ufeff: hello\nevent: x\ndata: one\n\ndata:two\r\ndata: more\r\n\r\n:\rid: 7\rdata: ☃\r\rdata\n\nretry: 5\n\ndata: unfinished".encode()
)


def test_an_event_is_the_same_wherever_the_bytes_are_cut() -> None:
    whole = ["one", "two\nmore", "☃"]
    assert parsed([STREAM]) == whole
    assert parsed([STREAM[i : i + 1] for i in range(len(STREAM))]) == whole
    for cut in range(len(STREAM)):
        assert parsed([STREAM[:cut], STREAM[cut:]]) == whole, cut


@pytest.mark.parametrize("end", [b"\n\n", b"\r\r", b"\r\n\r"])
def test_an_event_is_there_with_the_byte_that_completes_it(end: bytes) -> None:
    parser = EventParser()
    assert list(parser.feed(b"data: x" + end[:-1])) == []
    assert list(parser.feed(end[-1:])) == ["x"]


def test_comments_and_other_fields_are_no_events() -> None:
    assert parsed([b": keep-alive\n\nevent: ping\n\nid: 1\nretry: 3\n\ndata:\n\n"]) == []


def test_a_comment_that_is_sent_as_data_is_its_text() -> None:
    assert parsed([b"data: : keepalive\n\n"]) == [": keepalive"]


def test_an_endless_line_takes_no_longer_than_its_bytes() -> None:
    """100 MB in 20,000 reads, which joined anew at each of them would be a terabyte."""
    parser = EventParser()
    assert not list(parser.feed(b"data: "))
    for _ in range(20_000):
        assert not list(parser.feed(b"x" * 5000))
    (data,) = parser.feed(b"\n\n")
    assert len(data) == 100_000_000
