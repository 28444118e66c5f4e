"""SentencePiece's unigram model: of all ways to cut a text into pieces, the one whose scores add up to most.

Sources: sentencepiece, src/unigram_model.cc (EncodeOptimized), and tokenizers, models/unigram/model.rs, which computes the same in float64
where SentencePiece keeps its sums in float32.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, MutableSequence, Sequence

from swiftsure.errors import ModelFileError
from swiftsure.models.gguf import Metadata
from swiftsure.models.segmenter import Place
from swiftsure.models.sentencepiece import Pieces, normalizer_of_gguf, scores_of_gguf
from swiftsure.models.sentencepiece_normalizer import Normalizer
from swiftsure.models.token_matcher import TokenMatcher
from swiftsure.models.vocabulary import TokenKind, Vocabulary

_UNKNOWN_PENALTY = 10.0  # below the worst piece
_USER_DEFINED_BYTE = 0.1  # a user-defined piece scores this for every byte after the first, while log probabilities are below 0


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
                score = _rounded(score) if self._single else score
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


class SentencePieceUnigram:
    """``tokenizer.ggml.model = "t5"``."""

    added: Mapping[str, int] = {}  # user-defined pieces win by their score

    def __init__(self, pieces: Pieces, scores: Sequence[float], normalizer: Normalizer, *, unk_id: int | None, space_prefix: bool) -> None:
        """``scores`` by id. Raises ModelFileError where unknown text has no token."""
        self.prefixed: Collection[Place] = (Place.START, Place.AFTER_ADDED) if space_prefix else ()
        self._pieces = pieces
        self._normalized = normalizer
        normal = [scores[i] for i in pieces.vocabulary.of_kind(TokenKind.NORMAL)]
        table = {piece: (i, scores[i]) for piece, i in pieces.mergeable.items() if piece not in pieces.unused}
        for piece, i in pieces.user_defined.items():  # its own score does not count; measured on sentencepiece 0.2.3
            table[piece] = (i, _USER_DEFINED_BYTE * (len(piece.encode()) - 1))
        worst = min(normal, default=0.0)
        self._model = Unigram(table, unk_id=unk_id, byte_ids=pieces.byte_ids, worst=worst, single=True)

    def encode(self, text: str, place: Place) -> list[int]:
        return self._model.encode(self._normalized(text, prefix=place in self.prefixed))

    def spell(self, token: int) -> bytes:
        return self._pieces.spell(token)


def unigram_of_gguf(meta: Metadata, vocabulary: Vocabulary) -> SentencePieceUnigram:
    """Raises ModelFileError."""
    pieces = Pieces(vocabulary, byte_fallback=False)
    unknown = vocabulary.of_kind(TokenKind.UNKNOWN)
    key = "tokenizer.ggml.unknown_token_id"
    unk_id = meta.integer(key) if key in meta else unknown[0] if unknown else None
    if unk_id is not None and not 0 <= unk_id < len(vocabulary.tokens):
        raise ModelFileError(f"the unknown token id {unk_id} is outside the vocabulary of {len(vocabulary.tokens)}")
    return SentencePieceUnigram(
        pieces,
        scores_of_gguf(meta, len(vocabulary.tokens)),
        normalizer_of_gguf(meta, pieces),
        unk_id=unk_id,
        space_prefix=meta.boolean("tokenizer.ggml.add_space_prefix", False),
    )
