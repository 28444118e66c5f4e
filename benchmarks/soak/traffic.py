"""Clients of every interface: most ask well, some leave in the middle, some send what makes no sense. All of it follows from a seed."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

LEAVE, MALFORMED = 0.2, 0.1  # shares of requests
_TIMEOUT_S = 600.0  # for an answer; nobody pings meanwhile, so that a machine that stands still for long breaks no connection
_WORDS = ["river", "stone", "winter", "letter", "engine", "garden", "silver", "music", "ladder", "harbour", "candle", "forest"]
_REFUSED = (400, 401, 404, 405, 413, 415, 422, 426, 431)

Client: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class Tally:
    """What came of requests. outcomes: counts of ``api outcome``. unexpected: the first few answers that no rule allows, in words."""

    outcomes: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    unexpected_count: int = 0

    def note(self, api: str, outcome: str) -> None:
        self.outcomes[f"{api} {outcome}"] += 1

    def wrong(self, text: str) -> None:
        self.unexpected_count += 1
        if len(self.unexpected) < 20:
            self.unexpected.append(text[:400])

    def of(self, outcome: str) -> int:
        """Summed over interfaces."""
        return sum(count for name, count in self.outcomes.items() if name.split(" ", 1)[1] == outcome)


@dataclass(slots=True)
class Traffic:
    """``run`` sends ``count`` requests to ``url``, at most ``at_once`` under way; ``done`` is called as each ends."""

    url: str
    model: str
    seed: int
    most_tokens: int = 24
    tally: Tally = field(default_factory=Tally)
    _http: httpx.AsyncClient = field(init=False)

    async def run(self, count: int, *, at_once: int, done: Callable[[int], None] = lambda ended: None) -> Tally:
        draw = random.Random(self.seed)
        gate = asyncio.Semaphore(at_once)
        ended = 0

        async def one(client: Client) -> None:
            nonlocal ended
            async with gate:
                await client()
            ended += 1
            done(ended)

        limits = httpx.Limits(max_connections=None, max_keepalive_connections=at_once)
        async with httpx.AsyncClient(base_url=self.url, timeout=_TIMEOUT_S, limits=limits) as self._http:
            await asyncio.gather(*[one(self._client(random.Random(draw.random()))) for _ in range(count)])
        return self.tally

    def _client(self, draw: random.Random) -> Client:
        fate = draw.random()
        if fate < MALFORMED:
            return lambda: self._malformed(draw)
        leaves = fate < MALFORMED + LEAVE
        kinds = [self._chat, self._completions, self._messages, self._responses]
        if draw.random() < 0.15:
            return lambda: self._socket(draw, leaves=leaves)
        if draw.random() < 0.05 and not leaves:
            return lambda: self._plain("tokenize", "/tokenize", {"prompt": _text(draw)})
        api, path, body = draw.choice(kinds)(draw)
        return lambda: self._ask(draw, api, path, body, leaves=leaves)

    # --- requests that make sense -----------------------------------------------------------------------------------------

    def _chat(self, draw: random.Random) -> tuple[str, str, dict[str, Any]]:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": _text(draw)}],
            "max_tokens": draw.randint(1, self.most_tokens),
            "stream": draw.random() < 0.6,
            "temperature": draw.choice([0, 0.8]),
            "n": draw.choice([1, 1, 1, 2]),
            "service_tier": draw.choice(["auto", "auto", "auto", "default", "priority"]),
        }
        if draw.random() < 0.2:
            body |= {"logprobs": True, "top_logprobs": 2}
        if draw.random() < 0.2:
            body["stop"] = ["the", "\n\n"]
        return "chat", "/v1/chat/completions", body

    def _completions(self, draw: random.Random) -> tuple[str, str, dict[str, Any]]:
        tokens, streams = draw.randint(1, self.most_tokens), draw.random() < 0.6
        return (
            "completions",
            "/v1/completions",
            {"model": self.model, "prompt": _text(draw), "max_tokens": tokens, "stream": streams, "seed": draw.randrange(1000)},
        )

    def _messages(self, draw: random.Random) -> tuple[str, str, dict[str, Any]]:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": _text(draw)}],
            "max_tokens": draw.randint(1, self.most_tokens),
            "stream": draw.random() < 0.6,
        }
        if draw.random() < 0.2:
            body["speed"] = "fast"
        return "messages", "/v1/messages", body

    def _responses(self, draw: random.Random) -> tuple[str, str, dict[str, Any]]:
        body = {
            "model": self.model,
            "input": _text(draw),
            "max_output_tokens": draw.randint(1, self.most_tokens),
            "stream": draw.random() < 0.6,
            "store": draw.random() < 0.2,
        }
        return "responses", "/v1/responses", body

    async def _ask(self, draw: random.Random, api: str, path: str, body: dict[str, Any], *, leaves: bool) -> None:
        if not leaves:
            await self._plain(api, path, body)
        elif body["stream"] and draw.random() < 0.7:
            await self._leave_stream(api, path, body, after=draw.randint(0, 6))
        else:
            await self._leave_early(api, path, body, after_s=draw.choice([0.0, 0.01, 0.1, 0.5]))

    async def _plain(self, api: str, path: str, body: dict[str, Any]) -> None:
        try:
            answer = await self._http.post(path, json=body)
        except httpx.HTTPError as error:
            self.tally.wrong(f"{api}: {error!r}")
            return
        text = answer.text
        if answer.status_code in (429, 503):
            self.tally.note(api, "busy")
            if "retry-after" not in answer.headers:
                self.tally.wrong(f"{api}: {answer.status_code} without retry-after")
        elif answer.status_code != 200 or (body.get("stream") and not _complete(text)):
            self.tally.wrong(f"{api}: {answer.status_code} {text[-300:]}")
        else:
            self.tally.note(api, "whole")

    async def _leave_stream(self, api: str, path: str, body: dict[str, Any], *, after: int) -> None:
        """Reads a few lines, then closes the connection."""
        try:
            async with self._http.stream("POST", path, json=body) as answer:
                lines: AsyncIterator[str] = answer.aiter_lines()
                with suppress(StopAsyncIteration):
                    for _ in range(after):
                        await anext(lines)
                if answer.status_code not in (200, 429, 503):
                    self.tally.wrong(f"{api}: {answer.status_code} to one who left")
        except httpx.HTTPError as error:
            self.tally.wrong(f"{api}: {error!r} to one who left")
        self.tally.note(api, "left")

    async def _leave_early(self, api: str, path: str, body: dict[str, Any], *, after_s: float) -> None:
        """Sends the request whole and is gone before the answer: waiting, in prefill or in decoding."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        await self._raw(head.encode() + data, after_s=after_s)
        self.tally.note(api, "left")

    async def _socket(self, draw: random.Random, *, leaves: bool) -> None:
        """A WebSocket with up to three turns, each on the one before it; who leaves is gone within one."""
        turns = draw.randint(1, 3)
        try:
            async with self._connect() as socket:
                previous: str | None = None
                for turn in range(turns):
                    body = {"model": self.model, "input": _text(draw), "max_output_tokens": self.most_tokens, "store": False}
                    more = {} if previous is None else {"previous_response_id": previous}
                    await socket.send(json.dumps({"type": "response.create", **body, **more}))
                    events = draw.randint(0, 5) if leaves and turn == turns - 1 else 10**6
                    previous = await self._turn(socket, events)
                    if previous is None:
                        break
                if leaves:
                    socket.transport.abort()
        except (OSError, ConnectionClosed, TimeoutError) as error:
            self.tally.wrong(f"socket: {error!r}")
        self.tally.note("socket", "left" if leaves else "whole")

    async def _turn(self, socket: Any, events: int) -> str | None:
        """Reads at most so many events. The id of the response, once it has ended."""
        for _ in range(events):
            event = json.loads(await asyncio.wait_for(socket.recv(), _TIMEOUT_S))
            if event["type"] == "error":
                if event.get("status") not in (429, 503):
                    self.tally.wrong(f"socket: {json.dumps(event)}")
                return None
            if event["type"] in ("response.completed", "response.incomplete"):
                return str(event["response"]["id"])
            if event["type"] == "response.failed":
                self.tally.wrong(f"socket: {json.dumps(event)}")
                return None
        return None

    # --- requests that make none ------------------------------------------------------------------------------------------

    async def _malformed(self, draw: random.Random) -> None:
        message = [{"role": "user", "content": "x"}]
        wrong: list[tuple[str, Any]] = [
            ("/v1/chat/completions", {"messages": message, "temperature": 999_999}),
            ("/v1/chat/completions", {"messages": message, "top_p": -1}),
            ("/v1/chat/completions", {"messages": "no list"}),
            ("/v1/chat/completions", {"messages": message, "unheard_of": 1}),
            ("/v1/completions", {"prompt": [-5, 10**12], "max_tokens": 4}),
            ("/v1/completions", {"prompt": "word " * 20_000}),
            ("/v1/messages", {"messages": message, "max_tokens": -3}),
            ("/v1/messages", {"messages": [{"role": "nobody", "content": 7}], "max_tokens": 3}),
            ("/v1/responses", {"input": [{"type": "image"}]}),
            ("/v1/responses", {"input": "x", "previous_response_id": "resp_none"}),
            ("/v1/nothing", {}),
            ("/v1/chat/completions", b"{not json"),
            ("/v1/messages", b"\xff\xfe\x00"),
            ("/v1/responses", b"[" * 50_000),
        ]
        kind = draw.randrange(len(wrong) + 4)
        if kind >= len(wrong):
            await [self._garbage, self._half_body, self._half_head, self._bad_frames][kind - len(wrong)](draw)
            self.tally.note("malformed", "cut off")
            return
        path, body = wrong[kind]
        content = body if isinstance(body, bytes) else json.dumps({"model": self.model, **body}).encode()
        try:
            answer = await self._http.post(path, content=content, headers={"content-type": "application/json"})
        except httpx.HTTPError as error:
            self.tally.wrong(f"malformed {path} {content[:80]!r}: {error!r}")
            return
        if answer.status_code in _REFUSED:
            self.tally.note("malformed", "refused")
        else:
            self.tally.wrong(f"malformed {path} {content[:80]!r}: {answer.status_code} {answer.text[:200]}")

    async def _garbage(self, draw: random.Random) -> None:
        await self._raw(draw.randbytes(400) + b"\r\n\r\n", after_s=0.05)

    async def _half_body(self, draw: random.Random) -> None:
        await self._raw(f"POST /v1/completions HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: 5000\r\n\r\n{{".encode(), after_s=0.05)

    async def _half_head(self, draw: random.Random) -> None:
        await self._raw(b"POST /v1/messages HTTP/1.1\r\nHo", after_s=0.05)

    async def _bad_frames(self, draw: random.Random) -> None:
        async with self._connect() as socket:
            for frame in ("{not json", json.dumps({"type": "nothing"}), json.dumps({"type": "response.create", "input": 7}), b"\x00\xff"):
                await socket.send(frame)
                event = json.loads(await asyncio.wait_for(socket.recv(), _TIMEOUT_S))
                if event["type"] != "error" or event.get("status") not in _REFUSED:
                    self.tally.wrong(f"socket: {frame!r} was answered with {json.dumps(event)}")

    def _connect(self) -> connect:
        url = self.url.replace("http", "ws", 1) + "/v1/responses"
        return connect(url, proxy=None, open_timeout=_TIMEOUT_S, ping_interval=None)

    async def _raw(self, data: bytes, *, after_s: float) -> None:
        place = urlsplit(self.url)
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        with suppress(ConnectionError):
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(after_s)
        writer.transport.abort()

    @property
    def _host(self) -> str:
        return urlsplit(self.url).netloc


