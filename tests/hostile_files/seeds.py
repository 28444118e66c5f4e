"""The sound models that inputs are made from: every architecture and kind of vocabulary, as small as they can be."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gguf_bytes import ARRAY, BOOL, STRING, U32, text, u32, u64
from hf_folders import tiny_folder, whole_tiny_folder
from hostile_files.folder_parts import FolderParts, take_folder_apart
from hostile_files.gguf_parts import Parts, string_array, take_apart
from tiny_models import TinyModel, TinySpec, spec_of_architecture
from tiny_vocabulary import CHAT_TEMPLATE

_SMALL: dict[str, Any] = {"layers": 1, "heads": 2, "kv_heads": 1, "hidden": 32, "intermediate": 32, "vocab": 280, "context": 64}
_WIDE: dict[str, Any] = {**_SMALL, "hidden": 256, "head_dim": 128, "intermediate": 256, "vocab": 96}
_MIXED: dict[str, Any] = {"types": {"attn_k": "Q8_0", "attn_v": "BF16", "ffn_up": "F32", "head": "Q4_0"}, "tied": False}

GGUF: dict[str, TinySpec] = {
    "q4_1": TinySpec(**_SMALL, type="Q4_1"),
    "mixed": TinySpec(**_SMALL | {"layers": 2}, **_MIXED),
    "f16": TinySpec(**_SMALL | {"hidden": 40, "intermediate": 24}, type="F16"),
    "q5": TinySpec(**_SMALL, type="Q5_0", types={"ffn_down": "Q5_1"}),
    "super-blocks": TinySpec(**_WIDE, type="Q4_K", types={"ffn_down": "Q6_K", "attn_v": "Q5_K"}),
    "llama3": TinySpec(**_SMALL, scaling="llama3"),
    "mistral": TinySpec(**_SMALL, window=24),
    "qwen2": spec_of_architecture("qwen2", **_SMALL),
    "qwen3": spec_of_architecture("qwen3", **_SMALL, scaling="linear"),
    "gemma3": spec_of_architecture("gemma3", **_SMALL | {"layers": 2, "window": 24}, global_every=2),
    "sentencepiece": TinySpec(**_SMALL),
    "unigram": TinySpec(**_SMALL),
}
FOLDERS: dict[str, TinySpec] = {
    "llama": TinySpec(**_SMALL | {"layers": 2}, scaling="llama3", tied=False),
    "mistral": TinySpec(**_SMALL, window=24),
    "qwen2": spec_of_architecture("qwen2", **_SMALL),
    "qwen3": spec_of_architecture("qwen3", **_SMALL),
    "gemma3": spec_of_architecture("gemma3", **_SMALL | {"layers": 2, "window": 24}, global_every=2),
    "unigram": TinySpec(**_SMALL, scaling="linear"),
}
_SHARDS = {"llama": 3, "gemma3": 2}

# A SentencePiece vocabulary of 280: three of control, the bytes, and pieces that build " the", "th" and single letters.
_CONTROL = ("<unk>", "<s>", "</s>")
_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_LETTERS = ("\u2581", *"ethanisorl", "ß", "é")
_JOINED = ("th", "the", "\u2581t", "\u2581the", "an", "is", "\u2581an", "ö")
_PIECES = (*_CONTROL, *_BYTES, *_LETTERS, *_JOINED)
_SCORES = [0.0] * 259 + [-float(i) for i in range(len(_LETTERS) + len(_JOINED))]
_UNKNOWN, _KIND_CONTROL, _BYTE, _NORMAL = 2, 3, 6, 1
_KINDS = [_UNKNOWN, _KIND_CONTROL, _KIND_CONTROL, *[_BYTE] * 256, *[_NORMAL] * (len(_PIECES) - 259)]


@lru_cache
def gguf_seeds() -> dict[str, Parts]:
    with tempfile.TemporaryDirectory() as folder:
        seeds = {name: take_apart(TinyModel(spec).write_gguf(Path(folder) / "sound.gguf").read_bytes()) for name, spec in GGUF.items()}
    _set_pieces(seeds["sentencepiece"], "llama")
    _set_pieces(seeds["unigram"], "t5")
    charsmap = _character_map()
    seeds["unigram"].replace("tokenizer.ggml.precompiled_charsmap", ARRAY, u32(0) + u64(len(charsmap)) + charsmap)
    return seeds


def _set_pieces(parts: Parts, model: str) -> None:
    prefix = "tokenizer.ggml."
    parts.pairs = [pair for pair in parts.pairs if pair.key not in (b"tokenizer.ggml.merges", b"tokenizer.ggml.pre")]
    count = u64(len(_PIECES))
    parts.replace(prefix + "model", STRING, text(model))
    parts.replace(prefix + "tokens", ARRAY, string_array([piece.encode() for piece in _PIECES]))
    parts.replace(prefix + "token_type", ARRAY, u32(5) + count + np.array(_KINDS, "<i4").tobytes())
    parts.replace(prefix + "scores", ARRAY, u32(6) + count + np.array(_SCORES, "<f4").tobytes())
    parts.replace(prefix + "add_bos_token", BOOL, b"\x01")
    parts.replace(prefix + "unknown_token_id", U32, u32(0))
    parts.replace(prefix + "add_space_prefix", BOOL, b"\x01")


def _character_map() -> bytes:
    """A trie that turns "ä" (two bytes) into "a": its units, by hand, then the text. See sentencepiece, src/normalizer.cc."""
    first, second = "ä".encode()
    units = np.zeros(512, "<u4")
    root, middle, leaf = 1, 256, 300  # what each node's own index is combined with to reach its children
    units[0] = root << 10
    at = root ^ first
    units[at] = first | (at ^ middle) << 10
    at = middle ^ second
    units[at] = second | 1 << 8 | (at ^ leaf) << 10
    units[leaf] = 1 << 31  # the text at 0
    return u32(units.nbytes) + units.tobytes() + b"a\0"


@lru_cache
def folder_seeds() -> dict[str, FolderParts]:
    seeds = {}
    for name, spec in FOLDERS.items():
        with tempfile.TemporaryDirectory() as parent:
            write = tiny_folder if name in ("gemma3", "unigram") else whole_tiny_folder
            folder = write(TinyModel(spec), Path(parent) / "model", "F16" if name == "qwen3" else "BF16", shards=_SHARDS.get(name, 1))
            if write is tiny_folder:
                (folder / "tokenizer.json").write_text(json.dumps(_pieces_file(unigram=name == "unigram")))
                config: dict[str, Any] = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}}
                config |= {"chat_template": [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "tools", "template": "{{ tools }}"}]}
                (folder / "tokenizer_config.json").write_text(json.dumps(config))
                (folder / "special_tokens_map.json").write_text('{"bos_token": "<s>"}')
            sampling = {"do_sample": True, "temperature": 0.7, "top_k": 40, "eos_token_id": [2, 1]}
            (folder / "generation_config.json").write_text(json.dumps(sampling))
            seeds[name] = take_folder_apart(folder)
    return seeds


def _pieces_file(*, unigram: bool) -> dict[str, Any]:
    """A tokenizer.json as SentencePiece's converter leaves it."""
    space = "\u2581"
    steps: dict[str, Any] = {
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": space},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
    }
    blanks: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": space}, "content": " "}, {"type": "ByteFallback"}]
    model: dict[str, Any]
    if unigram:
        scheme = {"type": "Metaspace", "replacement": space, "prepend_scheme": "first", "split": True}
        steps = {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}]}, "pre_tokenizer": scheme}
        model = {"type": "Unigram", "unk_id": 0, "vocab": [list(row) for row in zip(_PIECES, _SCORES, strict=True)]}
        blanks += [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    else:
        merges = [["t", "h"], ["th", "e"], [space, "t"], [space + "t", "he"], ["a", "n"], ["i", "s"]]
        merges = [pair for pair in merges if {*pair, "".join(pair)} <= set(_PIECES)]
        model = {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "vocab": {piece: i for i, piece in enumerate(_PIECES)}}
        model |= {"merges": merges}
        blanks += [{"type": "Fuse"}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token, **flags} for i, token in enumerate(_CONTROL)],
        **steps,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": blanks},
        "model": {**model, "byte_fallback": True},
    }
