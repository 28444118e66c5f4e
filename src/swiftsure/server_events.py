"""Server-sent events, as the HTML standard says (section 9.2.6), from bytes that arrive in any pieces."""

from __future__ import annotations

from collections.abc import Iterator

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventParser:
    """Feeds on pieces and gives the data of each whole event, with the piece that completed it.

    Comments and other fields are skipped, an event without data is none; lines end with LF, CR or both. A character or a line end may be
    split over pieces. What follows the last blank line is no event.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._parts: list[bytes] = []  # of a line whose end has not come: joined once, or an endless line would take quadratic time
        self._data: list[bytes] = []
        self._after_cr = False  # an LF that comes next belongs to a line end that was already taken
        self._at_start = True

    def feed(self, piece: bytes) -> Iterator[str]:
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if not self._at_start and b"\n" not in piece and b"\r" not in piece:
            self._parts.append(piece)
            return
        buffer = b"".join((self._rest, *self._parts, piece))
        self._parts = []
        if self._at_start:
            if len(buffer) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(buffer):
                self._rest = buffer
                return
            buffer = buffer.removeprefix(_BYTE_ORDER_MARK)
            self._at_start = False
        if b"\r" in buffer:
            self._after_cr = buffer.endswith(b"\r")
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                data, self._data = b"\n".join(self._data), []
                if data:
                    yield data.decode(errors="replace")
