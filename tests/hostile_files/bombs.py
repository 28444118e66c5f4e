"""Files of some 10 to 60 MB that would take many times as much memory, each with a word of the sentence that it must be refused with."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from gguf_bytes import ARRAY, BOOL, STRING, U32, pair, text, u32, u64
from hostile_files.gguf_parts import string_array
from hostile_files.inputs import sound_parts
from hostile_files.lies import scalar_of

_MANY = 1_000_000


def _header(pairs: list[bytes], *, pair_count: int | None = None, tensors: bytes = b"", tensor_count: int = 0) -> bytes:
    return b"GGUF" + u32(3) + u64(tensor_count) + u64(len(pairs) if pair_count is None else pair_count) + b"".join(pairs) + tensors


def many_keys() -> bytes:
    return _header([struct.pack("<Q7sIB", 7, b"%07x" % i, 0, 1) for i in range(_MANY)])


def many_small_arrays() -> bytes:
    return _header([struct.pack("<Q7sIIQ", 7, b"%07x" % i, ARRAY, 0, 0) for i in range(_MANY // 2)])


def many_nested_arrays() -> bytes:
    return _header([pair("bomb", ARRAY, u32(ARRAY) + u64(_MANY) + (u32(U32) + u64(0)) * _MANY)])


def many_empty_strings() -> bytes:
    return _header([pair(f"bomb{i}", ARRAY, u32(STRING) + u64(_MANY) + bytes(8 * _MANY)) for i in range(3)])


def one_wide_character() -> bytes:
    return _header([pair("bomb", STRING, text(b"a" * 50_000_000 + "👩".encode()))])


def many_wide_keys() -> bytes:
    return _header([pair(b"%05d" % i + b"a" * 60_000 + "👩".encode(), U32, u32(0)) for i in range(500)])


def many_booleans() -> bytes:
    """The last is none."""
    return _header([pair("bomb", ARRAY, u32(BOOL) + u64(60_000_000) + bytes(59_999_999) + b"\x02")])


def many_tensors() -> bytes:
    lines = [struct.pack("<Q7sIQIQ", 7, b"%07x" % i, 1, 1, 24, 32 * i) for i in range(_MANY // 2)]
    return _header([], tensors=b"".join(lines), tensor_count=len(lines))


def _vocabulary(size: int, **changes: tuple[int, bytes]) -> bytes:
    """A model with as many tokens, and an embedding to match."""
    parts = sound_parts("q4_1")
    tokens = [b"%x" % i for i in range(size)]
    parts.replace("tokenizer.ggml.tokens", ARRAY, string_array(tokens))
    parts.replace("tokenizer.ggml.token_type", ARRAY, u32(5) + u64(size) + u32(1) * size)
    parts.replace("llama.vocab_size", U32, scalar_of(U32, size))
    line = parts.tensors[0]
    line.dims, line.offset = [32, size], -(-len(parts.data) // 32) * 32
    parts.data += bytes(-len(parts.data) % 32 + 20 * size)
    for key, (kind, value) in changes.items():
        parts.replace(f"tokenizer.ggml.{key}", kind, value)
    return parts.build()


def vocabulary_beyond_the_embedding() -> bytes:
    parts = sound_parts("q4_1")
    parts.replace("tokenizer.ggml.tokens", ARRAY, string_array([b"%x" % i for i in range(_MANY // 2)]))
    return parts.build()


_REAL = 262_144  # as many tokens as the largest vocabularies have

BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "1,000,000 keys": (many_keys, "bytes of memory"),
    "500,000 arrays of nothing": (many_small_arrays, "bytes of memory"),
    "1,000,000 arrays of nothing in an array": (many_nested_arrays, "bytes of memory"),
    "3,000,000 empty strings": (many_empty_strings, "bytes of memory"),
    "50 MB of ASCII and one wide character": (one_wide_character, "bytes of memory"),
    "500 wide keys": (many_wide_keys, "bytes of memory"),
    "60,000,000 booleans, the last a 2": (many_booleans, "a boolean must be 0 or 1"),
    "500,000 tensors": (many_tensors, "bytes of memory"),
    "500,000 tokens for 280 rows": (vocabulary_beyond_the_embedding, "500000 tokens, but the embedding 280 rows"),
    "a large vocabulary with a bad merge at its end": (
        partial(_vocabulary, _REAL, merges=(ARRAY, string_array([b"1 %x" % i for i in range(0x10000)] + [b"x y"]))),
        "the merge of 'x' and 'y'",
    ),
    "a large vocabulary of another pre-tokenizer": (partial(_vocabulary, _REAL, pre=(STRING, text("never-seen"))), "'never-seen'"),
    "a large vocabulary with an end beyond it": (partial(_vocabulary, _REAL, eos_token_id=(U32, u32(_REAL))), "is outside the vocabulary"),
}
