"""Folders as the transformers library writes them, and ``.safetensors`` bytes that may lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tiny_models import TinyModel
from tiny_vocabulary import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_level_vocabulary

Stored = tuple[str, tuple[int, ...], bytes]  # dtype, shape, bytes


def stored(values: NDArray[Any], dtype: str) -> Stored:
    """Values rounded to a float type of the format."""
    kind = gguf.GGMLQuantizationType[dtype]
    return dtype, values.shape, gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind).tobytes()


def framed(header: bytes | Mapping[str, Any], data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file of any header, sound or not."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def safetensors_bytes(tensors: Mapping[str, Stored], *, metadata: Mapping[str, str] | None = None) -> bytes:
    """A sound file, its tensors in the order given."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    return framed(header, b"".join(data for _, _, data in tensors.values()))


def write_folder(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Stored], *, shards: int = 1, beside: Mapping[str, str] | None = None
) -> Path:
    """``config.json`` and weights in one file, or in ``shards`` files with an index. ``beside``: texts of further files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name, text in (beside or {}).items():
        (folder / name).write_text(text)
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors, metadata={"format": "pt"}))
        return folder
    weight_map = {name: f"model-{1 + i % shards:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(weight_map.values()):
        (folder / file).write_bytes(safetensors_bytes({name: tensor for name, tensor in tensors.items() if weight_map[name] == file}))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))
    return folder


def tiny_tensors(model: TinyModel, dtype: str = "BF16", *, norms: str = "F32") -> dict[str, Stored]:
    """The weights of a tiny model under the library's names."""
    state = model.huggingface_state()
    if model.spec.tied:
        del state["lm_head.weight"]
    return {name: stored(values, norms if values.ndim == 1 else dtype) for name, values in state.items()}


def tiny_folder(model: TinyModel, folder: Path, dtype: str = "BF16", *, norms: str = "F32", shards: int = 1, **config: Any) -> Path:
    """A tiny model as a folder; ``config`` sets fields of its configuration, None drops one."""
    fields = {key: value for key, value in (model.huggingface_config() | config).items() if value is not None}
    return write_folder(folder, fields, tiny_tensors(model, dtype, norms=norms), shards=shards)


def tokenizer_files(tokens: list[str], merges: list[str], special: tuple[str, ...], template: str) -> dict[str, str]:
    """What stands beside the weights: a byte-level BPE vocabulary that splits like SmolLM2's, as the tokenizers library writes it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pairs = [tuple(merge.split(" ")) for merge in merges]
    made = Tokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, pairs))  # type: ignore[arg-type]  # split in two each
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])  # type: ignore[assignment]  # the stubs
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]  # know no setters
    made.add_special_tokens([AddedToken(token, special=True) for token in special])
    config = {"bos_token": special[1], "eos_token": special[2], "chat_template": template}
    return {"tokenizer.json": made.to_str(), "tokenizer_config.json": json.dumps(config)}


def whole_tiny_folder(model: TinyModel, folder: Path, dtype: str = "BF16", *, shards: int = 1) -> Path:
    """A tiny model with the vocabulary and the chat template of its GGUF file."""
    tiny_folder(model, folder, dtype, shards=shards)
    for name, text in tokenizer_files(*byte_level_vocabulary(model.spec.vocab), SPECIAL_TOKENS, CHAT_TEMPLATE).items():
        (folder / name).write_text(text)
    return folder
