"""One request and what came back of it: the record that the client writes and every figure is computed from.

All moments are seconds on one clock, ``time.perf_counter`` of the process that sent the request, counted from ``Exchange.sent_s``
(the first byte was handed to the socket) where a field does not say otherwise. A moment that was not reached is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA = "swiftsure.exchange/1"
LONGEST_STOP_S = 1.0
"""A client that stood still for longer has measured its own machine."""

Share = Literal["role", "reasoning", "answer", "tool_call", "other"]
"""What a piece carries: only the role or nothing; thinking; the answer's text; a tool call; anything else that is content."""

ErrorKind = Literal[
    "connect",  # no connection
    "tls",
    "timeout",  # no whole answer within the limit
    "http_4xx",
    "http_429",
    "http_5xx",
    "in_band",  # an error event in a stream that began with 200
    "truncated",  # the stream ended without a finish reason or its closing event
    "broken",  # the connection broke off, or what came is not what the protocol says
]
"""Why an exchange counts as failed."""

TokenSource = Literal["usage", "tokenizer", "estimated"]
"""Who counted the tokens: the endpoint's last ``usage``, a tokenizer over the whole text, or neither (an estimate from characters)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is asked. ``messages`` as in chat completions; exactly one of ``messages`` and ``text`` is given.

    ``kind`` groups prompts in the figures (``writing``, ``code``, ``rate_limiter``, ``own``, ...). ``sampling`` holds further fields of the
    request, sent as they are.
    """

    name: str
    kind: str
    messages: Sequence[Mapping[str, Any]] | None = None
    text: str | None = None
    max_tokens: int
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The place of an exchange in the protocol; two runs with equal trials measured the same thing, and a resumed run skips those it has.

    ``row``: ``cold`` (a nonce stands at the very start of the prompt, so that no prefix cache can know it), ``warm`` (the same prompt
    again), ``context`` (cold, with the long context pasted above), a scenario's name, or ``sweep``. ``users``: closed-loop users at that
    time; of an open loop the rate stands in ``rate_per_s``. ``warm_up``: belongs to the opening wave and is in no figure.
    """

    round: int
    row: str
    users: int
    prompt: str
    repeat: int
    rate_per_s: float | None = None
    warm_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One event with content. ``at_s``: when the bytes that completed it were read from the socket, since ``sent_s``."""

    at_s: float
    share: Share
    characters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The endpoint's own count: the last ``usage`` that came, never a sum. None: the endpoint does not say."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None  # thinking included
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request, whole. ``scheduled_s`` and ``sent_s`` are on the clock of the load (its start is 0): the first is when the request
    should have left, so that an endpoint (or client) that holds later requests up cannot hide it (coordinated omission).

    ``last_token_s`` is the arrival of the last content; ``ended_s`` the end of the stream after trailing usage and ``[DONE]``.
    ``output_tokens`` is by ``tokens_by``. ``settings_dropped``: fields that the endpoint refused and the request was repeated without
    (``stream_options``), by name. ``censored``: the length limit cut the answer before any of it came, all tokens were thinking.
    """

    trial: Trial
    started: str  # time of day, ISO 8601 in UTC, for rounds over the day
    scheduled_s: float
    sent_s: float
    connected_s: float | None = None  # how long the connection took before sent_s; None on a connection kept open
    first_byte_s: float | None = None  # first byte of the body
    first_event_s: float | None = None  # first event of any kind, the role included: the first streamed chunk
    arrivals: Sequence[Arrival] = ()
    last_token_s: float | None = None
    ended_s: float | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    output_tokens: int | None = None
    tokens_by: TokenSource | None = None
    first_arrival_tokens: int | None = None  # tokens of the first content arrival, where a tokenizer is known
    characters: int = 0
    text_sha256: str | None = None
    text: str | None = None  # kept only when asked for
    status: int | None = None
    error: ErrorKind | None = None
    error_words: str | None = None
    settings_dropped: Sequence[str] = ()
    censored: bool = False
    tier: str | None = None  # the tier the endpoint says it used
    tokenizer_tokens: int | None = None  # the tokenizer's count over the whole text, beside the endpoint's, where a tokenizer is known
    burst: bool = False  # nearly all content came at once at the end (held back, or not streamed at all): only end to end is measurable
    hidden_reasoning: bool = False  # the endpoint counted thinking tokens and showed none: its decode rate is not measurable
    retry_after_s: float | None = None  # what a refusal (429, 503) asked to wait
    client_lag_s: float | None = None  # the longest that this client's event loop stood still while the exchange ran
    process: int = 0  # which of the client's processes sent it


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One thing to send: what, and under which name. ``at_s``: when it leaves, of an open loop; None: as soon as its user is free."""

    prompt: Prompt
    trial: Trial
    at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """How the client itself fared while a load ran: what decides whether the load's figures may be believed.

    ``saturated`` is None, or says why the client (not the endpoint) limited the run: such a run is refused, not reported. ``lag_*``: by
    how much a timer of the event loop came late. ``cpu_share``: processor seconds of the busiest client process per second of wall time.
    """

    wall_s: float
    processes: int
    wanted_users: int | None
    mean_in_flight: float
    lag_p50_s: float
    lag_p99_s: float
    lag_max_s: float
    cpu_share: float
    saturated: str | None = None
