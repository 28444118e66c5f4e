"""SentencePiece's unigram model: of all ways to cut a text into pieces, the one whose scores add up to most.

Sources: sentencepiece, src/unigram_model.cc (EncodeOptimized), and tokenizers, models/unigram/model.rs, which computes the same in float64
where SentencePiece keeps its sums in float32.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, MutableSequence, Sequence

from swiftsure.errors import ModelFileError
from swiftsure.models.token_matcher import TokenMatcher

_UNKNOWN_PENALTY = 10.0  # below the worst piece


class Unigram:
    """``pieces`` maps what text may become to (id, score). Immutable; the time grows with the length times that of the longest piece."""

    def __init__(
        self, pieces: Mapping[str, tuple[int, float]], *, unk_id: int | None, byte_ids: Sequence[int], worst: float, single: bool
    ) -> None:
        """``byte_ids``: of the 256 bytes, or empty; a character without a piece becomes its bytes, otherwise ``unk_id``. ``worst`` is the
        lowest score of the vocabulary. ``single``: sums are kept in float32. Raises ModelFileError where unknown text has no token."""
        if unk_id is None and not byte_ids:
            raise ModelFileError("the vocabulary must have an unknown token or tokens for all 256 bytes, and has neither")
        self._matcher = TokenMatcher({piece: token for piece, (token, _) in pieces.items()})
        self._scores = dict(pieces.values())
        self._ids = {piece: token for piece, (token, _) in pieces.items()}
        self._unk_id = unk_id
        self._byte_ids = byte_ids
        self._single = single
        self._unknown_score = _rounded(_rounded(worst) - _UNKNOWN_PENALTY) if single else worst - _UNKNOWN_PENALTY

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        unknown = ""
        for start, end, token in self._best_path(text):
            if token is None:
                unknown += text[start:end]
                continue
            ids += self._spelled_out(unknown)
            unknown = ""
            ids.append(token)
        return ids + self._spelled_out(unknown)

    def _best_path(self, text: str) -> list[tuple[int, int, int | None]]:
        """(start, end, id) from left to right; no id: no piece begins with this character."""
        size = len(text)
        best: MutableSequence[float] = array("f" if self._single else "d", bytes((4 if self._single else 8) * (size + 1)))
        came_from: list[tuple[int, int | None] | None] = [None] * (size + 1)
        for start in range(size):
            so_far = best[start]
            alone = False
            for end, token in self._matcher.starting_at(text, start):
                score = so_far + self._scores[token]
                if came_from[end] is None or score > best[end]:
                    best[end] = score
                    came_from[end] = (start, token)
                alone = alone or end == start + 1
            if not alone:
                score = so_far + self._unknown_score
                score = _rounded(score) if self._single else score
                if came_from[start + 1] is None or score > best[start + 1]:
                    best[start + 1] = score
                    came_from[start + 1] = (start, None)
        path: list[tuple[int, int, int | None]] = []
        end = size
        while end:
            step = came_from[end]
            assert step is not None  # every character is a step
            path.append((step[0], end, step[1]))
            end = step[0]
        path.reverse()
        return path

    def _spelled_out(self, unknown: str) -> list[int]:
        """A run of characters that have no piece."""
        if not unknown:
            return []
        if not self._single and unknown in self._ids:  # tokenizers looks the whole run up
            return [self._ids[unknown]]
        if self._byte_ids:
            return [self._byte_ids[byte] for byte in unknown.encode()]
        assert self._unk_id is not None
        return [self._unk_id]


def _rounded(value: float) -> float:
    """To float32."""
    return array("f", (value,))[0]
