"""SentencePiece from GGUF: what its two models share, and its BPE.

Written here rather than derived for a byte-level library because its rule differs: any two neighbours whose joint spelling is a piece may
merge, best score first and leftmost among equals, which no list of ranked pairs reproduces (``aaa`` from ``a aa`` or from ``aa a``).
Source: sentencepiece, src/bpe_model.cc.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from swiftsure.errors import ModelFileError
from swiftsure.models.gguf import Metadata
from swiftsure.models.segmenter import Place
from swiftsure.models.sentencepiece_normalizer import SPACE, CharacterMap, Normalizer
from swiftsure.models.token_matcher import TokenMatcher
from swiftsure.models.vocabulary import TokenKind, Vocabulary

_CACHED_LETTERS = 32  # of the longest stretch that is remembered
_CACHED_STRETCHES = 1 << 16


class Pieces:
    """The pieces of a SentencePiece vocabulary by what text may become: ``mergeable``, ``user_defined`` or one of 256 bytes."""

    def __init__(self, vocabulary: Vocabulary, *, byte_fallback: bool) -> None:
        """Raises ModelFileError for an empty or doubled piece, and with ``byte_fallback`` for a missing or misspelled byte."""
        tokens, kinds = vocabulary.tokens, vocabulary.kinds
        numbers = vocabulary.numbered()
        if "" in numbers:
            raise ModelFileError(f"token {numbers['']} of the vocabulary is empty")
        self.vocabulary = vocabulary
        self.byte_ids = _byte_ids(tokens, kinds, needed=byte_fallback)
        self.user_defined = {tokens[i].replace(" ", SPACE): i for i in vocabulary.of_kind(TokenKind.USER_DEFINED)}
        self.frozen = TokenMatcher(self.user_defined)
        # Control, unknown and byte pieces are out of reach of text that only happens to spell them.
        self.mergeable = {tokens[i]: i for i in vocabulary.of_kind(TokenKind.NORMAL, TokenKind.UNUSED)} | self.user_defined
        self.unused = frozenset(tokens[i] for i in vocabulary.of_kind(TokenKind.UNUSED))

    def spell(self, token: int) -> bytes:
        text = self.vocabulary.tokens[token]
        if self.vocabulary.kinds[token] == TokenKind.BYTE:
            return bytes([int(text[3:5], 16)])
        return text.replace(SPACE, " ").encode()

    def in_bytes(self, text: str) -> list[int]:
        return [self.byte_ids[byte] for byte in text.encode()]


class SentencePieceBPE:
    added: Mapping[str, int] = {}  # user-defined pieces are matched here, where blanks are already written as SentencePiece writes them

    def __init__(self, pieces: Pieces, scores: Sequence[float], normalizer: Normalizer, *, space_prefix: bool) -> None:
        """``scores`` by id, of which the highest merges first."""
        self.prefixed: Collection[Place] = (Place.START, Place.AFTER_ADDED) if space_prefix else ()
        self._normalized = normalizer
        self._pieces = pieces
        self._ids = pieces.mergeable
        self._scores = scores
        self._frozen = pieces.frozen
        self._joints = _joints(self._ids)
        self._known: dict[str, list[int]] = {}

    def encode(self, text: str, place: Place) -> list[int]:
        text = self._normalized(text, prefix=place in self.prefixed)
        ids: list[int] = []
        start = 0
        for begin, end, token in self._frozen.matches(text):
            ids += self._unfrozen(text[start:begin])
            ids.append(token)
            start = end
        return ids + self._unfrozen(text[start:])

    def spell(self, token: int) -> bytes:
        return self._pieces.spell(token)

    def _unfrozen(self, text: str) -> list[int]:
        ids: list[int] = []
        for stretch in _stretches(text, self._joints):
            known = self._known.get(stretch)
            if known is None:
                known = self._merge(stretch)
                if len(stretch) <= _CACHED_LETTERS and len(self._known) < _CACHED_STRETCHES:
                    self._known[stretch] = known
            ids += known
        return ids

    def _merge(self, text: str) -> list[int]:
        pieces, halves = merged(text, self._score)
        ids: list[int] = []
        pieces.reverse()
        while pieces:
            piece = pieces.pop()
            token = self._ids.get(piece)
            if piece not in self._pieces.unused and token is not None:
                ids.append(token)
            elif piece in halves:  # a step on the way to a longer piece that did not come about
                pieces += reversed(halves[piece])
            else:
                ids += self._pieces.in_bytes(piece)
        return ids

    def _score(self, piece: str) -> float | None:
        token = self._ids.get(piece)
        return None if token is None else self._scores[token]


def merged(text: str, score_of: Callable[[str], float | None]) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """The pieces of ``text`` after all merges, and the halves that each joint spelling was last seen in.

    A queue holds the possible merges, so the time grows as n log n for n characters.
    """
    pieces: list[str] = list(text)
    after = list(range(1, len(pieces) + 1))
    before = list(range(-1, len(pieces) - 1))
    queue: list[tuple[float, int, int, int]] = []
    halves: dict[str, tuple[str, str]] = {}

    def offer(left: int, right: int) -> None:
        joint = pieces[left] + pieces[right]
        score = score_of(joint)
        if score is not None:
            heapq.heappush(queue, (-score, left, right, len(joint)))
            halves[joint] = (pieces[left], pieces[right])

    for left in range(len(pieces) - 1):
        offer(left, left + 1)
    while queue:
        _, left, right, length = heapq.heappop(queue)
        if not pieces[left] or not pieces[right] or len(pieces[left]) + len(pieces[right]) != length:
            continue  # one of them has merged with another meanwhile
        pieces[left] += pieces[right]
        pieces[right] = ""
        following = after[left] = after[right]
        if before[left] >= 0:
            offer(before[left], left)
        if following < len(pieces):
            before[following] = left
            offer(left, following)
    return [piece for piece in pieces if piece], halves


def _joints(tokens: Mapping[str, int]) -> frozenset[str]:
    """All pairs of neighbouring characters inside tokens: between other neighbours no merge can ever reach across."""
    joined = "\0".join(tokens)  # pairs across a seam only forgo a cut beside a NUL
    letters = np.frombuffer(joined.encode("utf-32-le"), "<u4").astype("<u8")
    unique = np.unique(letters[:-1] | letters[1:] << np.uint64(32))
    pairs = unique.tobytes().decode("utf-32-le")
    return frozenset(pairs[i : i + 2] for i in range(0, len(pairs), 2))


def _stretches(text: str, joints: frozenset[str]) -> Iterator[str]:
    """Cuts ``text`` where no merge reaches across: the cuts change no id, and short stretches recur."""
    start = 0
    for i in range(1, len(text)):
        if text[i - 1 : i + 1] not in joints:
            yield text[start:i]
            start = i
    if start < len(text):
        yield text[start:]


def _byte_ids(tokens: Sequence[str], kinds: Sequence[int], *, needed: bool) -> list[int]:
    """Token ids of the 256 bytes; empty where there are none and none are ``needed``."""
    spelled = {f"<0x{byte:02X}>": byte for byte in range(256)}
    found: dict[int, int] = {}
    for i, kind in enumerate(kinds):
        if kind == TokenKind.BYTE:
            if tokens[i] not in spelled:
                raise ModelFileError(f"a byte token must be spelled <0x00> to <0xFF>, got {tokens[i]!r} for token {i}")
            found[spelled[tokens[i]]] = i
    if not found and not needed:
        return []
    missing = [byte for byte in range(256) if byte not in found]
    if missing:
        raise ModelFileError(
            f"the vocabulary needs tokens for all 256 bytes, so that any text can be written; <0x{missing[0]:02X}> is missing"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else "")
        )
    return [found[byte] for byte in range(256)]


def scores_of_gguf(meta: Metadata, size: int) -> Sequence[float]:
    """Raises ModelFileError unless there is one finite score for each token."""
    scores = meta.numbers("tokenizer.ggml.scores")
    if len(scores) != size:
        raise ModelFileError(f"the vocabulary has {size} tokens but {len(scores)} scores")
    finite = np.isfinite(scores)
    if not finite.all():
        token = int(np.argmin(finite))
        raise ModelFileError(f"scores must be finite, got {scores[token]} for token {token}")
    return array("d", scores.astype(np.float64).tobytes())


def normalizer_of_gguf(meta: Metadata, pieces: Pieces) -> Normalizer:
    """Raises ModelFileError."""
    table, key = None, "tokenizer.ggml.precompiled_charsmap"
    if key in meta:
        table = CharacterMap(meta.integers(key).astype(np.uint8).tobytes())
    return Normalizer(table=table, drop_blanks=meta.boolean("tokenizer.ggml.remove_extra_whitespaces", False), kept=pieces.frozen)


def bpe_of_gguf(meta: Metadata, vocabulary: Vocabulary) -> SentencePieceBPE:
    """``tokenizer.ggml.model = "llama"``. Raises ModelFileError."""
    pieces = Pieces(vocabulary, byte_fallback=True)
    return SentencePieceBPE(
        pieces,
        scores_of_gguf(meta, len(vocabulary.tokens)),
        normalizer_of_gguf(meta, pieces),
        space_prefix=meta.boolean("tokenizer.ggml.add_space_prefix", True),
    )
