"""``python scheduled_endpoint.py``: an endpoint that writes by a schedule, in a process of its own, and notes when it really wrote what.

It prints its port and serves until its input ends; then it prints one JSON line: of every request, when it was read whole and when each
piece of the answer was handed to the socket (``time.perf_counter``, which all processes of a machine share), with the tokens in it. The
path of a request names the quirks of its answer (``/bundled/v1/chat/completions``), its last message holds its number, which the schedule
follows, so that no two answers are alike.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PROMPT_TOKENS, CACHED_TOKENS = 50, 20
WORD = "wör "  # four characters a token, which an estimate takes for one; one of them has two bytes


@dataclass(frozen=True, kw_only=True)
class Quirks:
    """``bundle``: tokens a chunk, of which the first has ``first``. ``usage``: where the count of tokens stands. ``thinking``: so many
    tokens are thought first. ``cut``: each chunk is written in two parts, in the middle of a character."""

    first: int = 1
    bundle: int = 1
    usage: str = "last"  # last | absent | zero | each: in every chunk, so far | late: 150 ms after the last token
    thinking: int = 0
    role_first: bool = True
    empty_deltas: bool = False
    comments: bool = False
    line_end: str = "\n"
    cut: bool = False
    together: bool = False  # two events in one write
    anthropic: bool = False
    fails: bool = False  # every sixth answer breaks off


QUIRKS = {
    "plain": Quirks(),
    "bundled": Quirks(first=4, bundle=3, usage="late"),
    "uncounted": Quirks(usage="absent", comments=True),
    "miscounted": Quirks(usage="zero", role_first=False),
    "counting": Quirks(bundle=2, first=2, usage="each", empty_deltas=True),
    "thinking": Quirks(thinking=6, empty_deltas=True),
    "crlf": Quirks(line_end="\r\n", comments=True, fails=True),
    "cut": Quirks(cut=True),
    "together": Quirks(together=True, usage="late"),
    "anthropic": Quirks(anthropic=True, bundle=2),
}


@dataclass
class Piece:
    """``at``: when the bytes that complete it were handed to the socket. ``kind``: role, thinking, answer or other."""

    kind: str
    tokens: int = 0
    at: float = 0.0


@dataclass
class Answer:
    number: int
    path: str
    read_at: float
    tokens: int
    whole: bool = True
    ended_at: float = 0.0
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class Step:
    """At ``at_s`` after the request was read, ``data`` is written, which completes ``pieces``."""

    at_s: float
    data: bytes
    pieces: list[Piece]


def schedule(number: int) -> tuple[float, float, int]:
    """(seconds to the first token, seconds a token, tokens) of an answer."""
    return 0.16 + 0.02 * (number % 6), 0.024 + 0.004 * (number % 4), 18 + number % 5


def steps(quirks: Quirks, number: int) -> Iterator[Step]:
    """The whole answer. The role comes at once, content by the schedule, a chunk when its last token is made."""
    first_s, token_s, tokens = schedule(number)
    if quirks.role_first:
        yield Step(0.02, _event(quirks, _head(quirks)), [Piece("role")])
    made, index = 0, 0
    held: list[Step] = []
    while made < tokens:
        size = min(quirks.bundle if made else quirks.first, tokens - made)
        at_s = first_s + made * token_s
        thinks = made < quirks.thinking
        made += size
        piece = Piece("thinking" if thinks else "answer", size)
        if quirks.empty_deltas and index % 3 == 1:
            yield Step(at_s - 0.01, _event(quirks, _delta({"content": ""})), [Piece("other")])
        if quirks.comments and index % 3 == 1:
            yield Step(at_s - 0.01, b": keep-alive\n\ndata: : keepalive\n\n", [])
        step = Step(at_s, _event(quirks, _content(quirks, WORD * size, thinks, made)), [piece])
        index += 1
        if quirks.cut:
            middle = step.data.index("ö".encode()) + 1
            yield Step(at_s - 0.008, step.data[:middle], [])
            yield Step(at_s, step.data[middle:], [piece])
        elif quirks.together and index > 1 and made < tokens and not held:
            held = [step]
        elif held:
            yield Step(at_s, held[0].data + step.data, [*held[0].pieces, piece])
            held = []
        else:
            yield step
    last_s = first_s + (tokens - 1) * token_s + 0.001
    if quirks.fails and number % 6 == 5:
        yield Step(last_s, b"", [])
        return
    late_s = last_s + (0.15 if quirks.usage == "late" else 0.0)
    yield Step(late_s, b"".join(_event(quirks, value) for value in _closing(quirks, tokens)), [Piece("other")])


def _head(quirks: Quirks) -> dict[str, Any]:
    if quirks.anthropic:
        usage = {"input_tokens": PROMPT_TOKENS - CACHED_TOKENS, "cache_read_input_tokens": CACHED_TOKENS, "output_tokens": 1}
        return {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": usage}}
    return _delta({"role": "assistant", "content": ""})


def _content(quirks: Quirks, text: str, thinks: bool, made: int) -> dict[str, Any]:
    if quirks.anthropic:
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    event = _delta({"reasoning_content" if thinks else "content": text})
    return event | ({"usage": _usage(made)} if quirks.usage == "each" else {})


def _closing(quirks: Quirks, tokens: int) -> list[Any]:
    if quirks.anthropic:
        delta = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}}
        return [delta, {"type": "message_stop"}]
    ending: list[Any] = [_delta({}, "stop")]
    if quirks.usage != "absent":
        ending.append({"object": "chat.completion.chunk", "choices": [], "usage": _usage(0 if quirks.usage == "zero" else tokens)})
    return [*ending, "[DONE]"]


def _usage(tokens: int) -> dict[str, Any]:
    count = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}
    return {**count, "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS}}


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _event(quirks: Quirks, value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    name = [f"event: {value['type']}"] if quirks.anthropic else []
    return "".join(f"{line}{quirks.line_end}" for line in (*name, f"data: {text}", "")).encode()


async def serve() -> list[Answer]:
    written: list[Answer] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _exchange(reader, writer, written):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    return written


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, written: list[Answer]) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
    body = json.loads(await reader.readexactly(length))
    path = head.split("/")[1]
    number = int(body["messages"][-1]["content"])
    answer = Answer(number, path, perf_counter(), schedule(number)[2])
    written.append(answer)
    writer.write(HEAD)
    data = b""
    for step in steps(QUIRKS[path], number):
        await asyncio.sleep(max(0.0, answer.read_at + step.at_s - perf_counter()))
        data = step.data
        if not data:
            answer.whole = False
            answer.ended_at = perf_counter()
            return False
        for piece in step.pieces:
            piece.at = perf_counter()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        answer.pieces += step.pieces
    answer.ended_at = perf_counter()
    writer.write(b"0\r\n\r\n")
    return True


if __name__ == "__main__":
    print(json.dumps([asdict(answer) for answer in asyncio.run(serve())]), flush=True)
