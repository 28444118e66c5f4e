"""Folders made by hand, each with the one sentence that it must be refused with (``sentences.json``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostile_files.folder_parts import Content, FolderParts
from hostile_files.inputs import sound_folder

_TOKENIZER, _WEIGHTS, _INDEX = "tokenizer.json", "model.safetensors", "model.safetensors.index.json"
_NORM = "model.norm.weight"  # 32 values of F32
Change = Callable[[FolderParts], None]


def _stored(name: str = _NORM, **facts: Any) -> Change:
    """Other facts in the header's entry of a tensor."""

    def change(parts: FolderParts) -> None:
        next(entry for each, entry in parts.weights[_WEIGHTS].entries if each == name).update(facts)

    return change


def _moved(by: int, *, end: int = 0) -> Change:
    def change(parts: FolderParts) -> None:
        entry = dict(parts.weights[_WEIGHTS].entries)[_NORM]
        first, last = entry["data_offsets"]
        entry["data_offsets"] = [first + by, last + by + end]

    return change


def _weights(**changes: Any) -> Change:
    def change(parts: FolderParts) -> None:
        for field, value in changes.items():
            setattr(parts.weights[_WEIGHTS], field, value)

    return change


def _tensor_twice(parts: FolderParts) -> None:
    parts.weights[_WEIGHTS].entries.append(parts.weights[_WEIGHTS].entries[0])


def _tensor_left_out(parts: FolderParts) -> None:
    parts.weights[_WEIGHTS].entries.pop()


def _set(file: str, *keys: str | int, value: Any) -> Change:
    """A value somewhere in a JSON file."""

    def change(parts: FolderParts) -> None:
        found = parts.objects.setdefault(file, {})
        for key in keys[:-1]:
            found = found[key]
        found[keys[-1]] = value

    return change


def _raw(**files: Content | None) -> Change:
    """``config_json`` stands for ``config.json``."""

    def change(parts: FolderParts) -> None:
        for name, content in files.items():
            stem, _, suffix = name.rpartition("_")
            parts.raw[f"{stem}.{suffix}"] = content

    return change


def _pickle_alone(parts: FolderParts) -> None:
    parts.raw |= {_WEIGHTS: None, "pytorch_model.bin": b"\x80\x02}q\x00."}


def _index(value: Any) -> Change:
    def change(parts: FolderParts) -> None:
        parts.raw[_WEIGHTS] = None
        parts.objects[_INDEX] = {"weight_map": value}

    return change


def _normalizer(value: Any) -> Change:
    return _set(_TOKENIZER, "normalizer", value=value)


def _added(number: str, **facts: Any) -> Change:
    return _set("tokenizer_config.json", "added_tokens_decoder", value={number: {"content": "<s>", **facts}})


_TEMPLATE = {"type": "TemplateProcessing", "pair": [], "special_tokens": {}}
FOLDER_CASES: dict[str, Change] = {
    "safetensors: offsets on another tensor": _moved(-8),
    "safetensors: a gap before a tensor": _moved(8),
    "safetensors: an end before its begin": _moved(0, end=-129),
    "safetensors: offsets that wrap at 2^64": _moved(2**64),
    "safetensors: offsets below 2^63 outside the file": _moved(2**62),
    "safetensors: one byte too few": _moved(0, end=-1),
    "safetensors: a negative offset": _stored(data_offsets=[-128, 0]),
    "safetensors: one offset": _stored(data_offsets=[0]),
    "safetensors: a shape whose product wraps at 2^64": _stored(shape=[2**32, 2**32]),
    "safetensors: a shape whose product is right modulo 2^64": _stored(shape=[2**62 + 32]),
    "safetensors: a dimension of 0.5": _stored(shape=[0.5]),
    "safetensors: 900 dimensions": _stored(shape=[1] * 900),
    "safetensors: integers of the same size": _stored(dtype="I32"),
    "safetensors: a type of the future": _stored(dtype="F4"),
    "safetensors: a type of half the size": _stored(dtype="F16"),
    "safetensors: a shape of the same product": _stored("model.layers.0.self_attn.q_proj.weight", shape=[1, 1024]),
    "safetensors: a field too many": _stored(strides=[1]),
    "safetensors: a tensor twice": _tensor_twice,
    "safetensors: bytes of no tensor": _tensor_left_out,
    "safetensors: metadata of numbers": _weights(metadata={"format": 1}),
    "safetensors: a header of 2^64 - 1 bytes": _weights(length=2**64 - 1),
    "safetensors: a header that wraps to the file's size": _weights(length=2**64 - 8),
    "safetensors: a header of 0 bytes": _weights(length=0),
    "safetensors: data cut short": _weights(data=b""),
    "safetensors: a pipe": _raw(model_safetensors="pipe"),
    "an index that leads outside": _index({_NORM: "../model.safetensors"}),
    "an index with a name that no file system takes": _index({_NORM: "x" * 300 + ".safetensors"}),
    "an index of nothing": _index({}),
    "pickles alone": _pickle_alone,
    "a configuration without end": _raw(config_json="endless"),
    "a configuration of brackets": _raw(config_json=b"[" * 100_000),
    "a configuration that is null": _raw(config_json=b"null"),
    "a key twice in the configuration": _raw(config_json=b'{"a": 1, "a": 2}'),
    "a number of 5,000 digits": _raw(config_json=b'{"vocab_size": ' + b"9" * 5000 + b"}"),
    "half of a character": _set(_TOKENIZER, "model", "unk_token", value="\ud83d"),
    "the tokenizer of SentencePiece alone": _raw(tokenizer_json=None, tokenizer_model=b"\x0a\x0e\x0a\x05<unk>"),
    "a merge that is a number": _set(_TOKENIZER, "model", "merges", value=[7]),
    "a merge of three": _set(_TOKENIZER, "model", "merges", value=[["a", "b", "c"]]),
    "an unknown token that is a list": _set(_TOKENIZER, "model", "unk_token", value=["a"]),
    "an id beyond the embedding": _set(_TOKENIZER, "model", "vocab", "new", value=280),
    "an id of 2^40": _set(_TOKENIZER, "model", "vocab", "a", value=2**40),
    "normalizers that are null": _normalizer({"type": "Sequence", "normalizers": None}),
    "a character map that is no base 64": _normalizer({"type": "Precompiled", "precompiled_charsmap": "no!"}),
    "a character map without its trie": _normalizer({"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="}),
    "a character map that is null": _normalizer({"type": "Precompiled", "precompiled_charsmap": None}),
    "a template of numbers": _set(_TOKENIZER, "post_processor", value={**_TEMPLATE, "single": [1]}),
    "a template that is null": _set(_TOKENIZER, "post_processor", value={**_TEMPLATE, "single": None}),
    "a special token of the template that is a number": _set(
        _TOKENIZER, "post_processor", value={**_TEMPLATE, "single": [{"SpecialToken": 1}]}
    ),
    "an added token with an id of 5,000 digits": _added("9" * 5000),
    "an added token with an id in other digits": _added("٣"),
    "an added token of another id": _added("7"),
}


def folder_of(case: str) -> dict[str, Content]:
    parts = sound_folder("mistral")
    FOLDER_CASES[case](parts)
    return parts.build()
