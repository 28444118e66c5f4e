"""Names of tensors in the transformers library's folders -> GGUF's names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from swiftsure.errors import ModelFileError

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
_OUTER = {EMBEDDING: "token_embd.weight", FINAL_NORM: "output_norm.weight", HEAD: "output.weight"}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Modules of a layer, without ``model.layers.N.`` and ``.weight`` or ``.bias``."""
GEMMA3_LAYER_NAMES = LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LAYER = re.compile(r"model\.layers\.(0|[1-9][0-9]{0,5})\.(.+)\.(weight|bias)")
_COMPUTED = re.compile(r"model\.(layers\.[0-9]+\.self_attn\.)?rotary_emb\.inv_freq")  # a table that the configuration gives too


def gguf_names(names: Iterable[str], layer_names: Mapping[str, str], *, tied: bool) -> dict[str, str]:
    """GGUF name -> name in the folder. A tensor that the table does not know keeps its name, for the architecture to refuse.

    Left out: tables of rotary frequencies that old versions stored, and the head of a model whose head is its embedding; the library
    reads neither. Raises ModelFileError for two tensors of one name and when a head that is not the embedding is missing.
    """
    found: dict[str, str] = {}
    for name in names:
        if _COMPUTED.fullmatch(name) or (tied and name == HEAD):
            continue
        new = _gguf_name(name, layer_names)
        if new in found:
            raise ModelFileError(f"tensors {found[new]!r} and {name!r} are both GGUF's '{new}'")
        found[new] = name
    if not tied and _OUTER[HEAD] not in found:
        raise ModelFileError(f"tensor '{HEAD}' is missing, and config.json does not tie it to the embedding (tie_word_embeddings)")
    return found


def _gguf_name(name: str, layer_names: Mapping[str, str]) -> str:
    if name in _OUTER:
        return _OUTER[name]
    match = _LAYER.fullmatch(name)
    if match is None or match[2] not in layer_names:
        return name
    return f"blk.{match[1]}.{layer_names[match[2]]}.{match[3]}"
