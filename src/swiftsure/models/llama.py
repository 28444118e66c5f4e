"""The llama family: pre-norm transformer, rotary grouped-query attention, gated SiLU feed-forward (Touvron et al., 2023).

Reads the metadata and tensor names that GGUF gives this family. Whatever is there and not understood is refused by name: a bias, an
expert or a rotary scaling that is ignored gives fluent text from another model.
"""

from __future__ import annotations

import math
import re

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.config import ModelConfig
from swiftsure.models.model_file import ModelFile
from swiftsure.models.schedule import Attention, Embed, Matmul, Op, RMSNorm, Rope, Schedule, SelectRows, SiluMul, StoreKV
from swiftsure.models.tensors import MATRIX_TYPES

NAME = "llama"
NORM_TYPES = ("F32",)

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
FINAL_NORM = "output_norm.weight"

_READ_KEYS = frozenset(
    f"{NAME}.{key}"
    for key in (
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.dimension_count",
        "rope.freq_base",
        "vocab_size",
    )
)
# Keys whose stated value means "nothing out of the ordinary".
_NEUTRAL_KEYS: dict[str, tuple[object, ...]] = {
    f"{NAME}.expert_count": (0,),
    f"{NAME}.expert_used_count": (0,),
    f"{NAME}.rope.scaling.type": ("none",),
    f"{NAME}.rope.scaling.factor": (1.0, 0.0),
    f"{NAME}.rope.scale_linear": (1.0,),
    f"{NAME}.attention.sliding_window": (0,),
    f"{NAME}.attention.causal": (True,),
    f"{NAME}.use_parallel_residual": (False,),
    f"{NAME}.tensor_data_layout": ("Meta AI original pth",),
}


