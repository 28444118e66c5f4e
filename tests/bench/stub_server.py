"""An endpoint that misbehaves just so: each path under it plays a script of bytes and moments, and notes when it sent what.

A script is a list of steps ``[seconds, bytes]``: at so many seconds after the request was read whole, so many bytes are written, or, for
``None``, the connection is closed, and for ``RESET`` broken off. After the last step the connection is kept and takes the next request.
A path with several scripts plays them one after the other, the last one again and again.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Self

RESET = b"\x00reset"
HANG = b"\x00hang"
Script = Sequence[tuple[float, bytes | None]]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One server-sent event with a JSON value, or a text as it stands."""
    return b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n"


def delta(finish: str | None = None, /, usage: Any = None, **fields: Any) -> dict[str, Any]:
    """A chunk of chat completions; ``usage`` stands beside the choices when given."""
    told = {} if usage is None else {"usage": usage}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}], **told}


def usage(output: int, prompt: int = 7, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output, **more}


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole response with a length."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


def stream(*steps: tuple[float, Any]) -> Script:
    """A whole event stream: head at once, then each value as an event in a chunk of its own at its moment; bytes go as they are."""
    last = max((at for at, _ in steps), default=0.0)
    body = [(at, chunk(value if isinstance(value, bytes) else event(value))) for at, value in steps]
    return [(0.0, HEAD), *body, (last, END)]


@dataclass
class Asked:
    """A request as it came: its header lines, its body, and when each step was written (``time.perf_counter``)."""

    path: str
    head: str
    body: Any
    connection: int
    read_at: float
    sent_at: list[float] = field(default_factory=list)


class StubServer:
    """Runs in a thread of its own while entered. ``url(name)`` is the base whose requests play ``scripts[name]``."""

    def __init__(self, scripts: dict[str, Script | Sequence[Script]], *, tls: ssl.SSLContext | None = None) -> None:
        self._scripts = {name: _as_list(script) for name, script in scripts.items()}
        self._tls = tls
        self._played = dict.fromkeys(scripts, 0)
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[Asked] = []
        self.port = 0

    def url(self, name: str) -> str:
        return f"http{'' if self._tls is None else 's'}://127.0.0.1:{self.port}/{name}"

    def rewind(self, name: str) -> None:
        """The path plays its scripts from the first again."""
        self._played[name] = 0

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, backlog=1024, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._connections += 1
        number = self._connections
        try:
            while await self._exchange(reader, writer, number):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
        first = await reader.readexactly(1)
        if first == b"\x16":  # TLS, which is not spoken here
            writer.write(answer("400 Bad Request"))
            return False
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
        body = json.loads(await reader.readexactly(length))
        read_at = perf_counter()
        path = head.split(" ", 2)[1]
        asked = Asked(path, head, body, number, read_at)
        self.asked.append(asked)
        name = path.split("/")[1]
        scripts = self._scripts[name]
        script = scripts[min(self._played[name], len(scripts) - 1)]
        self._played[name] += 1
        for at_s, data in script:
            rest_s = read_at + at_s - perf_counter()
            if rest_s > 0:
                await asyncio.sleep(rest_s)
            if data is None:
                return False
            if data == RESET:
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing it is a reset
                writer.transport.abort()
                return False
            if data == HANG:
                await asyncio.sleep(3600)
            asked.sent_at.append(perf_counter())
            writer.write(data)
        return True

    def __enter__(self) -> Self:
        started = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self._loop)
            self._loop.run_until_complete(self.start())
            started.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *exc: object) -> None:
        async def stop() -> None:
            assert self._server is not None
            self._server.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


def _as_list(script: Any) -> list[Script]:
    return list(script) if script and not isinstance(script[0], tuple) else [script]
