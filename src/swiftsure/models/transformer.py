"""What the architectures have in common: a decoder-only transformer with rotary grouped-query attention and a gated feed-forward.

An architecture file (``llama.py``) reads the metadata of its family into a :class:`~swiftsure.models.config.ModelConfig` with the
functions here. Tensor shapes and the schedule follow from the config alone, each feature in one place. Whatever is in a file and not
understood is refused by name: a bias, an expert or a rotary scaling that is ignored gives fluent text from another model.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.config import LayerConfig, ModelConfig, Rotation
from swiftsure.models.model_file import ModelFile
from swiftsure.models.schedule import (
    Attention,
    Embed,
    Matmul,
    Op,
    RMSNorm,
    Rope,
    RopeStyle,
    Schedule,
    SelectRows,
    SiluMul,
    StoreKV,
)
from swiftsure.models.tensors import EMBEDDING, HEAD, MATRIX_TYPES

VECTOR_TYPES = ("F32",)
FINAL_NORM = "output_norm.weight"

# Metadata keys below the architecture's name that the functions here read.
_READ_KEYS = (
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
# Keys whose stated value means "nothing out of the ordinary".
_NEUTRAL_VALUES: Mapping[str, tuple[object, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (1.0, 0.0),
    "rope.scale_linear": (1.0,),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "tensor_data_layout": ("Meta AI original pth",),
}


# --- metadata ---------------------------------------------------------------------------------------------------------------------


def refuse_unknown_keys(file: ModelFile, architecture: str, *, read: Collection[str] = ()) -> None:
    """Raises UnsupportedModelError for a key of this architecture that nobody reads and that does not say "as usual".

    ``read`` names keys, without the architecture's name before them, that the architecture file reads itself.
    """
    for key in file.metadata:
        prefix, _, name = key.partition(".")
        if prefix != architecture or name in _READ_KEYS or name in read:
            continue
        value = file.metadata.get(key)
        if value not in _NEUTRAL_VALUES.get(name, ()):
            raise UnsupportedModelError(f"metadata key '{key}' = {value!r} is not supported, and ignoring it would run another model")


def read_head_dim(file: ModelFile, architecture: str) -> int:
    """Width of a head: stated, or an equal share of the hidden width. Raises ModelFileError, UnsupportedModelError."""
    meta = file.metadata
    hidden = meta.integer(f"{architecture}.embedding_length")
    heads = meta.integer(f"{architecture}.attention.head_count")
    if heads < 1:
        raise ModelFileError(f"metadata key '{architecture}.attention.head_count' must be at least 1, got {heads}")
    if f"{architecture}.attention.key_length" not in meta and hidden % heads:
        raise ModelFileError(f"embedding_length {hidden} is not a multiple of head_count {heads}, and no key_length is given")
    head_dim = meta.integer(f"{architecture}.attention.key_length", hidden // heads)
    value_dim = meta.integer(f"{architecture}.attention.value_length", head_dim)
    if value_dim != head_dim:
        raise UnsupportedModelError(f"value_length {value_dim} differs from key_length {head_dim}; only equal lengths are supported")
    return head_dim


def read_rotation(file: ModelFile, architecture: str, *, head_dim: int, style: RopeStyle) -> Rotation:
    """The rotation of all layers. Raises ModelFileError for impossible values."""
    meta = file.metadata
    return Rotation(
        dims=meta.integer(f"{architecture}.rope.dimension_count", head_dim),
        theta=meta.number(f"{architecture}.rope.freq_base", 10000.0),
        style=style,
    )


def read_model(file: ModelFile, architecture: str, *, head_dim: int, pattern: tuple[LayerConfig, ...]) -> ModelConfig:
    """The widths that all architectures state alike, around the layers of ``pattern``. Raises ModelFileError for impossible values."""
    meta = file.metadata
    vocab_size = file.info(EMBEDDING).shape[0]
    stated = meta.integer(f"{architecture}.vocab_size", vocab_size)
    if stated != vocab_size:
        raise ModelFileError(f"tensor '{EMBEDDING}' has {vocab_size} rows, but '{architecture}.vocab_size' says {stated}")
    heads = meta.integer(f"{architecture}.attention.head_count")
    return ModelConfig(
        architecture=architecture,
        layers=meta.integer(f"{architecture}.block_count"),
        pattern=pattern,
        hidden=meta.integer(f"{architecture}.embedding_length"),
        heads=heads,
        kv_heads=meta.integer(f"{architecture}.attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=meta.integer(f"{architecture}.feed_forward_length"),
        vocab_size=vocab_size,
        context_length=meta.integer(f"{architecture}.context_length"),
        rms_eps=meta.number(f"{architecture}.attention.layer_norm_rms_epsilon"),
        tied_head=HEAD not in file,
    )


# --- tensors ----------------------------------------------------------------------------------------------------------------------


def unsupported_reasons(file: ModelFile, config: ModelConfig) -> list[str]:
    """Why this build cannot run a sound file; empty when it can. Raises ModelFileError when tensors are missing or of the wrong shape."""
    expected = expected_shapes(config)
    reasons = []
    for name in file.names():
        if name not in expected:
            reasons.append(f"tensor '{name}' is none that the {config.architecture} architecture computes with{_known_extra(name)}")
            continue
        info = file.info(name)
        supported = VECTOR_TYPES if len(expected[name]) == 1 else MATRIX_TYPES
        if info.type not in supported:
            reasons.append(f"tensor '{name}' has type {info.type}; supported: {', '.join(supported)}")
    for name, shape in expected.items():
        found = file.info(name).shape
        if found != shape:
            raise ModelFileError(f"tensor '{name}' has shape {list(found)}, but the metadata calls for {list(shape)}")
    return reasons


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that the schedule reads, with its shape."""
    hidden, vocab = config.hidden, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocab, hidden), FINAL_NORM: (hidden,)}
    if not config.tied_head:
        shapes[HEAD] = (vocab, hidden)
    for index in range(config.layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in _layer_shapes(config).items()}
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden
    return {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (config.heads_width, hidden),
        "attn_k.weight": (config.kv_width, hidden),
        "attn_v.weight": (config.kv_width, hidden),
        "attn_output.weight": (hidden, config.heads_width),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (config.intermediate, hidden),
        "ffn_up.weight": (config.intermediate, hidden),
        "ffn_down.weight": (hidden, config.intermediate),
    }


