"""16-bit models to measure on: a quantized model's own values as BF16, and a random llama of any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swiftsure.models.gguf import GGUFFile
from swiftsure.models.gguf_writer import metadata_entry, write_gguf
from swiftsure.models.quantize import dequantize_rows
from swiftsure.models.tensors import TensorInfo

_ROWS = 1024  # at a time
_BF16_FILE_TYPE = 32


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Finite values rounded to the nearest BF16, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").view(np.uint8)


def write_bf16_twin(source: Path, target: Path) -> None:
    """The model of ``source`` with every matrix as BF16: the values that its blocks stand for, each rounded once."""
    with GGUFFile(source) as file:
        infos = [_as_bf16(file.info(name)) for name in file.names()]

        def content(info: TensorInfo) -> Iterator[NDArray[np.uint8]]:
            before, raw = file.info(info.name), file.read(info.name)
            if before.type == info.type:
                yield raw
                return
            rows = raw.reshape(before.shape[0], -1)
            for first in range(0, before.shape[0], _ROWS):
                yield to_bf16(dequantize_rows(before.type, rows[first : first + _ROWS], before.shape[1]))

        write_gguf(target, _entries(file, {}), infos, content, alignment=file.alignment, force=True)


def write_random_llama(source: Path, target: Path, *, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int) -> None:
    """Normal random BF16 weights in the given sizes, with tokenizer, vocabulary and head width of ``source``."""
    with GGUFFile(source) as file:
        vocab, old_hidden = file.info("token_embd.weight").shape
        head_dim = old_hidden // file.metadata.integer("llama.attention.head_count")
        infos = _llama_tensors(vocab, layers, hidden, intermediate, heads * head_dim, kv_heads * head_dim)
        changed: dict[str, int | str] = {
            "llama.block_count": layers,
            "llama.embedding_length": hidden,
            "llama.feed_forward_length": intermediate,
            "llama.attention.head_count": heads,
            "llama.attention.head_count_kv": kv_heads,
            "llama.attention.key_length": head_dim,
            "llama.attention.value_length": head_dim,
            "general.name": f"random llama {layers} x {hidden}",
        }
        random = np.random.default_rng(1)

        def content(info: TensorInfo) -> Iterator[NDArray[np.uint8]]:
            if len(info.shape) == 1:
                yield np.ones(info.shape, "<f4").view(np.uint8)
                return
            for first in range(0, info.shape[0], _ROWS):
                count = min(_ROWS, info.shape[0] - first)
                yield to_bf16(random.standard_normal((count, info.shape[1]), np.float32) / np.float32(np.sqrt(info.shape[1])))

        write_gguf(target, _entries(file, changed), infos, content, alignment=file.alignment, force=True)


def _as_bf16(info: TensorInfo) -> TensorInfo:
    return info if len(info.shape) == 1 else TensorInfo(info.name, "BF16", info.shape, 2 * info.elements)


def _entries(file: GGUFFile, changed: dict[str, int | str]) -> list[bytes]:
    values: dict[str, int | str] = {"general.file_type": _BF16_FILE_TYPE, **changed}
    kept = [file.metadata_entry(key) for key in file.metadata if key not in values]
    return kept + [metadata_entry(key, value) for key, value in values.items()]


def _llama_tensors(vocab: int, layers: int, hidden: int, intermediate: int, q_width: int, kv_width: int) -> list[TensorInfo]:
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
    for layer in range(layers):
        shapes |= {
            f"blk.{layer}.{name}.weight": shape
            for name, shape in {
                "attn_norm": (hidden,),
                "attn_q": (q_width, hidden),
                "attn_k": (kv_width, hidden),
                "attn_v": (kv_width, hidden),
                "attn_output": (hidden, q_width),
                "ffn_norm": (hidden,),
                "ffn_gate": (intermediate, hidden),
                "ffn_up": (intermediate, hidden),
                "ffn_down": (hidden, intermediate),
            }.items()
        }
    return [
        TensorInfo(name, "F32" if len(shape) == 1 else "BF16", shape, int(np.prod(shape)) * (4 if len(shape) == 1 else 2))
        for name, shape in shapes.items()
    ]
