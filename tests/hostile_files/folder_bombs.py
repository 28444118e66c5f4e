"""Folders with a file of some 1 to 40 MB that would take many times as much memory, each with words of the sentence that refuses it.

More headers of ``.safetensors`` files stand in tests/models/test_safetensors.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from hf_folders import framed
from hostile_files.folder_parts import Content
from hostile_files.inputs import sound_folder

_TOKENIZER, _WEIGHTS = "tokenizer.json", "model.safetensors"


def _with(**files: bytes) -> dict[str, Content]:
    """A sound folder with some files replaced; ``tokenizer_json`` stands for ``tokenizer.json``."""
    parts = sound_folder("mistral")
    parts.raw = {name.replace("_json", ".json").replace("_safetensors", ".safetensors"): data for name, data in files.items()}
    return parts.build()


def _values(value: str, count: int, file: str = "tokenizer_json") -> dict[str, Content]:
    return _with(**{file: ('{"model": [' + f"{value}," * count + "0]}").encode()})


def one_wide_character() -> dict[str, Content]:
    return _with(tokenizer_json=b'{"version": "' + b"a" * 20_000_000 + '👩"}'.encode())


def one_escaped_wide_character() -> dict[str, Content]:
    return _with(tokenizer_json=b'{"version": "' + b"a" * 20_000_000 + b'\\ud83d\\udc69"}')


def many_keys() -> dict[str, Content]:
    return _with(tokenizer_json=("{" + ",".join(f'"{i:x}":0' for i in range(1_000_000)) + "}").encode())


def large_file_with_a_bad_end() -> dict[str, Content]:
    """Of a size that is parsed, as values that are no tokenizer's."""
    parts = sound_folder("mistral")
    parts.objects[_TOKENIZER]["model"]["merges"] += [["a", "b"]] * 60_000 + [["a"]]
    return parts.build()


def large_vocabulary_with_a_bad_merge() -> dict[str, Content]:
    """262,144 tokens, and an embedding to match."""
    rows = 1 << 18
    parts = sound_folder("mistral")
    parts.objects["config.json"]["vocab_size"] = rows
    model = parts.objects[_TOKENIZER]["model"]
    model["vocab"] |= {f"<{i:x}>": i for i in range(len(model["vocab"]), rows)}
    model["merges"].append(["no", "such"])
    weights, data = parts.weights[_WEIGHTS], b""
    for name, entry in weights.entries:
        raw = weights.data[slice(*entry["data_offsets"])]
        if name == "model.embed_tokens.weight":
            raw, entry["shape"] = bytes(rows * 64), [rows, 32]
        entry["data_offsets"] = [len(data), len(data) + len(raw)]
        data += raw
    weights.data = data
    return parts.build()


def many_tensors() -> dict[str, Content]:
    entry: dict[str, Any] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return _with(model_safetensors=framed({f"{i:x}": entry for i in range(140_000)}))


def many_shards() -> dict[str, Content]:
    parts = sound_folder("llama")
    index = {"weight_map": {f"{i:x}": f"{i:x}.safetensors" for i in range(30_000)}}
    return parts.build() | {"model.safetensors.index.json": json.dumps(index).encode()}


FOLDER_BOMBS: dict[str, tuple[Callable[[], dict[str, Content]], str]] = {
    "4,000,000 empty lists": (partial(_values, "[]", 4_000_000), "bytes of memory"),
    "3,000,000 empty objects": (partial(_values, "{}", 3_000_000), "bytes of memory"),
    "1,500,000 objects of one key": (partial(_values, '{"":0}', 1_500_000), "bytes of memory"),
    "3,000,000 numbers": (partial(_values, "1e9", 3_000_000), "bytes of memory"),
    "2,000,000 texts": (partial(_values, '"ab"', 2_000_000), "bytes of memory"),
    "1,000,000 keys of an object": (many_keys, "bytes of memory"),
    "20 MB of ASCII and one wide character": (one_wide_character, "bytes of memory"),
    "20 MB of ASCII and one that is escaped": (one_escaped_wide_character, "bytes of memory"),
    "empty lists in tokenizer_config.json": (partial(_values, "[]", 900_000, "tokenizer_config_json"), "bytes of memory"),
    "empty lists in config.json": (partial(_values, "[]", 330_000, "config_json"), "bytes of memory"),
    "60,000 merges, the last of one token": (large_file_with_a_bad_end, "a merge must be two tokens, got ['a']"),
    "262,144 tokens and a bad merge": (large_vocabulary_with_a_bad_merge, "the merge of 'no' and 'such'"),
    "140,000 tensors": (many_tensors, "more than 131,072 tensors"),
    "30,000 shards": (many_shards, "is missing from the folder"),
}
