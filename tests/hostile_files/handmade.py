"""Files made by hand, each with the one sentence that it must be refused with. ``FILE`` stands for its path."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from gguf_bytes import ARRAY, BOOL, F32, STRING, U32, text, u32, u64
from hostile_files.gguf_parts import Parts, TensorLine, string_array, strings_of
from hostile_files.inputs import sound_parts
from hostile_files.lies import scalar_of

_I32, _U64, _F64 = 5, 10, 12
_TOKENS, _MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
Change = Callable[[Parts], None]


def _set(key: str, kind: int, value: bytes) -> Change:
    return lambda parts: parts.replace(key, kind, value)


def _number(key: str, kind: int, value: float) -> Change:
    return _set(key, kind, scalar_of(kind, value))


def _line(which: str, **changes: object) -> Change:
    def change(parts: Parts) -> None:
        line = next(line for line in parts.tensors if line.name == which.encode())
        for field, value in changes.items():
            setattr(line, field, value)

    return change


def _strings(key: str, edit: Callable[[list[bytes]], None]) -> Change:
    def change(parts: Parts) -> None:
        values = strings_of(parts.pair(key))
        edit(values)
        parts.replace(key, ARRAY, string_array(values))

    return change


def _field(**changes: object) -> Change:
    def change(parts: Parts) -> None:
        for field, value in changes.items():
            setattr(parts, field, value)

    return change


def _drop_pair(key: str) -> Change:
    return lambda parts: parts.pairs.remove(parts.pair(key))  # type: ignore[arg-type]  # a pair of list and key is one of them


def _both(one: Change, other: Change) -> Change:
    def change(parts: Parts) -> None:
        one(parts)
        other(parts)

    return change


def _twice(parts: Parts) -> None:
    parts.pairs.append(parts.pairs[0])


def _tensor_twice(parts: Parts) -> None:
    parts.tensors.append(parts.tensors[0])


def _drop_tensor(parts: Parts) -> None:
    parts.tensors = [line for line in parts.tensors if line.name != b"blk.0.ffn_up.weight"]


def _extra_tensor(name: bytes) -> Change:
    def change(parts: Parts) -> None:
        parts.tensors.append(TensorLine(name, [8], 0, len(parts.data)))
        parts.data += bytes(32)

    return change


def _set_item(index: int, value: bytes) -> Callable[[list[bytes]], None]:
    return lambda values: values.__setitem__(index, value)


@lru_cache
def sentences() -> dict[str, str]:
    """Name of a case -> its sentence."""
    found: dict[str, str] = json.loads((Path(__file__).parent / "sentences.json").read_text())
    return found


_LLAMA = "llama."
CASES: dict[str, Change] = {
    "the magic of another format": _field(magic=b"GGML"),
    "version 1": _field(version=1),
    "version 2^32 - 1": _field(version=2**32 - 1),
    "big-endian": _field(version=3 << 24),
    "2^64 - 1 metadata entries": _field(pair_count=2**64 - 1),
    "2^60 metadata entries, which times 16 wraps to none": _field(pair_count=2**60),
    "2^61 tensors": _field(tensor_count=2**61),
    "one metadata entry too few": _field(pair_count=5),
    "one tensor too many": _field(tensor_count=12),
    "a key twice": _twice,
    "a key that is not UTF-8": _set("general.name", 4, u32(0)),  # replaced below
    "a header bomb: an array of 2^60 strings": _set("bomb", ARRAY, u32(STRING) + u64(2**60)),
    "a header bomb: an array of 2^61 numbers of 8 bytes, whose size wraps to none": _set("bomb", ARRAY, u32(_U64) + u64(2**61)),
    "a header bomb: 2^40 arrays": _set("bomb", ARRAY, u32(ARRAY) + u64(2**40)),
    "arrays 3,000 deep": _set("bomb", ARRAY, (u32(ARRAY) + u64(1)) * 3000),
    "a string of 2^63 bytes": _set("general.name", STRING, u64(2**63) + b"x"),
    "a string that is not UTF-8": _set("general.name", STRING, text(b"caf\xe9")),
    "a boolean of 2": _set("tokenizer.ggml.add_bos_token", BOOL, b"\x02"),
    "a value type of the future": _set("general.name", 13, u32(0)),
    "alignment 0": _number("general.alignment", U32, 0),
    "alignment 3": _number("general.alignment", U32, 3),
    "alignment 2^31": _number("general.alignment", U32, 2**31),
    "alignment as text": _set("general.alignment", STRING, text("32")),
    "a tensor twice": _tensor_twice,
    "a tensor type of the future": _line("output_norm.weight", kind=4000),
    "a removed tensor type": _line("output_norm.weight", kind=4),
    "no dimensions": _line("output_norm.weight", dims=[]),
    "2^31 dimensions": _line("output_norm.weight", dim_count=2**31),
    "a dimension of 0": _line("output_norm.weight", dims=[0]),
    "a shape whose product wraps at 2^64": _line("output_norm.weight", dims=[2**32, 2**32]),
    "a shape whose product is right modulo 2^64": _line("output_norm.weight", dims=[2**63 + 32]),
    "a shape whose product is right modulo 2^32": _line("output_norm.weight", dims=[2**32 + 32]),
    "rows that are no whole blocks": _line("blk.0.attn_q.weight", dims=[33, 32]),
    "an offset outside the file": _line("output_norm.weight", offset=2**40),
    "an offset that wraps": _line("output_norm.weight", offset=2**64 - 32),
    "an offset that is not aligned": _line("output_norm.weight", offset=33),
    "tensors that overlap": _line("output_norm.weight", offset=0),
    "a name that is a terminal's escape sequence": _line("output_norm.weight", name=b"\x1b[2J\nACTIVE mode=exact", dims=[7, 0]),
    "a tensor left out": _drop_tensor,
    "a bias": _extra_tensor(b"blk.0.attn_q.bias"),
    "experts": _extra_tensor(b"blk.0.ffn_gate_exps.weight"),
    "a layer beyond the last": _extra_tensor(b"blk.4294967296.attn_q.weight"),
    "no architecture": _drop_pair("general.architecture"),
    "an architecture of the future": _set("general.architecture", STRING, text("llama9")),
    "an architecture as a number": _number("general.architecture", U32, 1),
    "one part of many": _number("split.count", U32, 3),
    "0 layers": _number(_LLAMA + "block_count", U32, 0),
    "2^31 layers": _number(_LLAMA + "block_count", U32, 2**31),
    "one layer more than there is": _number(_LLAMA + "block_count", U32, 2),
    "0 heads": _number(_LLAMA + "attention.head_count", U32, 0),
    "-1 heads": _number(_LLAMA + "attention.head_count", _I32, -1),
    "3 heads on 2 key-value heads": _number(_LLAMA + "attention.head_count_kv", U32, 3),
    "heads of a width that is odd": _both(
        _number(_LLAMA + "attention.key_length", U32, 15), _number(_LLAMA + "attention.value_length", U32, 15)
    ),
    "more rotary dimensions than there are": _number(_LLAMA + "rope.dimension_count", U32, 18),
    "an odd number of rotary dimensions": _number(_LLAMA + "rope.dimension_count", U32, 15),
    "a rotary base that is no number": _number(_LLAMA + "rope.freq_base", F32, float("nan")),
    "a rotary base of 0": _number(_LLAMA + "rope.freq_base", F32, 0.0),
    "an epsilon that is no number": _number(_LLAMA + "attention.layer_norm_rms_epsilon", F32, float("nan")),
    "a negative epsilon": _number(_LLAMA + "attention.layer_norm_rms_epsilon", F32, -1e-5),
    "an epsilon of text": _set(_LLAMA + "attention.layer_norm_rms_epsilon", STRING, text("1e-5")),
    "a context of 0": _number(_LLAMA + "context_length", U32, 0),
    "a context of 2^32 - 1": _number(_LLAMA + "context_length", U32, 2**32 - 1),
    "a context of -1 as 64 bits": _number(_LLAMA + "context_length", _U64, 2**64 - 1),
    "a width that the tensors do not have": _number(_LLAMA + "embedding_length", U32, 64),
    "a vocabulary size that the embedding does not have": _number(_LLAMA + "vocab_size", U32, 281),
    "a setting that nobody computes": _number(_LLAMA + "attention.unheard_of", F32, 2.0),
    "another tokenizer": _set("tokenizer.ggml.model", STRING, text("bert")),
    "another pre-tokenizer": _set("tokenizer.ggml.pre", STRING, text("never-seen")),
    "a token twice": _strings(_TOKENS, _set_item(9, b"a")),
    "a token that is not UTF-8": _strings(_TOKENS, _set_item(9, b"\xff")),
    "a token too few": _strings(_TOKENS, lambda values: values.pop()),
    "no tokens": _drop_pair(_TOKENS),
    "tokens as numbers": _set(_TOKENS, ARRAY, u32(U32) + u64(280) + u32(0) * 280),
    "token types for half the tokens": _set("tokenizer.ggml.token_type", ARRAY, u32(_I32) + u64(140) + u32(1) * 140),
    "token types as floats": _set("tokenizer.ggml.token_type", ARRAY, u32(F32) + u64(280) + u32(1) * 280),
    "a merge of one word": _strings(_MERGES, _set_item(0, b"ab")),
    "a merge of tokens that there are not": _strings(_MERGES, _set_item(0, "鍵 x".encode())),
    "a merge whose result is no token": _strings(_MERGES, _set_item(0, b"z q")),
    "an end token outside the vocabulary": _number("tokenizer.ggml.eos_token_id", U32, 280),
    "an end token of -1": _number("tokenizer.ggml.eos_token_id", _I32, -1),
    "a begin token of 2^64 - 1": _number("tokenizer.ggml.bos_token_id", _U64, 2**64 - 1),
    "a chat template that does not parse": _set("tokenizer.chat_template", STRING, text("{% for m in messages %}")),
    "a chat template that raises": _set("tokenizer.chat_template", STRING, text("{{ raise_exception('only users\\nmay speak') }}")),
    "a chat template that never ends": _set("tokenizer.chat_template", STRING, text("{{ 9 ** (9 ** 9) }}")),
    "a chat template with a number of 5,000 digits": _set("tokenizer.chat_template", STRING, text("{{ " + "9" * 5000 + " }}")),
    "gemma3: a width of -1": _number("gemma3.embedding_length", _I32, -1),
    "gemma3: a width of 0 and the layers of the size that scales by it": _both(
        _number("gemma3.embedding_length", U32, 0), _number("gemma3.block_count", U32, 62)
    ),
    "a chat template that reaches for the system": _set("tokenizer.chat_template", STRING, text("{{ ''.__class__.__mro__ }}")),
}


def _bad_key(parts: Parts) -> None:
    parts.pairs[2].key = b"gener\xe4l"


CASES["a key that is not UTF-8"] = _bad_key


def file_of(case: str) -> bytes:
    parts = sound_parts("gemma3" if case.startswith("gemma3") else "q4_1")
    CASES[case](parts)
    return parts.build()
