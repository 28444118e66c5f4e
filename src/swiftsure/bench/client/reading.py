"""From a recording to an exchange: events, their shares and moments, the tokens, and what went wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from swiftsure.bench.client.interfaces import Wire
from swiftsure.bench.client.recording import Recording
from swiftsure.bench.client.transcript import Transcript, mark_inline_thinking, words_of
from swiftsure.bench.exchange import Arrival, ErrorKind, Exchange, Request, TokenSource
from swiftsure.errors import quotable
from swiftsure.server_events import EventParser

CountTokens = Callable[[str], int]

CHARACTERS_A_TOKEN = 4  # of an estimate: English text in today's vocabularies; other languages and code have fewer
_BURST_SHARE = 0.9  # of the characters, in one read or at a rate that no endpoint decodes at
_BURST_CHARACTERS = 64
_BURST_CHARACTERS_PER_S = 200_000
_FAILED = ("abort", "error")  # reasons to finish by which servers say that they gave up


def read_exchange(
    recording: Recording, request: Request, wire: Wire, *, count_tokens: CountTokens | None = None, keep_text: bool = False
) -> Exchange:
    """``count_tokens``: tokens of a whole text, special tokens read as text."""
    transcript, fault = Transcript(), None
    if recording.status is not None and recording.status < 300:
        fault = _read_body(recording, wire, transcript)
        mark_inline_thinking(transcript)
    error, words = _what_failed(recording, transcript, fault)
    return exchange_of(recording, request, transcript, error=error, words=words, count_tokens=count_tokens, keep_text=keep_text)


def exchange_of(
    recording: Recording,
    request: Request,
    transcript: Transcript,
    *,
    error: ErrorKind | None,
    words: str | None,
    count_tokens: CountTokens | None,
    keep_text: bool,
) -> Exchange:
    """Puts together what the connection and the answer said."""
    text = transcript.text()
    told = transcript.usage
    by_tokenizer = _count_whole(transcript, count_tokens)
    output_tokens, tokens_by = _output_tokens(transcript, text, by_tokenizer)
    arrivals = transcript.arrivals
    return Exchange(
        trial=request.trial,
        started=recording.started,
        scheduled_s=recording.scheduled_s,
        sent_s=recording.sent_s,
        connected_s=recording.connected_s,
        first_byte_s=recording.moments[0] if recording.moments else None,
        first_event_s=transcript.first_event_s,
        arrivals=tuple(arrivals),
        last_token_s=arrivals[-1].at_s if arrivals else None,
        ended_s=recording.ended_s,
        finish_reason=transcript.finish_reason,
        usage=told,
        output_tokens=output_tokens,
        tokens_by=tokens_by,
        first_arrival_tokens=_first_tokens(transcript, count_tokens),
        characters=len(text),
        text_sha256=hashlib.sha256(text.encode(errors="replace")).hexdigest() if text else None,
        text=text if keep_text else None,
        status=recording.status,
        error=error,
        error_words=None if words is None else quotable(words),
        settings_dropped=recording.dropped,
        censored=_is_censored(transcript),
        tier=transcript.tier,
        process=recording.process,
        tokenizer_tokens=by_tokenizer,
        burst=_is_burst(arrivals),
        hidden_reasoning=bool(told is not None and told.reasoning_tokens and not transcript.has("reasoning")),
        retry_after_s=retry_after(recording.headers),
        client_lag_s=recording.client_lag_s,
    )


def _read_body(recording: Recording, wire: Wire, transcript: Transcript) -> str | None:
    """Fills the transcript; says what in the body is no answer."""
    if "json" in recording.headers.get("content-type", ""):
        answer = _as_object(recording.body)
        if answer is None:
            return "the answer is no JSON object"
        at_s = recording.moments[-1]
        transcript.first_event_s = at_s
        wire.read_whole(answer, at_s, transcript)
        return None
    kind = recording.headers.get("content-type", "")
    if kind.startswith("text/html"):
        return f"the answer is a page ({kind[:60]}) and no stream: {' '.join(recording.body[:200].decode(errors='replace').split())}"
    for data, at_s in events_of(recording):
        if data == "[DONE]":
            transcript.closed = True
            continue
        if data.startswith(":"):  # a keep-alive comment that was sent as data
            continue
        event = _as_object(data)
        if event is None:
            return f"an event's data is no JSON object: {data[:80]!r}"
        if transcript.first_event_s is None:
            transcript.first_event_s = at_s
        wire.read_event(event, at_s, transcript)
    return None


def events_of(recording: Recording) -> Iterator[tuple[str, float]]:
    """The data of each event with the moment of the read that completed it."""
    parser, start = EventParser(), 0
    for end, moment in zip(recording.ends, recording.moments, strict=True):
        for data in parser.feed(recording.body[start:end]):
            yield data, moment
        start = end


def _as_object(data: str | bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _what_failed(recording: Recording, transcript: Transcript, fault: str | None) -> tuple[ErrorKind | None, str | None]:
    status = recording.status
    if status is not None and 300 <= status < 400:
        return "broken", f"status {status}: this client follows no redirect, to {recording.headers.get('location', 'nowhere')[:200]}"
    if status is not None and status >= 400:
        kind: ErrorKind = "http_429" if status == 429 else "http_5xx" if status >= 500 else "http_4xx"
        return kind, f"status {status}: {_words_of_body(recording.body)}"
    if transcript.error_words is not None:
        return "in_band", transcript.error_words
    if transcript.finish_reason in _FAILED:
        return "in_band", f"the endpoint gave up: finish_reason {transcript.finish_reason}"
    if fault is not None:
        return "broken", fault
    complete = transcript.finish_reason is not None or transcript.closed
    if recording.error is not None:
        return (None, None) if complete and recording.error in ("broken", "timeout") else (recording.error, recording.error_words)
    return (None, None) if complete else ("truncated", "the stream ended without a finish reason or its closing event")


def _words_of_body(body: bytes) -> str:
    answer = _as_object(body)
    return words_of(answer) if answer is not None else " ".join(body[:500].decode(errors="replace").split())


def _count_whole(transcript: Transcript, count_tokens: CountTokens | None) -> int | None:
    """Thinking and the answer are texts of their own; neither is counted piece by piece."""
    if count_tokens is None:
        return None
    texts = (transcript.text("reasoning"), transcript.text("answer"), transcript.text("tool_call", "other"))
    return sum(count_tokens(text) for text in texts if text)


def _output_tokens(transcript: Transcript, text: str, by_tokenizer: int | None) -> tuple[int | None, TokenSource | None]:
    """The endpoint's word goes first, except that text of 0 tokens is no count."""
    told = transcript.usage.output_tokens if transcript.usage is not None else None
    if told is not None and (told or not text):
        return told, "usage"
    if not text:
        return None, None
    if by_tokenizer is not None:
        return by_tokenizer, "tokenizer"
    return -(-len(text) // CHARACTERS_A_TOKEN), "estimated"


def _first_tokens(transcript: Transcript, count_tokens: CountTokens | None) -> int | None:
    if not transcript.texts or transcript.first_tokens is not None:
        return transcript.first_tokens
    return count_tokens(transcript.texts[0]) if count_tokens is not None else None


def _is_censored(transcript: Transcript) -> bool:
    told = transcript.usage.output_tokens if transcript.usage is not None else None
    return transcript.finish_reason == "length" and not transcript.has("answer", "tool_call", "other") and bool(transcript.arrivals or told)


def _is_burst(arrivals: list[Arrival]) -> bool:
    """Nearly all content in one read, or so fast behind each other that it was held back: when it was decoded cannot be seen."""
    total = sum(arrival.characters for arrival in arrivals)
    if total < _BURST_CHARACTERS:
        return False
    needed, got = _BURST_SHARE * total, 0
    first = len(arrivals)
    while got < needed:
        first -= 1
        got += arrivals[first].characters
    return got >= _BURST_CHARACTERS_PER_S * (arrivals[-1].at_s - arrivals[first].at_s)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header; a date there is not understood, and is not guessed."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
