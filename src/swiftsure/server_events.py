"""Server-sent events, as the HTML standard says (section 9.2.6), from bytes that arrive in any pieces."""

from __future__ import annotations

from collections.abc import Iterator


class EventParser:
    """Feeds on pieces and gives the data of each whole event. Comments and other fields are skipped; lines end with LF, CR or both."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[str]:
        buffer = self._rest + piece
        held = b""
        if buffer.endswith(b"\r"):  # an LF that belongs to it may follow
            buffer, held = buffer[:-1], b"\r"
        *lines, last = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = last + held
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                yield data.decode(errors="replace")
