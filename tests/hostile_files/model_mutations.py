"""Mutations of what a sound GGUF file says of its model: shapes, rotary settings, vocabulary, special tokens, chat template."""

from __future__ import annotations

import random

from gguf_bytes import ARRAY, BOOL, F32, STRING, U32, text, u32, u64
from hostile_files import lies
from hostile_files.gguf_mutations import Mutation
from hostile_files.gguf_parts import Parts, string_array, strings_of

_I32 = 5
_ARCHITECTURES = (
    "llama",
    "qwen2",
    "qwen3",
    "gemma3",
    "mistral",
    "llama4",
    "mamba",
    "bert",
    "",
    "LLAMA",
    "swiftsure-draft-head",
    "a\x1b[2Jb",
)


def _shape_keys(parts: Parts) -> list[str]:
    """Keys that the architecture reads, as the file has them."""
    pair = parts.pair("general.architecture")
    name = pair.value[8:].decode(errors="replace") if pair is not None else "llama"
    return [key for key in (pair.key.decode(errors="replace") for pair in parts.pairs) if key.startswith(f"{name}.")]


def shape_number(parts: Parts, rng: random.Random) -> None:
    """Heads of 0, odd head widths, 2**31 layers, negative counts as unsigned, an epsilon that is no number."""
    keys = _shape_keys(parts)
    if not keys:
        return
    pair = parts.pair(rng.choice(keys))
    assert pair is not None
    kind = pair.kind if pair.kind in (U32, F32) and rng.random() < 0.8 else rng.choice((0, 1, 3, 4, 5, 6, 10, 11, 12))
    if kind == U32 and rng.random() < 0.4:
        old = int.from_bytes(pair.value[:4], "little")
        pair.value = u32(max(0, rng.choice((old - 1, old + 1, old * 2, old // 2, old ^ 1, 4097, 2**20 + 1))) % 2**32)
        return
    pair.kind, pair.value = kind, lies.scalar(kind, rng)


def shape_key(parts: Parts, rng: random.Random) -> None:
    """A setting that the file did not have; ignoring it would run another model."""
    prefix = (_shape_keys(parts) or ["llama.x"])[0].split(".")[0]
    name = rng.choice(
        (
            "expert_count",
            "rope.scaling.type",
            "rope.scaling.factor",
            "rope.scale_linear",
            "attention.sliding_window",
            "attention.causal",
            "rope.scaling.original_context_length",
            "attention.value_length",
            "attention.key_length",
            "attention.layer_indices",
            "logit_scale",
            "attn_logit_softcapping",
            "final_logit_softcapping",
            "rope.dimension_sections",
            "rope.freq_base_swa",
            "attention.scale",
            "pooling_type",
        )
    )
    kind, value = lies.any_scalar(rng)
    if rng.random() < 0.3:
        kind, value = STRING, text(rng.choice((b"none", b"linear", b"yarn", b"llama3", b"longrope", *lies.STRINGS)))
    parts.replace(f"{prefix}.{name}", kind, value)


def architecture(parts: Parts, rng: random.Random) -> None:
    parts.replace("general.architecture", STRING, text(rng.choice(_ARCHITECTURES)))


def general(parts: Parts, rng: random.Random) -> None:
    """What is only shown, or says what the file is."""
    name = rng.choice(
        (
            "general.name",
            "general.license",
            "general.file_type",
            "split.count",
            "split.no",
            "general.quantization_version",
            "general.sampling.temp",
        )
    )
    kind, value = rng.choice((lies.any_scalar(rng), (STRING, text(rng.choice(lies.STRINGS))), (ARRAY, string_array([b"a", b"b"]))))
    parts.replace(name, kind, value)


def tokens(parts: Parts, rng: random.Random) -> None:
    pair = parts.pair("tokenizer.ggml.tokens")
    values = strings_of(pair)
    if pair is None or not values:
        return
    how = rng.randrange(6)
    at = rng.randrange(len(values))
    if how == 0:
        values[at] = rng.choice((*lies.STRINGS, rng.choice(values)))
    elif how == 1:
        values = values[: rng.choice((0, 1, at, len(values) - 1))]
    elif how == 2:
        values += [b"more%d" % i for i in range(rng.choice((1, 1000)))]
    elif how == 3:
        rng.shuffle(values)
    elif how == 4:
        values = [rng.choice(lies.STRINGS) for _ in values]
    else:
        values[at] = b"\xf0\x9f" + values[at]
    pair.value = string_array(values)


def token_types(parts: Parts, rng: random.Random) -> None:
    """Lengths, values, a number type of another width, and everything or nothing a control token."""
    count = len(strings_of(parts.pair("tokenizer.ggml.tokens")))
    length = rng.choice((count, count, count, 0, 1, max(count, 1) - 1, count + 1))
    kind = rng.choice((_I32, _I32, U32, 0, 1, 6, 10, 11, BOOL))
    if rng.random() < 0.5:
        one = lies.scalar(kind, rng) if kind != BOOL else b"\x01"
        payload = one * length
    else:
        payload = b"".join(lies.scalar(kind, rng) if kind != BOOL else b"\x00" for _ in range(length))
    parts.replace("tokenizer.ggml.token_type", ARRAY, u32(kind) + u64(length) + payload)


def merges(parts: Parts, rng: random.Random) -> None:
    values = strings_of(parts.pair("tokenizer.ggml.merges"))
    odd = (b"", b" ", b"a", b"a b c", b"no such", b"a  b", b"\xff \xff", b"zz yy", "Ġ t".encode(), b"x" * 3000 + b" y", b"\x1b[0m a")
    for _ in range(rng.choice((1, 1, 3, 500))):
        values.insert(rng.randrange(len(values) + 1), rng.choice((*odd, *values[:3])))
    if rng.random() < 0.2:
        rng.shuffle(values)
    parts.replace("tokenizer.ggml.merges", ARRAY, string_array(values))


def special_ids(parts: Parts, rng: random.Random) -> None:
    name = rng.choice(("bos", "eos", "eot", "eom", "unknown", "padding", "separator"))
    kind = rng.choice((U32, _I32, 10, 11, F32, BOOL, STRING))
    value = text("2") if kind == STRING else rng.choice((lies.scalar(kind, rng), u32(5) * 2 if kind in (10, 11) else u32(5)))
    parts.replace(f"tokenizer.ggml.{name}_token_id", kind, value[:1] if kind == BOOL else value)


def tokenizer_setting(parts: Parts, rng: random.Random) -> None:
    name = rng.choice(
        ("model", "pre", "add_bos_token", "add_eos_token", "add_space_prefix", "scores", "precompiled_charsmap", "remove_extra_whitespaces")
    )
    kind, value = rng.choice(
        (lies.any_scalar(rng), (STRING, text(rng.choice(lies.STRINGS))), (BOOL, b"\x01"), (ARRAY, string_array([b"a"])))
    )
    if name in ("scores", "precompiled_charsmap") and rng.random() < 0.7:
        inner = rng.choice((F32, 0))
        count = rng.choice((0, 1, 10, 300, 4000))
        kind, value = ARRAY, u32(inner) + u64(count) + b"".join(lies.scalar(inner, rng) for _ in range(count))
    parts.replace(f"tokenizer.ggml.{name}", kind, value)


def template(parts: Parts, rng: random.Random) -> None:
    if rng.random() < 0.03:
        value: bytes = rng.choice(lies.ENDLESS_TEMPLATES).encode()
    elif rng.random() < 0.5:
        value = rng.choice(lies.TEMPLATES).encode()
    else:
        pair = parts.pair("tokenizer.chat_template")
        old = bytearray(pair.value[8:] if pair is not None and pair.kind == STRING else b"") or bytearray(b"{{ messages }}")
        for _ in range(rng.choice((1, 2, 6))):
            old[rng.randrange(len(old))] = rng.choice(b"{}%'\"|.[]( \n\xff")
        value = bytes(old)
    parts.replace("tokenizer.chat_template", STRING, text(value))


MODEL: tuple[Mutation, ...] = (
    *(shape_number, shape_number, shape_number, shape_key, architecture, general, tokens, token_types, merges, special_ids),
    *(tokenizer_setting, template),
)
