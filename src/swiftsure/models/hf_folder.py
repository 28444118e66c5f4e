"""A model in the transformers library's folder: ``config.json``, ``.safetensors`` files, and a tokenizer beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from swiftsure.models import hf_config
from swiftsure.models.files import FileStamp, file_stamp
from swiftsure.models.gguf import Metadata
from swiftsure.models.gguf_header import Value
from swiftsure.models.hf_tensors import gguf_names
from swiftsure.models.json_files import read_json_object, read_text
from swiftsure.models.quantize import FLOAT_BYTES, dequantize_rows
from swiftsure.models.safetensors import Shards, weight_files
from swiftsure.models.tensors import TensorInfo, byte_span

_GENERATION = "generation_config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_ADAPTER = "adapter_config.json"
_TEMPLATE = "chat_template.jinja"
_TEMPLATE_KEY = "tokenizer.chat_template"
_MAX_TOKENIZER_CONFIG_BYTES = 3 << 20  # large vocabularies list all their added tokens
_BESIDE_WEIGHTS = (
    hf_config.FILE, _GENERATION, "tokenizer.json", _TOKENIZER_CONFIG, _TEMPLATE, "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "tokenizer.model",
)  # fmt: skip
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
# generation_config.json -> what GGUF calls it, below general.sampling.
_SAMPLING = {"temperature": "temp", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "repetition_penalty": "penalty_repeat"}


def folder_files(folder: Path) -> list[str]:
    """Names of the files of a folder that decide what the model is, ascending: weights, configuration, tokenizer, chat template.

    Raises UnsupportedModelError for weights in pickles alone, ModelFileError and ModelNotFoundError for a folder that is no model.
    """
    if not folder.is_dir():
        raise ModelNotFoundError(f"{folder}: no such folder")
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise ModelFileError(f"{folder}: cannot be read: {error.strerror or error}") from None
    if not any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        pickles = sorted(name for name in names if name.lower().endswith(_PICKLES))
        if pickles:
            raise UnsupportedModelError(
                f"{folder}: its weights are Python pickles ({', '.join(pickles[:4])}), which can run code when loaded; "
                "use GGUF or .safetensors"
            )
    if not (folder / hf_config.FILE).is_file():
        if _ADAPTER in names:
            raise UnsupportedModelError(
                f"{folder}: holds an adapter ({_ADAPTER}), which changes another model and is none itself; merge the two and save the whole"
            )
        raise ModelNotFoundError(f"{folder}: a model folder must hold exactly one .gguf file, or {hf_config.FILE} and .safetensors files")
    return sorted([*weight_files(folder), *(name for name in _BESIDE_WEIGHTS if (folder / name).is_file())])


class HFFolder:
    """An open folder; a :class:`~swiftsure.models.model_file.ModelFile`. Context manager.

    Tensors bear GGUF's names. Matrices have the files' own bytes; vectors (norms and biases), which may be stored in 16 bits, are handed
    out as F32, as GGUF's converter does, which loses nothing. A sound folder of a model that cannot be run opens too, for what it holds to
    be described: ``unsupported`` says why.
    """

    permuted_rope = False

    def __init__(self, path: str | Path) -> None:
        """Raises ModelNotFoundError, ModelFileError or UnsupportedModelError; each message starts with the path."""
        self.path = Path(path)
        self._shards: Shards | None = None
        try:
            self._files = folder_files(self.path)
            self.config = hf_config.translate(read_json_object(self.path / hf_config.FILE))
            self.metadata = Metadata(self.config.metadata | self._template() | self._sampling())
            self._shards = Shards(self.path)
            self._names = self._gguf_names(self._shards)
            stamps = self._stamps()
        except ModelError as error:
            self.close()
            message = str(error)
            raise type(error)(message if message.startswith(str(self.path)) else f"{self.path}: {message}") from None
        self.stamp = tuple(number for stamp in stamps for number in stamp)
        self.size = sum(stamp[0] for stamp in stamps)

    @property
    def format(self) -> str:
        return f"safetensors, {len(self._open().files)} {'file' if len(self._open().files) == 1 else 'files'}"

    @property
    def unsupported(self) -> tuple[str, ...]:
        return self.config.unsupported

    def names(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def info(self, name: str) -> TensorInfo:
        stored = self._names.get(name)
        if stored is None:
            raise ModelFileError(f"{self.path}: tensor '{name}' is missing")
        entry = self._open().entry(stored)
        if len(entry.shape) == 1 and entry.dtype in FLOAT_BYTES:
            return TensorInfo(name, "F32", entry.shape, 4 * entry.shape[0])
        return TensorInfo(name, entry.dtype, entry.shape, entry.nbytes)

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        info = self.info(name)
        stored = self._open().entry(self._names[name])
        if rows is not None:
            return self._open().read(stored.name, *byte_span(info, rows))
        raw = self._open().read(stored.name)
        family = self.config.family
        offset = family.norm_offset if family is not None and name.endswith("norm.weight") else 0.0
        if len(info.shape) != 1 or info.type != "F32" or (stored.dtype == "F32" and not offset):
            return raw
        values = dequantize_rows(stored.dtype, raw.reshape(1, -1), info.shape[0])[0]
        return np.asarray(values + np.float32(offset), "<f4").view(np.uint8)

    def check_unchanged(self) -> None:
        """Raises ModelFileError if a file was written to, came or went since the folder was opened."""
        if folder_files(self.path) != self._files or tuple(n for stamp in self._stamps() for n in stamp) != self.stamp:
            raise ModelFileError(f"{self.path}: the folder changed while it was being loaded")

    def close(self) -> None:
        if self._shards is not None:
            self._shards.close()

    def _open(self) -> Shards:
        if self._shards is None:
            raise ModelFileError(f"{self.path}: the folder is closed")
        return self._shards

    def _gguf_names(self, shards: Shards) -> dict[str, str]:
        """GGUF's name -> the folder's; of a model type that is not known, the folder's own."""
        family = self.config.family
        if family is None:
            return {name: name for name in shards.names()}
        return gguf_names(shards.names(), family.layer_names, tied=self.config.tied)

    def _stamps(self) -> list[FileStamp]:
        """Of each file, in the order of their names; of weights, the files that are open."""
        opened = self._open().files
        try:
            return [opened[name].current_stamp() if name in opened else file_stamp(os.stat(self.path / name)) for name in self._files]
        except OSError as error:
            raise ModelFileError(f"{error.filename}: cannot be read: {error.strerror or error}") from None

    def _template(self) -> dict[str, Value]:
        """A template of its own file comes before one in tokenizer_config.json, as in the library."""
        if _TEMPLATE in self._files:
            return {_TEMPLATE_KEY: read_text(self.path / _TEMPLATE)}
        if _TOKENIZER_CONFIG not in self._files:
            return {}
        path = self.path / _TOKENIZER_CONFIG
        found = read_json_object(path, max_bytes=_MAX_TOKENIZER_CONFIG_BYTES).get("chat_template")
        if found is None:
            return {}
        if isinstance(found, str):
            return {_TEMPLATE_KEY: found}
        return _named_templates(found, path)

    def _sampling(self) -> dict[str, Value]:
        """What generation_config.json recommends; a file that does not sample recommends the best token."""
        if _GENERATION not in self._files:
            return {}
        path = self.path / _GENERATION
        found = read_json_object(path)
        values: dict[str, Value] = {}
        for key, name in _SAMPLING.items():
            value = found.get(key)
            if value is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise ModelFileError(f"{path}: {key} must be a number, got {value!r}")
            values[f"general.sampling.{name}"] = value
        return values if found.get("do_sample") is True else {"general.sampling.temp": 0.0}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _named_templates(found: Any, path: Path) -> dict[str, Value]:
    """The library's list of ``{"name", "template"}``: "default" under GGUF's key, the others with their names after it."""
    values: dict[str, Value] = {}
    for entry in found if isinstance(found, list) else [None]:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not isinstance(entry.get("template"), str):
            raise ModelFileError(f"{path}: chat_template must be a text, or a list of objects with the texts name and template")
        key = _TEMPLATE_KEY if entry["name"] == "default" else f"{_TEMPLATE_KEY}.{entry['name']}"
        values[key] = entry["template"]
    return values