def read_config(file: ModelFile) -> ModelConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for features this family reader does not compute."""
    _refuse_unknown_keys(file)
    meta = file.metadata
    hidden = meta.integer(f"{NAME}.embedding_length")
    heads = meta.integer(f"{NAME}.attention.head_count")
    if heads < 1:
        raise ModelFileError(f"metadata key '{NAME}.attention.head_count' must be at least 1, got {heads}")
    if f"{NAME}.attention.key_length" not in meta and hidden % heads:
        raise ModelFileError(f"embedding_length {hidden} is not a multiple of head_count {heads}, and no key_length is given")
    head_dim = meta.integer(f"{NAME}.attention.key_length", hidden // heads)
    value_dim = meta.integer(f"{NAME}.attention.value_length", head_dim)
    if value_dim != head_dim:
        raise UnsupportedModelError(f"value_length {value_dim} differs from key_length {head_dim}; only equal lengths are supported")
    vocab_size = file.info(EMBEDDING).shape[0]
    stated = meta.integer(f"{NAME}.vocab_size", vocab_size)
    if stated != vocab_size:
        raise ModelFileError(f"tensor '{EMBEDDING}' has {vocab_size} rows, but '{NAME}.vocab_size' says {stated}")
    return ModelConfig(
        architecture=NAME,
        layers=meta.integer(f"{NAME}.block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=meta.integer(f"{NAME}.attention.head_count_kv", heads),
        head_dim=head_dim,
        rotary_dim=meta.integer(f"{NAME}.rope.dimension_count", head_dim),
        intermediate=meta.integer(f"{NAME}.feed_forward_length"),
        vocab_size=vocab_size,
        context_length=meta.integer(f"{NAME}.context_length"),
        rope_theta=meta.number(f"{NAME}.rope.freq_base", 10000.0),
        rope_style="interleaved" if file.permuted_rope else "halves",
        rms_eps=meta.number(f"{NAME}.attention.layer_norm_rms_epsilon"),
        tied_head=HEAD not in file,
    )


def unsupported_reasons(file: ModelFile, config: ModelConfig) -> list[str]:
    """Why this build cannot run a sound file; empty when it can. Raises ModelFileError when tensors are missing or of the wrong shape."""
    expected = _expected_shapes(config)
    reasons = []
    for name in file.names():
        if name not in expected:
            reasons.append(f"tensor '{name}' is none that the {NAME} family computes with{_known_extra(name)}")
            continue
        info = file.info(name)
        supported = NORM_TYPES if len(expected[name]) == 1 else MATRIX_TYPES
        if info.type not in supported:
            reasons.append(f"tensor '{name}' has type {info.type}; supported: {', '.join(supported)}")
    for name, shape in expected.items():
        found = file.info(name).shape
        if found != shape:
            raise ModelFileError(f"tensor '{name}' has shape {list(found)}, but the metadata calls for {list(shape)}")
    return reasons


def write_schedule(config: ModelConfig) -> Schedule:
    """The static program of one pass."""
    heads_width = config.heads * config.head_dim
    kv_width = config.kv_heads * config.head_dim
    ops: list[Op] = [Embed(weight=EMBEDDING, out="residual")]
    for layer in range(config.layers):
        ops += _attention_ops(config, layer, heads_width, kv_width)
        ops += _feed_forward_ops(config, layer)
    ops += [
        SelectRows(x="residual", out="selected"),
        RMSNorm(x="selected", weight=FINAL_NORM, out="selected_normed", eps=config.rms_eps),
        Matmul(x="selected_normed", weights=(EMBEDDING if config.tied_head else HEAD,), out="logits"),
    ]
    return Schedule(
        ops=tuple(ops),
        buffers={
            "residual": config.hidden,
            "normed": config.hidden,
            "qkv": heads_width + 2 * kv_width,
            "attended": heads_width,
            "gate_up": 2 * config.intermediate,
            "activated": config.intermediate,
            "selected": config.hidden,
            "selected_normed": config.hidden,
            "logits": config.vocab_size,
        },
        logits_buffer="logits",
        vocab_size=config.vocab_size,
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        context_length=config.context_length,
    )


def _attention_ops(config: ModelConfig, layer: int, heads_width: int, kv_width: int) -> list[Op]:
    block = f"blk.{layer}"
    return [
        RMSNorm(x="residual", weight=f"{block}.attn_norm.weight", out="normed", eps=config.rms_eps),
        Matmul(x="normed", weights=tuple(f"{block}.attn_{part}.weight" for part in "qkv"), out="qkv"),
        # Queries and keys lie side by side, so one rotation covers both.
        Rope(
            x="qkv",
            offset=0,
            heads=config.heads + config.kv_heads,
            head_dim=config.head_dim,
            rotary_dim=config.rotary_dim,
            theta=config.rope_theta,
            style=config.rope_style,
        ),
        StoreKV(x="qkv", k_offset=heads_width, v_offset=heads_width + kv_width, layer=layer),
        Attention(x="qkv", q_offset=0, out="attended", layer=layer, heads=config.heads, scale=1.0 / math.sqrt(config.head_dim)),
        Matmul(x="attended", weights=(f"{block}.attn_output.weight",), out="residual", accumulate=True),
    ]


def _feed_forward_ops(config: ModelConfig, layer: int) -> list[Op]:
    block = f"blk.{layer}"
    return [
        RMSNorm(x="residual", weight=f"{block}.ffn_norm.weight", out="normed", eps=config.rms_eps),
        Matmul(x="normed", weights=(f"{block}.ffn_gate.weight", f"{block}.ffn_up.weight"), out="gate_up"),
        SiluMul(x="gate_up", out="activated"),
        Matmul(x="activated", weights=(f"{block}.ffn_down.weight",), out="residual", accumulate=True),
    ]


def _expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, vocab = config.hidden, config.vocab_size
    heads_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocab, hidden), FINAL_NORM: (hidden,)}
    if not config.tied_head:
        shapes[HEAD] = (vocab, hidden)
    for layer in range(config.layers):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (hidden,),
            f"blk.{layer}.attn_q.weight": (heads_width, hidden),
            f"blk.{layer}.attn_k.weight": (kv_width, hidden),
            f"blk.{layer}.attn_v.weight": (kv_width, hidden),
            f"blk.{layer}.attn_output.weight": (hidden, heads_width),
            f"blk.{layer}.ffn_norm.weight": (hidden,),
            f"blk.{layer}.ffn_gate.weight": (config.intermediate, hidden),
            f"blk.{layer}.ffn_up.weight": (config.intermediate, hidden),
            f"blk.{layer}.ffn_down.weight": (hidden, config.intermediate),
        }
    return shapes


def _refuse_unknown_keys(file: ModelFile) -> None:
    for key in file.metadata:
        if not key.startswith(f"{NAME}.") or key in _READ_KEYS:
            continue
        value = file.metadata.get(key)
        if key not in _NEUTRAL_KEYS or value not in _NEUTRAL_KEYS[key]:
            raise UnsupportedModelError(f"metadata key '{key}' = {value!r} is not supported, and ignoring it would run another model")


def _known_extra(name: str) -> str:
    """A word on what an unexpected tensor is, where that is well known."""
    if name == "rope_freqs.weight":
        return " (rotary frequency scaling)"
    if name.endswith(".bias"):
        return " (a bias)"
    if re.search(r"_exps?\.|_inp\.", name):
        return " (mixture of experts)"
    return ""
