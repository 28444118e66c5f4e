"""The model once more, for engines that read no GGUF: a folder with config.json and model.safetensors.

The weights are those of the GGUF file, dequantized and rounded once to float32, so that every engine starts from the same values. What an
engine does with them then (bfloat16, 8 or 4 bits of its own) is its adapter's to say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.kernels.reference import dequantize
from swiftsure.models.config import ModelConfig
from swiftsure.models.model import Model

_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def write_folder(model: Model, folder: Path) -> Path:
    """Writes the folder unless it is there; complete or absent, never half."""
    if (folder / "config.json").is_file():
        return folder
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"model.{os.getpid()}.partial"
    save_file(dict(_tensors(model)), partial, metadata={"format": "pt"})
    partial.rename(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(hub_config(model.config), indent=1), encoding="utf-8")
    return folder


def hub_config(config: ModelConfig) -> dict[str, Any]:
    """The configuration in the words of the hub's llama family."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.rms_eps,
        "rope_theta": config.rope_theta,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tied_head,
        "torch_dtype": "float32",
    }


def _tensors(model: Model) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for name in model.tensors.names():
        info = model.tensors.info(name)
        values = dequantize(info.type, model.tensors.read(name), info.shape).astype(np.float32)
        heads = {"attn_q": model.config.heads, "attn_k": model.config.kv_heads}.get(name.split(".")[-2])
        if heads is not None:
            values = halves_from_pairs(values, heads, model.config.rotary_dim)
        yield hub_name(name), np.ascontiguousarray(values)


def hub_name(name: str) -> str:
    """``blk.3.attn_q.weight`` -> ``model.layers.3.self_attn.q_proj.weight``."""
    *place, part, kind = name.split(".")
    if not place:
        return f"{_OUTER_NAMES[part]}.{kind}"
    return f"model.layers.{place[1]}.{_NAMES[part]}.{kind}"


def halves_from_pairs(rows: NDArray[np.float32], heads: int, rotary_dim: int) -> NDArray[np.float32]:
    """Rows ``(heads * head_dim, k)`` in GGUF's order, where rotation pairs (2i, 2i + 1), in the hub's, where it pairs (i, i + half)."""
    split = rows.reshape(heads, -1, rows.shape[-1])  # (heads, head_dim, k)
    turned, still = split[:, :rotary_dim], split[:, rotary_dim:]
    return np.concatenate([turned[:, 0::2], turned[:, 1::2], still], axis=1).reshape(rows.shape)
