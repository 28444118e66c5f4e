"""Responses in pieces: where they end, what stamps they get, and what is refused."""

from __future__ import annotations

import pytest

from swiftsure.bench.client import http_response
from swiftsure.bench.client.http_response import ResponseError, ResponseReader

CHUNKED = (
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
    b"5\r\nhello\r\nA;name=value\r\n, chunked\r\r\n0\r\nTrailer: x\r\n\r\n"
)
SIZED = b"HTTP/1.1 429 Too Many\r\nContent-Length: 4\r\nRetry-After: 3\r\n\r\nwait"


def read(*pieces: bytes) -> ResponseReader:
    reader = ResponseReader()
    for moment, piece in enumerate(pieces):
        reader.feed(piece, float(moment))
    return reader


def test_a_response_is_the_same_wherever_it_is_cut() -> None:
    for whole, body in ((CHUNKED, b"hello, chunked\r"), (SIZED, b"wait")):
        for cut in range(1, len(whole)):
            before = read(whole[:cut])
            assert not before.done, cut
            before.feed(whole[cut:], 1.0)
            assert (bytes(before.body), before.done, before.keep_open) == (body, True, True), cut
        single = read(*(whole[i : i + 1] for i in range(len(whole))))
        assert (bytes(single.body), single.done) == (body, True)


def test_each_read_of_the_body_has_its_moment_and_reads_of_frames_alone_have_none() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    reader = read(head, b"3\r\nabc\r\n", b"2\r\n", b"de\r\n1\r\nf\r\n", b"0\r\n\r\n")
    assert (list(reader.ends), list(reader.moments)) == ([3, 6], [1.0, 3.0])
    assert reader.last_read == 4.0


def test_a_body_of_unknown_length_ends_with_the_connection() -> None:
    reader = read(b"HTTP/1.1 200 OK\r\n\r\nall", b" of it")
    assert not reader.done
    reader.end_of_input()
    assert (bytes(reader.body), reader.done, reader.keep_open) == (b"all of it", True, False)


@pytest.mark.parametrize("cut", [CHUNKED[:-3], SIZED[:-1], CHUNKED[:40]])
def test_a_response_whose_connection_ends_early_is_not_done(cut: bytes) -> None:
    reader = read(cut)
    reader.end_of_input()
    assert not reader.done


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 204 None\r\n\r\n", True),
        (SIZED + b"surplus", False),
        (CHUNKED + b"surplus", False),
    ],
)
def test_a_connection_is_kept_where_both_sides_know_where_the_answer_ended(head: bytes, kept: bool) -> None:
    reader = read(head)
    assert (reader.done, reader.keep_open) == (True, kept)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"SSH-2.0-x\r\n\r\n", "must begin with HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "a header must be as in 'name: value', got 'no colon'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "content-length must be a number, got '-5'"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", "must not be compressed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n", "must begin with its size, got b'-5'"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n", "must begin with its size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "longer than it says"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "at most 64 KiB"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 5000, "at most 4096 bytes"),
    ],
)
def test_what_is_no_response_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(ResponseError, match=why.replace(".", r"\.")):
        read(data)


def test_an_endless_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_response, "LARGEST_BODY", 1 << 20)
    with pytest.raises(ResponseError, match="at most 1 MiB"):
        read(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * (1 << 20), b"x")
