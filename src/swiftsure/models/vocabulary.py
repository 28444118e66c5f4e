"""The tokens of a model: spellings, kinds, and which of them begin and end a text. Checked once, whatever file they come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from swiftsure.errors import ModelFileError
from swiftsure.models.gguf import Metadata

# Control tokens that end a turn or a document wherever they occur, whichever of them a file happens to name as its eos token.
_END_NAMES = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|eot|>", "<end_of_turn>", "</s>", "<EOT>")
)


class TokenKind(IntEnum):
    """SentencePiece's types of pieces, which GGUF uses for all vocabularies."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4  # matched in text before anything is merged
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    tokens: Sequence[str]  # by id
    kinds: Sequence[int]  # TokenKind of each
    bos_id: int | None
    eos_id: int | None  # what the file calls eos
    eos_ids: frozenset[int]  # all that end a generation
    add_bos: bool  # whether a raw prompt begins with bos

    def __post_init__(self) -> None:
        """Raises ModelFileError for kinds or ids that do not fit the tokens."""
        size = len(self.tokens)
        if not size:
            raise ModelFileError("the vocabulary has no tokens")
        if len(self.kinds) != size:
            raise ModelFileError(f"the vocabulary has {size} tokens but {len(self.kinds)} token types")
        if not min(self.kinds) >= 1 or not max(self.kinds) <= len(TokenKind):
            token, kind = next((i, kind) for i, kind in enumerate(self.kinds) if not 1 <= kind <= len(TokenKind))
            raise ModelFileError(f"token types must be between 1 and {len(TokenKind)}, got {kind} for token {token}")
        for what, ids in (("bos", [self.bos_id]), ("end-of-turn", sorted(self.eos_ids))):
            for token_id in ids:
                if token_id is not None and not 0 <= token_id < size:
                    raise ModelFileError(f"the {what} token id {token_id} is outside the vocabulary of {size}")

    def of_kind(self, *kinds: TokenKind) -> list[int]:
        found: list[int] = np.flatnonzero(np.isin(np.asarray(self.kinds), kinds)).tolist()
        return found

    def numbered(self) -> dict[str, int]:
        """Spelling to id. Raises ModelFileError for a token that is there twice."""
        numbers = dict(zip(self.tokens, range(len(self.tokens)), strict=True))
        if len(numbers) != len(self.tokens):
            twice = next(token for i, token in enumerate(self.tokens) if numbers[token] != i)
            raise ModelFileError(f"the vocabulary holds the token {twice!r} twice")
        return numbers


def ends_by_name(tokens: Sequence[str], control_ids: Iterable[int]) -> set[int]:
    """Control tokens whose spelling says that they end a turn or a document."""
    return {i for i in control_ids if tokens[i] in _END_NAMES}


def vocabulary_of_gguf(meta: Metadata, *, add_bos: bool, typed: bool) -> Vocabulary:
    """``add_bos`` is what a file that does not say means; ``typed``, whether the kind of vocabulary has no meaning without token types.

    ``tokenizer.ggml.add_eos_token`` is for texts that end; a prompt is to be continued, so it has no effect here.

    Raises ModelFileError.
    """
    tokens = meta.strings("tokenizer.ggml.tokens").tolist()
    kinds = [int(TokenKind.NORMAL)] * len(tokens)
    if typed or "tokenizer.ggml.token_type" in meta:
        kinds = meta.integers("tokenizer.ggml.token_type").tolist()
    named = {name: _optional_id(meta, name) for name in ("bos", "eos", "eot", "eom")}
    ends = [named[name] for name in ("eos", "eot", "eom")]
    control = [i for i, kind in enumerate(kinds[: len(tokens)]) if kind == TokenKind.CONTROL]
    return Vocabulary(
        tokens=tokens,
        kinds=kinds,
        bos_id=named["bos"],
        eos_id=named["eos"],
        eos_ids=frozenset(i for i in ends if i is not None) | ends_by_name(tokens, control),
        add_bos=named["bos"] is not None and meta.boolean("tokenizer.ggml.add_bos_token", add_bos),
    )


def _optional_id(meta: Metadata, name: str) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    return meta.integer(key) if key in meta else None
