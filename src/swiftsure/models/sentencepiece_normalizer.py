"""What SentencePiece does to text before it looks for pieces: characters replaced by a table, blanks dropped, marked and put first.

Source: sentencepiece, src/normalizer.cc; the table is a double-array trie (Darts-clone) followed by the texts that it points to.
"""

from __future__ import annotations

from swiftsure.errors import ModelFileError
from swiftsure.models.token_matcher import TokenMatcher

SPACE = "\u2581"  # stands for the blank in pieces; the character itself is therefore read as a blank


class CharacterMap:
    """``precompiled_charsmap``: prefixes of text and what replaces them."""

    def __init__(self, raw: bytes) -> None:
        """Raises ModelFileError for a table that does not lie within its bytes."""
        size = int.from_bytes(raw[:4], "little")
        if len(raw) < 4 or size % 4 or not 4 <= size <= len(raw) - 4:
            raise ModelFileError(f"precompiled_charsmap: a trie of {size} bytes does not fit {len(raw)} bytes")
        self._units = memoryview(raw[4 : 4 + size]).cast("I")
        self._texts = raw[4 + size :]

    def longest(self, text: bytes, start: int) -> tuple[int, bytes] | None:
        """End of the longest prefix that the table replaces, and its replacement. Raises ModelFileError for a trie that leads outside."""
        found: tuple[int, int] | None = None
        units = self._units
        try:
            node = _offset(units[0])
            for end in range(start, len(text)):
                node ^= text[end]
                unit = units[node]
                if unit & 0x800000FF != text[end]:
                    break
                node ^= _offset(unit)
                if unit >> 8 & 1:
                    found = end + 1, units[node] & 0x7FFFFFFF
        except IndexError:
            raise ModelFileError("precompiled_charsmap: the trie leads outside itself") from None
        if found is None:
            return None
        end, at = found
        stop = self._texts.find(b"\0", at)
        if at > len(self._texts) or stop < 0:
            raise ModelFileError("precompiled_charsmap: the trie points outside the texts")
        return end, self._texts[at:stop]


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & 0x200) >> 6)


class Normalizer:
    def __init__(self, *, table: CharacterMap | None, drop_blanks: bool, kept: TokenMatcher) -> None:
        """``drop_blanks`` at both ends, and all but one of several. The spellings of ``kept`` are left as they are."""
        self._table = table
        self._drop_blanks = drop_blanks
        self._kept = kept

    def __call__(self, text: str, *, prefix: bool) -> str:
        """``prefix``: a blank is put before the text, unless it is empty."""
        if self._table is not None:
            text = self._replaced(text)
        if self._drop_blanks:
            text = " ".join(part for part in text.split(" ") if part)
        text = (SPACE + text if prefix and text else text).replace(" ", SPACE)
        return text.rstrip(SPACE) if self._drop_blanks else text

    def _replaced(self, text: str) -> str:
        done: list[bytes] = []
        start = 0
        for begin, end, _ in self._kept.matches(text):
            done += (self._mapped(text[start:begin]), text[begin:end].encode())
            start = end
        return b"".join([*done, self._mapped(text[start:])]).decode(errors="replace")

    def _mapped(self, text: str) -> bytes:
        assert self._table is not None
        raw = text.encode()
        done: list[bytes] = []
        at = 0
        while at < len(raw):
            found = self._table.longest(raw, at)
            if found is None:
                end = at + 1
                while end < len(raw) and raw[end] & 0xC0 == 0x80:  # the rest of the character
                    end += 1
                found = end, raw[at:end]
            at, replacement = found
            done.append(replacement)
        return b"".join(done)
