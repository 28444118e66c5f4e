"""HTTP/1.1 responses (RFC 9112) from bytes that arrive in any pieces, with the moment each piece of the body was read.

Only as much is done per read as finding the response's end takes: about 2 microseconds, so that a process that holds hundreds of streams
still stamps each of their reads in time. What the body says is read later, elsewhere.
"""

from __future__ import annotations

from array import array

LARGEST_HEAD = 64 << 10
LARGEST_BODY = 256 << 20
_LONGEST_LINE = 4096
_SIZE, _DATA, _DATA_END, _TRAILERS = range(4)


class ResponseError(Exception):
    """What came is no HTTP/1.1 response that this client understands; the message says why."""


class ResponseReader:
    """``feed`` takes each read with its moment, ``end_of_input`` the connection's end; ``done`` says that the response is whole.

    ``body`` has grown to ``ends[i]`` bytes by the read at ``moments[i]``; reads without a byte of the body are left out.
    """

    __slots__ = ("_chunked", "_held", "_left", "_state", "body", "done", "ends", "headers", "keep_open", "last_read", "moments", "status")

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}  # names in lower case
        self.body = bytearray()
        self.ends = array("q")
        self.moments = array("d")
        self.done = False
        self.keep_open = False  # the connection may carry another request
        self.last_read: float | None = None  # the moment of the last read of all, the response's end when it is done
        self._held = b""  # bytes of a head or line that is not whole yet
        self._chunked = False
        self._left: int | None = None  # bytes to come, of a chunk or of a body whose length is known
        self._state = _SIZE

    def feed(self, data: bytes, moment: float) -> None:
        """Raises ResponseError for what breaks the protocol's rules or this client's limits."""
        self.last_read = moment
        if self.status is None:
            data = self._take_head(self._held + data)
            if self.status is None or self.done:
                self.keep_open = self.keep_open and not data
                return
        body = self.body
        before = len(body)
        if self._chunked:
            self._take_chunks(data)
        elif self._left is None:
            body += data
        else:
            body += data[: self._left]
            self.keep_open = self.keep_open and len(data) <= self._left
            self._left -= min(len(data), self._left)
            self.done = not self._left
        if len(body) > before:
            if len(body) > LARGEST_BODY:
                raise ResponseError(f"an answer must have at most {LARGEST_BODY >> 20} MiB")
            self.ends.append(len(body))
            self.moments.append(moment)

    def end_of_input(self) -> None:
        """The connection was closed: the end of a body of unknown length, and of no other."""
        if self.status is not None and not self._chunked and self._left is None:
            self.done = True
        self.keep_open = False

    def _take_head(self, data: bytes) -> bytes:
        """Reads the head once it is whole, skipping interim responses; gives what follows it."""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > LARGEST_HEAD:
                if len(data) > LARGEST_HEAD:
                    raise ResponseError(f"an answer's head must have at most {LARGEST_HEAD >> 10} KiB")
                self._held = data
                return b""
            head, data = data[:end], data[end + 4 :]
            status = self._read_head(head)
            if status >= 200:
                self._held = b""
                self.status = status
                self._expect_body(status)
                return data

    def _read_head(self, head: bytes) -> int:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not status.isdigit():
            raise ResponseError(f"an answer must begin with HTTP/1.1 and a status, got {first[:80]!r}")
        self.headers = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon:
                raise ResponseError(f"a header must be as in 'name: value', got {line[:80]!r}")
            self.headers[name.lower()] = value.strip()
        connection = self.headers.get("connection", "").lower()
        self.keep_open = "close" not in connection and (version != "HTTP/1.0" or "keep-alive" in connection)
        return int(status)

    def _expect_body(self, status: int) -> None:
        coding = self.headers.get("content-encoding", "identity").lower()
        if coding not in ("identity", ""):
            raise ResponseError(f"an answer must not be compressed, as the request said, got content-encoding {coding}")
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length")
        if status in (204, 304):
            self.done = True
        elif not self._chunked and length is not None:
            if not length.isdigit():
                raise ResponseError(f"content-length must be a number, got {length[:40]!r}")
            self._left = int(length)
            self.done = not self._left

    def _take_chunks(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        position, size = 0, len(data)
        while position < size:
            if self._state == _DATA:
                assert self._left is not None
                stop = min(position + self._left, size)
                self.body += data[position:stop]
                self._left -= stop - position
                position = stop
                if not self._left:
                    self._state = _DATA_END
                continue
            end = data.find(b"\r\n", position)
            if end < 0:
                if size - position > _LONGEST_LINE:
                    raise ResponseError(f"a line between chunks must have at most {_LONGEST_LINE} bytes")
                break
            line, position = data[position:end], end + 2
            if self._state == _SIZE:
                self._left = _chunk_size(line)
                self._state = _DATA if self._left else _TRAILERS
            elif self._state == _DATA_END:
                if line:
                    raise ResponseError("a chunk is longer than it says")
                self._state = _SIZE
            elif not line:
                self.done = True
                self.keep_open = self.keep_open and position == size
                return
        self._held = data[position:]


def _chunk_size(line: bytes) -> int:
    digits = line if line.isalnum() else line.partition(b";")[0].strip()
    try:
        if not digits.isalnum():  # int() would take signs and underscores
            raise ValueError
        return int(digits, 16)
    except ValueError:
        raise ResponseError(f"a chunk must begin with its size, got {line[:40]!r}") from None
