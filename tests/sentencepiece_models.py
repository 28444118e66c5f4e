"""SentencePiece vocabularies for tests: GGUF metadata of them, and the sentencepiece library's own processor as the reference."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from swiftsure.models.gguf import Metadata
from swiftsure.models.gguf_header import StringArray

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
HEAD = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
BYTES = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """(spelling, type, score) by id."""

    rows: Sequence[tuple[str, int, float]]
    unk_id: int = 0
    bos_id: int = 1
    eos_id: int = 2
    model: str = "llama"  # GGUF's name: "t5" for unigram
    space_prefix: bool = False
    remove_extra_whitespaces: bool = False
    charsmap: bytes = b""
    extra: dict[str, Any] = field(default_factory=dict)

    def metadata(self, **changes: Any) -> Metadata:
        """As a GGUF file would have it; a change to None leaves the key out."""
        prefix = "tokenizer.ggml."
        values: dict[str, Any] = {
            "model": self.model,
            "tokens": string_array([piece.replace("\u2581", " ") if kind == USER_DEFINED else piece for piece, kind, _ in self.rows]),
            "token_type": np.array([kind for _, kind, _ in self.rows], np.int32),
            "scores": np.array([score for _, _, score in self.rows], np.float32),
            "bos_token_id": self.bos_id,
            "eos_token_id": self.eos_id,
            "unknown_token_id": self.unk_id,
            "add_space_prefix": self.space_prefix,
            "remove_extra_whitespaces": self.remove_extra_whitespaces,
        }
        if self.charsmap:
            values["precompiled_charsmap"] = np.frombuffer(self.charsmap, np.uint8)
        values |= self.extra | changes
        return Metadata({prefix + key: value for key, value in values.items() if value is not None})

    def reference(self) -> Any:
        """The sentencepiece library's processor of the same pieces; skips where the library is absent."""
        library = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
        schema = pytest.importorskip("sentencepiece.sentencepiece_model_pb2", reason="protobuf is not installed")
        proto = schema.ModelProto()
        for i, (piece, kind, score) in enumerate(self.rows):
            proto.pieces.add(piece=piece, type=UNKNOWN if i == self.unk_id else kind, score=score)
        proto.trainer_spec.model_type = {"t5": 1, "llama": 2}[self.model]
        proto.trainer_spec.byte_fallback = any(kind == BYTE for _, kind, _ in self.rows)
        for name, i in (("unk", self.unk_id), ("bos", self.bos_id), ("eos", self.eos_id), ("pad", -1)):
            setattr(proto.trainer_spec, f"{name}_id", i)
        proto.normalizer_spec.add_dummy_prefix = self.space_prefix
        proto.normalizer_spec.remove_extra_whitespaces = self.remove_extra_whitespaces
        proto.normalizer_spec.escape_whitespaces = True
        proto.normalizer_spec.precompiled_charsmap = self.charsmap
        return library.SentencePieceProcessor(model_proto=proto.SerializeToString())


def string_array(strings: Sequence[str]) -> StringArray:
    """As the header's parser makes one."""
    raw, spans = bytearray(), array("Q")
    for text in strings:
        encoded = text.encode()
        raw += struct.pack("<Q", len(encoded))
        spans.extend((len(raw), len(raw) + len(encoded)))
        raw += encoded
    return StringArray("tokenizer.ggml.tokens", bytes(raw), spans)


def trained(text: str, size: int, *, model: str, space_prefix: bool, user_defined: Sequence[str] = (), rule: str = "identity") -> Pieces:
    """A vocabulary that the library trains on ``text``; skips where the library is absent."""
    import io

    library = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    schema = pytest.importorskip("sentencepiece.sentencepiece_model_pb2", reason="protobuf is not installed")
    written = io.BytesIO()
    settings = {
        "model_type": {"t5": "unigram", "llama": "bpe"}[model],
        "vocab_size": size,
        "hard_vocab_limit": False,
        "byte_fallback": True,
        "normalization_rule_name": rule,
        "add_dummy_prefix": space_prefix,
        "remove_extra_whitespaces": rule != "identity",
        "split_by_whitespace": False,
        "user_defined_symbols": list(user_defined),
        "minloglevel": 2,
    }
    library.SentencePieceTrainer.train(sentence_iterator=iter(text.splitlines()), model_writer=written, **settings)
    proto = schema.ModelProto.FromString(written.getvalue())
    return Pieces(
        rows=[(piece.piece, piece.type, piece.score) for piece in proto.pieces],
        model=model,
        space_prefix=space_prefix,
        remove_extra_whitespaces=proto.normalizer_spec.remove_extra_whitespaces,
        charsmap=proto.normalizer_spec.precompiled_charsmap,
    )