def _text(draw: random.Random) -> str:
    """A few words, now and then a long text; one beginning in four is shared with others."""
    words = draw.choices(_WORDS, k=draw.choice([2, 5, 12, 12, 60]))
    begin = "You are given a list of words and say what they have in common. " if draw.random() < 0.25 else ""
    return begin + " ".join(words)


def _complete(text: str) -> bool:
    """Whether a stream of any interface came to its own end."""
    return any(
        end in text[-4000:] for end in ("data: [DONE]", "event: message_stop", "event: response.completed", "event: response.incomplete")
    )


async def crowd(url: str, model: str, connections: int, *, tokens: int) -> Counter[str]:
    """So many streams of chat at once, all connections open before any request is sent; counts by status, or by what went wrong."""
    place = urlsplit(url)
    pairs = await asyncio.gather(*[asyncio.open_connection(place.hostname, place.port) for _ in range(connections)])

    async def ask(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        body = {"model": model, "messages": [{"role": "user", "content": f"Number {number}"}], "max_tokens": tokens, "stream": True}
        data = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        await writer.drain()
        text = (await asyncio.wait_for(reader.read(-1), _TIMEOUT_S)).decode()
        writer.close()
        await writer.wait_closed()
        status = text.split(" ", 2)[1] if text.startswith("HTTP/1.1 ") else "no answer"
        return status if status != "200" or "data: [DONE]" in text else "200, cut off"

    return Counter(await asyncio.gather(*[ask(number, *pair) for number, pair in enumerate(pairs)]))
