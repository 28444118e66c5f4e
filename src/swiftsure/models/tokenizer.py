"""Text to token ids and back, with the ids of the model's own tokenizer.

Special tokens are split off here, whatever the kind of vocabulary, because who may write them is a question of trust, not of vocabulary:
text of a user must never turn into a control token unless the caller asks for it. The text between them goes to the vocabulary's
:class:`~swiftsure.models.segmenter.Segmenter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.models import byte_bpe, sentencepiece, unigram
from swiftsure.models.gguf import Metadata
from swiftsure.models.segmenter import Place, Segmenter
from swiftsure.models.token_matcher import TokenMatcher
from swiftsure.models.tokenizer_folder import read_folder
from swiftsure.models.tokenizer_json import JsonSegmenter
from swiftsure.models.vocabulary import TokenKind, Vocabulary, vocabulary_of_gguf


class Tokenizer:
    """Text to ids and back. Safe to share between threads."""

    def __init__(self, vocabulary: Vocabulary, segmenter: Segmenter) -> None:
        self.vocab_size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id  # what the file calls eos
        self.eos_ids = vocabulary.eos_ids  # all that end a generation
        self.add_bos = vocabulary.add_bos
        self.special_ids = frozenset(vocabulary.of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN))
        self._unused = frozenset(vocabulary.of_kind(TokenKind.UNUSED))
        self._tokens = vocabulary.tokens
        self._segmenter = segmenter
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_gguf(cls, meta: Metadata) -> Tokenizer:
        """Raises UnsupportedModelError for a vocabulary of another kind and ModelFileError for a damaged one."""
        kind = meta.text("tokenizer.ggml.model")
        if kind == "gpt2":
            vocabulary = vocabulary_of_gguf(meta, add_bos=byte_bpe.starts_with_bos(meta), typed=False)
            return cls(vocabulary, byte_bpe.bpe_of_gguf(meta, vocabulary))
        if kind == "llama":
            vocabulary = vocabulary_of_gguf(meta, add_bos=True, typed=True)
            return cls(vocabulary, sentencepiece.bpe_of_gguf(meta, vocabulary))
        if kind == "t5":
            vocabulary = vocabulary_of_gguf(meta, add_bos=False, typed=True)
            return cls(vocabulary, unigram.unigram_of_gguf(meta, vocabulary))
        known = "gpt2 (byte-level BPE), llama (SentencePiece BPE), t5 (SentencePiece unigram)"
        raise UnsupportedModelError(f"tokenizer model '{kind}' is not supported; supported: {known}")

    @classmethod
    def from_folder(cls, folder: Path, *, rows: int | None = None) -> Tokenizer:
        """Of a folder with ``tokenizer.json``; ``rows`` of the embedding, where there may be more than tokens.

        Raises UnsupportedModelError for what the files ask for and this build does not know, ModelFileError for damaged ones.
        """
        try:
            file, vocabulary = read_folder(folder, rows)
            return cls(vocabulary, JsonSegmenter(file, vocabulary))
        except (ModelFileError, UnsupportedModelError) as error:
            message = str(error)
            raise type(error)(message if message.startswith(str(folder)) else f"{folder}: {message}") from None

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """What the vocabulary wants before a raw text prompt (a chat template writes its own)."""
        return (self.bos_id,) if self.add_bos and self.bos_id is not None else ()

    def encode(self, text: str, *, special: bool, plain_spans: Sequence[tuple[int, int]] = (), continues: bool = False) -> list[int]:
        """Ids of ``text``, without :attr:`prefix_ids`.

        ``special`` says whether special tokens spelled out in the text become their ids; otherwise they are text like any other.
        ``plain_spans`` are ascending character ranges in which they never do: what a user wrote inside a chat. Merges are not cut at a
        span's edge, so ordinary text has the same ids with and without spans. ``continues``: other text stands before this one, so a
        vocabulary that puts a blank before every text puts none here.

        Bytes that the vocabulary has no token for are dropped or become its unknown token, as the reference tokenizer does it. Raises
        UsageError for a lone surrogate, which is no Unicode text.
        """
        _check_unicode(text)
        ids: list[int] = []
        start, place = 0, Place.CONTINUES if continues else Place.START
        for begin, end, token in (self._all_added if special else self._added).matches(text, plain_spans, self.special_ids):
            ids += self._segmenter.encode(text[start:begin], place)
            ids.append(token)
            start, place = end, Place.AFTER_ADDED
        return ids + self._segmenter.encode(text[start:], place)

    def decode(self, ids: Iterable[int], *, skip_special: bool = True, continues: bool = False) -> str:
        """Text of ``ids``; bytes that form no UTF-8 become U+FFFD. Raises UsageError for an id outside the vocabulary.

        The blank that a vocabulary puts before a text is taken off again, unless the text ``continues`` another: what a model generates
        does, and streams out blank and all.
        """
        pieces: list[bytes] = []
        place: Place | None = Place.CONTINUES if continues else Place.START
        for token in ids:
            piece = self.token_bytes(token)
            if token in self._all_added_ids:
                place = Place.AFTER_ADDED
                if skip_special and token in self.special_ids:
                    continue
            elif place is not None and piece:
                piece = piece.removeprefix(b" ") if place in self._segmenter.prefixed else piece
                place = None
            pieces.append(piece)
        return b"".join(pieces).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes that a token stands for; a character may be spread over several tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            text = self.token_text(token)
            piece = text.encode() if token in self.special_ids else self._segmenter.spell(token)
            self._pieces[int(token)] = piece
        return piece

    def token_text(self, token: int) -> str:
        """The token as the vocabulary spells it: the literal text of a special token."""
        if not 0 <= token < self.vocab_size:
            raise UsageError(f"token id must be between 0 and {self.vocab_size - 1}, got {token}")
        return self._tokens[token]

    def contains_special(self, text: str) -> bool:
        """Whether some special token is spelled out in ``text``."""
        return self._special.occurs_in(text)

    def difference(self, other: Tokenizer) -> str | None:
        """The first id that does not mean the same in both, in words; None where there is none. Ids that no text has are alike."""
        for token in range(min(self.vocab_size, other.vocab_size)):
            if token in self._unused and token in other._unused:
                continue
            special = [token in each.special_ids for each in (self, other)]
            if self.token_bytes(token) != other.token_bytes(token) or special[0] != special[1]:
                return f"token {token} is {self.token_text(token)!r} in one and {other.token_text(token)!r} in the other"
        return None

    @cached_property
    def _all_added_ids(self) -> frozenset[int]:
        return self.special_ids | frozenset(self._segmenter.added.values())

    @property
    def _special_table(self) -> dict[str, int]:
        return {self._tokens[i]: i for i in self.special_ids if self._tokens[i]}

    @cached_property
    def _special(self) -> TokenMatcher:
        return TokenMatcher(self._special_table)

    @cached_property
    def _added(self) -> TokenMatcher:
        return TokenMatcher(self._segmenter.added)

    @cached_property
    def _all_added(self) -> TokenMatcher:
        return TokenMatcher({**self._segmenter.added, **self._special_table})


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"text must be valid Unicode, got U+{ord(text[error.start]):04X}, a lone surrogate, at character {error.start}"
        ) from None
