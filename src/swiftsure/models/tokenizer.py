"""Byte-level BPE from a GGUF vocabulary, with the ids of the model's own tokenizer.

The merges run in the ``tokenizers`` package; special tokens are split off here, because who may write them is a question of trust, not of
vocabulary: text of a user must never turn into a control token unless the caller asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.models.gguf import Metadata
from swiftsure.models.gguf_header import StringArray

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

_CONTROL, _USER_DEFINED = 3, 4  # token types of GGUF that matter here

# Control tokens that end a turn or a document wherever they occur, whichever of them a file happens to name as its eos token.
_END_NAMES = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<end_of_turn>", "</s>", "<EOT>")
)

# Splits of the vocabularies' own tokenizers, as published in their tokenizer.json or conversion scripts.
_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


class Tokenizer:
    """Text to ids and back. Immutable once built; safe to share between threads."""

    def __init__(
        self,
        tokens: StringArray | Sequence[str],
        merges: Sequence[str],
        *,
        pre: str,
        control_ids: Iterable[int],
        user_defined_ids: Iterable[int],
        bos_id: int | None,
        eos_id: int | None,
        end_ids: Iterable[int],
        add_bos: bool,
    ) -> None:
        self.vocab_size = len(tokens)
        self.bos_id = bos_id
        self.eos_id = eos_id  # what the file calls eos
        self.add_bos = add_bos
        self.eos_ids = frozenset(end_ids) | ({eos_id} if eos_id is not None else set())  # all that end a generation
        self.special_ids = frozenset(control_ids)
        self._tokens = list(tokens)
        self._user_defined = frozenset(user_defined_ids)
        for what, ids in (("bos", [bos_id] if bos_id is not None else []), ("end-of-turn", self.eos_ids)):
            for token in ids:
                if not 0 <= token < self.vocab_size:
                    raise ModelFileError(f"the {what} token id {token} is outside the vocabulary of {self.vocab_size}")
        self._engine = _build_engine(self._tokens, merges, pre, self.special_ids | self._user_defined)
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_gguf(cls, meta: Metadata) -> Tokenizer:
        """Raises UnsupportedModelError for a vocabulary of another kind and ModelFileError for a damaged one."""
        kind = meta.text("tokenizer.ggml.model")
        if kind != "gpt2":
            raise UnsupportedModelError(f"tokenizer model '{kind}' is not supported; supported: gpt2 (byte-level BPE)")
        tokens = meta.strings("tokenizer.ggml.tokens").tolist()
        types: list[int] = []
        if "tokenizer.ggml.token_type" in meta:
            types = meta.integers("tokenizer.ggml.token_type").tolist()
            if len(types) != len(tokens):
                raise ModelFileError(f"the vocabulary has {len(tokens)} tokens but {len(types)} token types")
        control = [i for i, kind_id in enumerate(types) if kind_id == _CONTROL]
        named = {name: _optional_id(meta, name) for name in ("bos", "eos", "eot", "eom")}
        end_ids = {named[name] for name in ("eot", "eom")} | {i for i in control if tokens[i] in _END_NAMES}
        pre = meta.text("tokenizer.ggml.pre", "default")
        return cls(
            tokens,
            # GGUF writers leave an empty array out, so no merges are no fault.
            meta.strings("tokenizer.ggml.merges").tolist() if "tokenizer.ggml.merges" in meta else [],
            pre=pre,
            control_ids=control,
            user_defined_ids=[i for i, kind_id in enumerate(types) if kind_id == _USER_DEFINED],
            bos_id=named["bos"],
            eos_id=named["eos"],
            end_ids=[i for i in end_ids if i is not None],
            add_bos=named["bos"] is not None and meta.boolean("tokenizer.ggml.add_bos_token", pre in _STARTS_WITH_BOS),
        )

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        """What the vocabulary wants before a raw text prompt (a chat template writes its own)."""
        return (self.bos_id,) if self.add_bos and self.bos_id is not None else ()

    def encode(self, text: str, *, special: bool, plain_spans: Sequence[tuple[int, int]] = ()) -> list[int]:
        """Ids of ``text``, without :attr:`prefix_ids`.

        ``special`` says whether special tokens spelled out in the text become their ids; otherwise they are text like any other.
        ``plain_spans`` are ascending character ranges in which they never do: what a user wrote inside a chat. Merges are not cut at a
        span's edge, so ordinary text has the same ids with and without spans.

        Bytes that the vocabulary has no token for are dropped, as the reference tokenizer drops them (SmolLM2: eight control characters
        and lead bytes of unassigned planes). Raises UsageError for a lone surrogate, which is no Unicode text.
        """
        _check_unicode(text)
        pattern = self._special_pattern if special else self._user_defined_pattern
        if pattern is None:
            return self._merge(text)
        ids: list[int] = []
        start = 0
        for match in _matches_outside(pattern, text, plain_spans):
            ids += self._merge(text[start : match.start()])
            ids.append(self._special_table[match.group()])
            start = match.end()
        return ids + self._merge(text[start:])

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Text of ``ids``; bytes that form no UTF-8 become U+FFFD. Raises UsageError for an id outside the vocabulary."""
        kept = (i for i in ids if not (skip_special and i in self.special_ids))
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes that a token stands for; a character may be spread over several tokens."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[int(token)] = self._spell(token)
        return piece

    def token_text(self, token: int) -> str:
        """The token as the vocabulary spells it: the literal text of a special token."""
        if not 0 <= token < self.vocab_size:
            raise UsageError(f"token id must be between 0 and {self.vocab_size - 1}, got {token}")
        return self._tokens[token]

    def contains_special(self, text: str) -> bool:
        """Whether some special token is spelled out in ``text``."""
        return self._special_pattern is not None and self._special_pattern.search(text) is not None

    def _spell(self, token: int) -> bytes:
        text = self.token_text(token)
        if token in self.special_ids or token in self._user_defined:
            return text.encode()
        try:
            return bytes([_BYTE_OF[character] for character in text])
        except KeyError:
            return text.encode()  # a token outside the byte alphabet: padding that converters add

    def _merge(self, text: str) -> list[int]:
        return list(self._engine.encode(text, add_special_tokens=False).ids) if text else []

    @cached_property
    def _special_table(self) -> dict[str, int]:
        return {self._tokens[i]: i for i in self.special_ids | self._user_defined if self._tokens[i]}

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        return _alternatives(self._special_table)

    @cached_property
    def _user_defined_pattern(self) -> re.Pattern[str] | None:
        return _alternatives(self._tokens[i] for i in self._user_defined if self._tokens[i])


