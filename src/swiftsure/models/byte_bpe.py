"""Byte-level BPE from a vocabulary and its merges; the merges run in the ``tokenizers`` package."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.gguf import Metadata
from swiftsure.models.segmenter import Place
from swiftsure.models.tokenizers_library import ids_of
from swiftsure.models.vocabulary import TokenKind, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Engine
    from tokenizers.normalizers import Normalizer
    from tokenizers.pre_tokenizers import PreTokenizer

# Splits of the vocabularies' own tokenizers, as published in their tokenizer.json or conversion scripts.
_LLAMA3_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN_SPLIT = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_SPLIT = _LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")


class ByteLevelBPE:
    """Bytes that the vocabulary has no token for are dropped, as the reference tokenizer drops them (SmolLM2: eight control characters and
    lead bytes of unassigned planes)."""

    prefixed: Collection[Place] = ()

    def __init__(self, vocabulary: Vocabulary, merges: Sequence[str], *, pre: str) -> None:
        """``pre`` names the split before merging. Raises UnsupportedModelError for another one and ModelFileError for merges that do not
        fit."""
        self._vocabulary = vocabulary
        self.added = {vocabulary.tokens[i]: i for i in vocabulary.of_kind(TokenKind.USER_DEFINED) if vocabulary.tokens[i]}
        self._engine = _build_engine(vocabulary, merges, pre)

    def encode(self, text: str, place: Place) -> list[int]:
        return ids_of(self._engine, text) if text else []

    def spell(self, token: int) -> bytes:
        text = self._vocabulary.tokens[token]
        return text.encode() if self._vocabulary.kinds[token] == TokenKind.USER_DEFINED else bytes_of(text)


def bytes_of(text: str) -> bytes:
    """What a token of a byte-level vocabulary stands for; one outside the alphabet, such as padding that converters add, for itself."""
    try:
        return bytes([_BYTE_OF[character] for character in text])
    except KeyError:
        return text.encode()


def bpe_of_gguf(meta: Metadata, vocabulary: Vocabulary) -> ByteLevelBPE:
    """``tokenizer.ggml.model = "gpt2"``. Raises ModelFileError and UnsupportedModelError."""
    return ByteLevelBPE(
        vocabulary,
        # GGUF writers leave an empty array out, so no merges are no fault.
        meta.strings("tokenizer.ggml.merges").tolist() if "tokenizer.ggml.merges" in meta else [],
        pre=pre_tokenizer_name(meta),
    )


def pre_tokenizer_name(meta: Metadata) -> str:
    return meta.text("tokenizer.ggml.pre", "default")


def starts_with_bos(meta: Metadata) -> bool:
    """Whether a file of this kind that does not say means yes."""
    return pre_tokenizer_name(meta) in _STARTS_WITH_BOS


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes: printable Latin-1 for itself, U+0100 onwards for the rest in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


_BYTE_OF = _byte_alphabet()


def _build_engine(vocabulary: Vocabulary, merges: Sequence[str], pre: str) -> Engine:
    from tokenizers import Tokenizer as Engine
    from tokenizers import models

    split = _PRE_TOKENIZERS.get(pre)
    if split is None:
        raise UnsupportedModelError(f"pre-tokenizer '{pre}' is not supported; supported: {', '.join(sorted(_PRE_TOKENIZERS))}")
    numbers = vocabulary.numbered()
    for i in vocabulary.of_kind(TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.USER_DEFINED):
        del numbers[vocabulary.tokens[i]]  # text can reach one of these where the tokenizer looks for it, never through merges
    pairs = [tuple(merge.split(" ")) for merge in merges]
    if any(len(pair) != 2 for pair in pairs):
        bad = next(merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2)
        raise ModelFileError(f"a merge must be two tokens with one blank between, got {bad!r}")
    check_merges(pairs, numbers)
    try:
        engine = Engine(models.BPE(numbers, pairs, ignore_merges=pre in _WHOLE_WORDS_FIRST))  # type: ignore[arg-type]  # every pair has two: checked above
    except Exception as error:  # tokenizers raises bare Exception; the pairs come from the file
        raise ModelFileError(f"the merges do not fit the vocabulary: {error}") from None
    engine.pre_tokenizer, normalizer = split()
    if normalizer is not None:
        engine.normalizer = normalizer
    return engine


def check_merges(pairs: Sequence[Sequence[str]], numbers: Mapping[str, int]) -> None:
    """Raises ModelFileError for a merge of what are no tokens, or into none.

    The library would say so for most of them, but ends in a panic, which no handler of exceptions sees, for a result that is longer than
    any token.
    """
    for left, right in pairs:
        if left not in numbers or right not in numbers or left + right not in numbers:
            bad = next(text for text in (left, right, left + right) if text not in numbers)
            raise ModelFileError(f"the merge of {left!r} and {right!r} does not fit the vocabulary: {bad!r} is no token that merges reach")


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


def _tekken() -> tuple[PreTokenizer, Normalizer | None]:
    return _split_by(_TEKKEN_SPLIT), None


def _qwen2() -> tuple[PreTokenizer, Normalizer | None]:
    from tokenizers import normalizers

    return _split_by(_QWEN2_SPLIT), normalizers.NFC()


_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")
_WHOLE_WORDS_FIRST = frozenset((*_LLAMA3_NAMES, "tekken"))  # a word that is a token is taken whole, whatever the merges say
_STARTS_WITH_BOS = _WHOLE_WORDS_FIRST  # where a file that does not say means yes
_PRE_TOKENIZERS: dict[str, Callable[[], tuple[PreTokenizer, Normalizer | None]]] = {
    "default": _gpt2,
    "gpt-2": _gpt2,
    "smollm": _digits_apart,
    "starcoder": _digits_apart,
    **dict.fromkeys(_LLAMA3_NAMES, _llama3),
    "tekken": _tekken,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
}
