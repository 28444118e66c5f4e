"""An endpoint with a schedule: the role at once, a first chunk of several tokens, even chunks, usage late. It notes when it wrote what."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Self

ROLE_S, FIRST_S, CHUNK_S, USAGE_S = 0.02, 0.2, 0.04, 0.1
FIRST_TOKENS, CHUNK_TOKENS = 4, 2
WORD = " the"  # one token of the vocabularies used here
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(slots=True)
class Written:
    """One answer: moments since its request was read whole, in seconds, and the tokens of each chunk."""

    tokens: list[int] = field(default_factory=list)
    moments_s: list[float] = field(default_factory=list)
    role_s: float = 0.0


class Endpoint:
    """Serves ``/v1/models`` and ``/v1/chat/completions`` on a thread of its own; ``url`` while it is open as a context."""

    def __init__(self) -> None:
        self.written: list[Written] = []
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result()
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line.split(":")[1]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                if head.startswith("POST") and "/chat/completions" in head.split("\r\n")[0]:
                    await self._answer(writer, body)
                else:
                    await self._plain(writer, {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "x", "created": 0}]})
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _plain(self, writer: asyncio.StreamWriter, value: Any) -> None:
        content = json.dumps(value).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(content), content))
        await writer.drain()

    async def _answer(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        start, wanted = perf_counter(), int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        count = {"prompt_tokens": 8, "completion_tokens": wanted, "total_tokens": wanted + 8}
        written = Written()
        if not body.get("stream"):
            message = {"role": "assistant", "content": WORD * wanted}
            choice = {"index": 0, "message": message, "finish_reason": "length"}
            await self._plain(writer, {"id": "a", "object": "chat.completion", "model": "m", "choices": [choice], "usage": count})
            return

        async def event(at_s: float, value: Any) -> float:
            await asyncio.sleep(max(0.0, start + at_s - perf_counter()))
            data = b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
            return perf_counter() - start

        writer.write(_HEAD % b"text/event-stream")
        written.role_s = await event(ROLE_S, _delta({"role": "assistant", "content": ""}))
        at_s, left, size = FIRST_S, wanted, FIRST_TOKENS
        while left > 0:
            size = min(size, left)
            left -= size
            written.moments_s.append(await event(at_s, _delta({"content": WORD * size}, None if left else "length")))
            written.tokens.append(size)
            at_s, size = at_s + CHUNK_S, CHUNK_TOKENS
        await event(at_s + USAGE_S, {"id": "a", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": count})
        await event(at_s + USAGE_S, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        self.written.append(written)


def _delta(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}


def truth(written: list[Written]) -> dict[str, float]:
    """Medians of what was written, by the formulas of docs/bench-figures.md; seconds and tokens/s."""

    def over(value: Any) -> float:
        return float(median(value(w, sum(w.tokens)) for w in written))

    gaps = [b - a for w in written for a, b in zip(w.moments_s, w.moments_s[1:], strict=False)]
    return {
        "first_chunk": over(lambda w, n: w.role_s),
        "ttft": over(lambda w, n: w.moments_s[0]),
        "e2e": over(lambda w, n: w.moments_s[-1]),
        "decode": over(lambda w, n: n / (w.moments_s[-1] - w.moments_s[0])),
        "decode_corrected": over(lambda w, n: (n - w.tokens[0]) / (w.moments_s[-1] - w.moments_s[0])),
        "tpot": over(lambda w, n: (w.moments_s[-1] - w.moments_s[0]) / (n - 1)),
        "tpot_whole": over(lambda w, n: w.moments_s[-1] / n),
        "itl": float(median(gaps)),
        "itl_token": float(median(gaps)) / CHUNK_TOKENS,
    }