def _known_extra(name: str) -> str:
    """A word on what an unexpected tensor is, where that is well known."""
    if name == "rope_freqs.weight":
        return " (rotary frequency scaling)"
    if name.endswith(".bias"):
        return " (a bias)"
    if re.search(r"_exps?\.|_inp\.", name):
        return " (mixture of experts)"
    return ""


# --- the schedule -----------------------------------------------------------------------------------------------------------------


def write_schedule(config: ModelConfig) -> Schedule:
    """The static program of one pass."""
    ops: list[Op] = [Embed(weight=EMBEDDING, out="residual")]
    for index in range(config.layers):
        ops += _attention_ops(config, index)
        ops += _feed_forward_ops(config, index)
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
            "qkv": config.heads_width + 2 * config.kv_width,
            "attended": config.heads_width,
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


def _attention_ops(config: ModelConfig, index: int) -> list[Op]:
    block, layer = f"blk.{index}", config.layer(index)
    return [
        RMSNorm(x="residual", weight=f"{block}.attn_norm.weight", out="normed", eps=config.rms_eps),
        Matmul(x="normed", weights=tuple(f"{block}.attn_{part}.weight" for part in "qkv"), out="qkv"),
        *_position_ops(config, layer.rotation),
        StoreKV(x="qkv", k_offset=config.heads_width, v_offset=config.heads_width + config.kv_width, layer=index),
        Attention(x="qkv", q_offset=0, out="attended", layer=index, heads=config.heads, scale=layer.score_scale),
        Matmul(x="attended", weights=(f"{block}.attn_output.weight",), out="residual", accumulate=True),
    ]


def _position_ops(config: ModelConfig, rotation: Rotation) -> list[Op]:
    return [
        # Queries and keys lie side by side, so one rotation covers both.
        Rope(
            x="qkv",
            offset=0,
            heads=config.heads + config.kv_heads,
            head_dim=config.head_dim,
            rotary_dim=rotation.dims,
            theta=rotation.theta,
            style=rotation.style,
        )
    ]


def _feed_forward_ops(config: ModelConfig, index: int) -> list[Op]:
    block = f"blk.{index}"
    return [
        RMSNorm(x="residual", weight=f"{block}.ffn_norm.weight", out="normed", eps=config.rms_eps),
        Matmul(x="normed", weights=(f"{block}.ffn_gate.weight", f"{block}.ffn_up.weight"), out="gate_up"),
        SiluMul(x="gate_up", out="activated"),
        Matmul(x="activated", weights=(f"{block}.ffn_down.weight",), out="residual", accumulate=True),
    ]
