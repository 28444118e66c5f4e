"""Finds tokens that are spelled out in text: the leftmost, and the longest of those that start there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence


class TokenMatcher:
    """Looks tokens up by their first two characters and their lengths: thousands of tokens that all begin with ``<`` cost a few look-ups
    where a regular expression would try each."""

    def __init__(self, table: Mapping[str, int]) -> None:
        """``table`` maps spellings, none of them empty, to ids."""
        self._table = dict(table)
        lengths: dict[str, set[int]] = {}
        for token in self._table:
            lengths.setdefault(token[:2], set()).add(len(token))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        first = "".join(sorted({head[0] for head in lengths}))
        self._start = re.compile(f"[{re.escape(first)}]") if first else None

    def __bool__(self) -> bool:
        return self._start is not None

    def occurs_in(self, text: str) -> bool:
        return next(self.matches(text), None) is not None

    def matches(
        self, text: str, spans: Sequence[tuple[int, int]] = (), guarded: frozenset[int] = frozenset()
    ) -> Iterator[tuple[int, int, int]]:
        """(start, end, id) of each token, left to right, none overlapping.

        ``spans`` are ascending character ranges that tokens of ``guarded`` must not touch; the others may.
        """
        position, passed = 0, 0
        while self._start is not None and (candidate := self._start.search(text, position)):
            position = candidate.start()
            while passed < len(spans) and spans[passed][1] <= position:
                passed += 1
            for end, token in self.starting_at(text, position):
                if token in guarded and _touches(position, end, spans, passed):
                    continue
                yield position, end, token
                position = end
                break
            else:
                position += 1

    def starting_at(self, text: str, start: int) -> Iterator[tuple[int, int]]:
        """End and id of every token that starts here, longest first."""
        head = text[start : start + 2]
        for key in (head, head[0]) if len(head) == 2 else (head,):
            for length in self._lengths.get(key, ()):
                token = self._table.get(text[start : start + length])
                if token is not None:
                    yield min(start + length, len(text)), token


def _touches(start: int, end: int, spans: Sequence[tuple[int, int]], passed: int) -> bool:
    """Whether a span that does not end before ``start`` holds a character of ``start`` to ``end``; empty spans hold none."""
    for i in range(passed, len(spans)):
        low, high = spans[i]
        if low >= end:
            return False
        if max(low, start) < min(high, end):
            return True
    return False
