"""Connections that stamp each read in the event loop's own callback, before anything else looks at the bytes."""

from __future__ import annotations

import asyncio
import errno
import ssl
from dataclasses import dataclass
from time import perf_counter
from urllib.parse import urlsplit

from swiftsure.bench.client.http_response import ResponseError, ResponseReader
from swiftsure.bench.exchange import ErrorKind
from swiftsure.errors import UsageError


class ConnectionFailedError(Exception):
    """No connection, or one that broke. ``kind`` as in an exchange; ``own``: this client ran out of what it needs."""

    def __init__(self, kind: ErrorKind, words: str, *, own: bool = False) -> None:
        super().__init__(words)
        self.kind = kind
        self.own = own


class Connection(asyncio.BufferedProtocol):
    """Carries one request at a time. The stamp of a read is taken first thing when the loop hands it over (of TLS: once deciphered).

    All connections of a process read into one buffer: without it the loop would allocate 256 KiB for each read of a few hundred bytes.
    """

    _buffer = memoryview(bytearray(1 << 16))

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader: ResponseReader | None = None
        self._ended: asyncio.Future[None] | None = None
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes, reader: ResponseReader) -> tuple[float, asyncio.Future[None]]:
        """Hands the request to the socket. Gives the moment before its first byte went, and what is done when the answer has ended.

        That raises ConnectionFailedError, with the answer so far in ``reader``.
        """
        assert self._transport is not None
        assert self._reader is None
        self._reader = reader
        self._ended = asyncio.get_running_loop().create_future()
        sent = perf_counter()
        self._transport.write(request)
        return sent, self._ended

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        moment = perf_counter()
        data = bytes(self._buffer[:nbytes])
        reader = self._reader
        if reader is None:  # bytes that nobody asked for
            self.close()
            return
        try:
            reader.feed(data, moment)
        except ResponseError as error:
            self.close()
            self._end(ConnectionFailedError("broken", str(error)))
            return
        if reader.done:
            if not reader.keep_open:
                self.close()
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._reader is not None:
            self._reader.end_of_input()
            why = f"the connection broke off: {exc}" if exc is not None else "the connection was closed before the answer's end"
            self._end(None if self._reader.done else ConnectionFailedError("broken", why))

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def _end(self, error: ConnectionFailedError | None) -> None:
        ended, self._ended, self._reader = self._ended, None, None
        if ended is not None and not ended.done():
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an endpoint is: host and port to connect to, the Host header, and the path of its base without a slash at the end."""

    host: str
    port: int
    secure: bool
    authority: str
    path: str


def place_of(url: str) -> Place:
    """Raises UsageError for what is no base of an endpoint."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(f"an endpoint must be as in http://host:8000/v1, got {url!r}")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise UsageError(f"an endpoint must be written in ASCII without blanks, got {url!r}")
    secure = parts.scheme == "https"
    return Place(
        host=parts.hostname, port=port or (443 if secure else 80), secure=secure, authority=parts.netloc, path=parts.path.rstrip("/")
    )


class Pool:
    """Connections to one place: one that is open and free is used again, the last one first; else a new one is made. There is no limit."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._free: list[Connection] = []
        self._tls = _tls_context() if place.secure else None

    def free(self) -> Connection | None:
        """An open connection that carries nothing."""
        while self._free:
            connection = self._free.pop()
            if connection.usable:
                return connection
        return None

    async def connect(self) -> Connection:
        """A new connection. Raises ConnectionFailedError."""
        place = self._place
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, place.host, place.port, ssl=self._tls, server_hostname=place.host if self._tls else None
            )
        except (ssl.SSLError, ssl.CertificateError) as error:
            raise ConnectionFailedError("tls", f"no TLS with {place.authority}: {error}") from None
        except OSError as error:
            own = error.errno in (errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS)
            raise ConnectionFailedError("connect", f"no connection to {place.authority}: {error}", own=own) from None
        return connection

    def give_back(self, connection: Connection) -> None:
        if connection.usable:
            self._free.append(connection)

    def close(self) -> None:
        for connection in self._free:
            connection.close()
        self._free.clear()


def _tls_context() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()
