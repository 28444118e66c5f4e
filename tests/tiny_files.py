"""The tiny models in the formats of files: GGUF, and the Hugging Face twin of the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tiny_architectures import ROPE_FACTORS, huggingface_scaling, huggingface_window
from tiny_vocabulary import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_level_vocabulary

if TYPE_CHECKING:
    from tiny_models import TinyModel, TinySpec


def write_gguf(model: TinyModel, path: Path) -> Path:
    """Writes the model as a GGUF file of its architecture."""
    expected = model.spec.kind.rope_style
    if model.spec.rope_style != expected:
        raise ValueError(f"GGUF files of {model.spec.architecture} rotate {expected}, not {model.spec.rope_style}")
    writer = gguf.GGUFWriter(path, model.spec.architecture)
    _write_metadata(writer, model.spec)
    for tensor in model.tensors.values():
        kind = gguf.GGMLQuantizationType[tensor.type]
        rows = tensor.data.reshape(*tensor.shape[:-1], -1)
        if tensor.type in ("F32", "F16"):
            writer.add_tensor(tensor.name, rows.view(np.float32 if tensor.type == "F32" else np.float16))
        else:
            writer.add_tensor(tensor.name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def huggingface_config(spec: TinySpec) -> dict[str, Any]:
    """What ``config.json`` says."""
    return {
        "architectures": [spec.kind.huggingface],
        "model_type": spec.kind.model_type or spec.architecture,
        "hidden_size": spec.hidden,
        "intermediate_size": spec.intermediate,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab,
        "max_position_embeddings": spec.context,
        "rope_theta": spec.rope_theta,
        "rms_norm_eps": spec.rms_eps,
        "tie_word_embeddings": spec.tied,
        **({} if "hidden_activation" in spec.kind.config else {"hidden_act": "silu"}),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        **spec.kind.config,
        **huggingface_window(spec),
        **huggingface_scaling(spec),
    }


def huggingface_state(model: TinyModel) -> dict[str, NDArray[np.float32]]:
    """The state dict of the transformers model, float32, rows of q and k in its order (rope pairs dimensions half a head apart)."""
    state = {}
    for tensor in model.tensors.values():
        if tensor.name == ROPE_FACTORS:
            continue  # follows from config.json there
        values = tensor.values()
        if model.spec.rope_style == "interleaved" and tensor.name.endswith((".attn_q.weight", ".attn_k.weight")):
            values = unpermute(values, model.spec.head_dim)
        if tensor.name.endswith("norm.weight"):
            values = values - model.spec.kind.norm_offset
        state[huggingface_name(tensor.name, post_norms=model.spec.kind.post_norms)] = np.ascontiguousarray(values, dtype=np.float32)
    if model.spec.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def write_huggingface(model: TinyModel, folder: Path) -> Path:
    """``config.json`` and ``model.safetensors`` in ``folder``."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(huggingface_config(model.spec), indent=2))
    state = huggingface_state(model)
    if model.spec.tied:
        del state["lm_head.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def unpermute(values: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Rows of q or k from the GGUF order (pairs 2i, 2i + 1) to the Hugging Face order (pairs i, i + head_dim / 2)."""
    return values.reshape(-1, head_dim // 2, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def huggingface_name(name: str, *, post_norms: bool = False) -> str:
    """The transformers library's name of a GGUF tensor; ``post_norms``: of an architecture that norms after attention and feed-forward."""
    fixed = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in fixed:
        return fixed[name]
    _, layer, role, kind = name.split(".")
    inner = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "pre_feedforward_layernorm" if post_norms else "post_attention_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }[role]
    return f"model.layers.{layer}.{inner}.{kind}"


def _write_metadata(writer: gguf.GGUFWriter, spec: TinySpec) -> None:
    writer.add_name(f"tiny-{spec.seed}")
    writer.add_license("apache-2.0")
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.hidden)
    writer.add_feed_forward_length(spec.intermediate)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    if spec.scaling == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(spec.scaling_factor)
    if spec.window is not None:
        writer.add_sliding_window(spec.window)
        if spec.kind.local_theta is not None and spec.global_every != 6:
            writer.add_uint32(gguf.Keys.Attention.SLIDING_WINDOW_PATTERN.format(arch=spec.architecture), spec.global_every)
    writer.add_layer_norm_rms_eps(spec.rms_eps)
    writer.add_vocab_size(spec.vocab)
    tokens, merges = byte_level_vocabulary(spec.vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    special = int(gguf.TokenType.CONTROL)
    writer.add_token_types([special if token in SPECIAL_TOKENS else int(gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
