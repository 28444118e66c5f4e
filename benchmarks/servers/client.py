"""A closed loop of users against ``/v1/completions``: each sends its next prompt when the answer before has ended.

Own and small, over plain sockets: on two processors a client's time is the servers' time. Tokens are counted by the server's last ``usage``
and checked against the length that was asked for; times are stamped when the bytes are read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import Any

from swiftsure.bench.percentiles import percentile
from swiftsure.records.statistics import median


class AnswerError(Exception):
    """An answer that cannot be counted: an error, a stream that broke off, another number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One answer. gaps_s: between the arrivals of text; a server that sends several tokens at a time has fewer of them."""

    began_s: float
    ended_s: float
    ttft_s: float
    tokens: int
    gaps_s: tuple[float, ...]
    text: str


async def ask(port: int, body: dict[str, Any], *, answer_s: float = 300.0) -> Timed:
    """Sends one streamed completion and reads it to its end. Raises AnswerError."""
    async with asyncio.timeout(answer_s):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            payload = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
            head = (
                f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(payload)}\r\n"
            )
            began = perf_counter()
            writer.write(head.encode() + b"connection: close\r\n\r\n" + payload)
            await writer.drain()
            return await _read(reader, began, body["max_tokens"])
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader, began: float, wanted: int) -> Timed:
    status = (await reader.readline()).split(b" ", 2)
    if len(status) < 2 or status[1] != b"200":
        raise AnswerError(f"answered {b' '.join(status)!r}: {(await reader.read(2000))!r}")
    arrivals: list[float] = []
    texts: list[str] = []
    tokens: int | None = None
    while line := await reader.readline():
        if not line.startswith(b"data:"):  # headers, lengths of chunks, empty lines
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            break
        event = json.loads(data)
        if "error" in event:
            raise AnswerError(f"the stream holds an error: {event['error']}")
        if text := "".join(choice.get("text") or "" for choice in event.get("choices", ())):
            arrivals.append(perf_counter())
            texts.append(text)
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
    if tokens != wanted:
        raise AnswerError(f"{wanted} tokens were asked for, the server counts {tokens}")
    if not arrivals:
        raise AnswerError("no text came")
    gaps = tuple(later - earlier for earlier, later in pairwise(arrivals))
    return Timed(began_s=began, ended_s=arrivals[-1], ttft_s=arrivals[0] - began, tokens=tokens, gaps_s=gaps, text="".join(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What so many users saw. tokens_per_s: of all together, from the first request to the last token."""

    users: int
    requests: int
    tokens_per_s: float
    per_user: float
    ttft_p50_s: float
    ttft_p99_s: float
    itl_p50_s: float
    itl_p99_s: float
    end_to_end_p50_s: float


async def closed_loop(port: int, bodies: Sequence[Sequence[dict[str, Any]]]) -> list[Timed]:
    """``bodies``: of each user, in order. Raises what the first answer that fails raises."""

    async def user(own: Sequence[dict[str, Any]]) -> list[Timed]:
        return [await ask(port, body) for body in own]

    async with asyncio.TaskGroup() as group:
        users = [group.create_task(user(own)) for own in bodies]
    return [answer for task in users for answer in task.result()]


def level(users: int, answers: Sequence[Timed]) -> Level:
    wall = max(answer.ended_s for answer in answers) - min(answer.began_s for answer in answers)
    gaps = [gap for answer in answers for gap in answer.gaps_s] or [0.0]
    ttft = [answer.ttft_s for answer in answers]
    whole = [answer.ended_s - answer.began_s for answer in answers]
    return Level(
        users=users,
        requests=len(answers),
        tokens_per_s=sum(answer.tokens for answer in answers) / wall,
        per_user=median(answer.tokens / took for answer, took in zip(answers, whole, strict=True)),
        ttft_p50_s=median(ttft),
        ttft_p99_s=percentile(ttft, 99),
        itl_p50_s=median(gaps),
        itl_p99_s=percentile(gaps, 99),
        end_to_end_p50_s=median(whole),
    )