def _optional_id(meta: Metadata, name: str) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    return meta.integer(key) if key in meta else None


def _alternatives(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Matches the leftmost of ``texts``, the longest one where several start."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _matches_outside(pattern: re.Pattern[str], text: str, spans: Sequence[tuple[int, int]]) -> Iterable[re.Match[str]]:
    """Matches that touch no span, left to right."""
    position, next_span = 0, 0
    while match := pattern.search(text, position):
        while next_span < len(spans) and spans[next_span][1] <= match.start():
            next_span += 1
        if next_span < len(spans) and spans[next_span][0] < match.end() and spans[next_span][0] < spans[next_span][1]:
            position = match.start() + 1
            continue
        yield match
        position = match.end()


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"text must be valid Unicode, got U+{ord(text[error.start]):04X}, a lone surrogate, at character {error.start}"
        ) from None


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: printable Latin-1 for itself, U+0100 onwards for the rest in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


_BYTE_OF = _byte_alphabet()


def _build_engine(tokens: list[str], merges: Sequence[str], pre: str, special: frozenset[int]) -> Engine:
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    split = _PRE_TOKENIZERS.get(pre)
    if split is None:
        raise UnsupportedModelError(f"pre-tokenizer '{pre}' is not supported; supported: {', '.join(sorted(_PRE_TOKENIZERS))}")
    vocabulary = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(vocabulary) != len(tokens):
        twice = next(token for i, token in enumerate(tokens) if vocabulary[token] != i)
        raise ModelFileError(f"the vocabulary holds the token {twice!r} twice")
    for i in special:  # text can reach a special token through encode's split only, never through merges
        del vocabulary[tokens[i]]
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        bad = next(merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2)
        raise ModelFileError(f"a merge must be two tokens with one blank between, got {bad!r}")
    try:
        engine = Engine(models.BPE(vocabulary, pairs, ignore_merges=pre in _WHOLE_WORDS_FIRST))  # type: ignore[arg-type]
    except Exception as error:  # tokenizers raises bare Exception; the pairs come from the file
        raise ModelFileError(f"the merges do not fit the vocabulary: {error}") from None
    engine.pre_tokenizer, normalizer = split()
    if normalizer is not None:
        engine.normalizer = normalizer
    return engine


def _gpt2() -> tuple[PreTokenizer, Normalizer | None]:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False), None


def _digits_apart() -> tuple[PreTokenizer, Normalizer | None]:
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]), None


def _split_by(pattern: str) -> PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _llama3() -> tuple[PreTokenizer, Normalizer | None]:
    return _split_by(_LLAMA3_SPLIT), None


def _qwen2() -> tuple[PreTokenizer, Normalizer | None]:
    from tokenizers import normalizers

    return _split_by(_QWEN2_SPLIT), normalizers.NFC()


_WHOLE_WORDS_FIRST = frozenset(("llama-bpe",))  # a word that is a token is taken whole, whatever the merges say
_STARTS_WITH_BOS = frozenset(("llama-bpe",))  # where a file that does not say means yes
_PRE_TOKENIZERS: dict[str, Callable[[], tuple[PreTokenizer, Normalizer | None]]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _digits_apart,
    "starcoder": _digits_apart,
    "llama-bpe": _llama3,
    "qwen2": _qwen2,
}
