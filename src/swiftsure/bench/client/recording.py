"""What a load process hands to its parent of one request: bytes with the moments of their reads, nothing read into them yet."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from swiftsure.bench.exchange import ErrorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """``index``: of the request. The clock of the load counts ``scheduled_s`` and ``sent_s``; all other moments are since ``sent_s``.

    ``ends`` and ``moments`` as in :class:`~swiftsure.bench.client.http_response.ResponseReader`. ``error``: what the connection says;
    what the answer says is found by reading it.
    """

    index: int
    process: int
    started: str
    scheduled_s: float
    sent_s: float
    connected_s: float | None
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ends: array[int] = field(default_factory=lambda: array("q"))
    moments: array[float] = field(default_factory=lambda: array("d"))
    ended_s: float | None = None
    error: ErrorKind | None = None
    error_words: str | None = None
    dropped: tuple[str, ...] = ()
    client_lag_s: float = 0.0
