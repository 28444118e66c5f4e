"""What the architectures have in common: a decoder-only transformer with rotary grouped-query attention and a gated feed-forward.

An architecture file (``llama.py``) reads the metadata of its family into a :class:`~swiftsure.models.config.ModelConfig` with the
functions here. Tensor shapes and the schedule follow from the config alone, each feature in one place. Whatever is in a file and not
understood is refused by name: a bias, an expert or a rotary scaling that is ignored gives fluent text from another model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.config import MAX_ROPE_FACTOR, LayerConfig, ModelConfig, Rotation
from swiftsure.models.model_file import ModelFile
from swiftsure.models.schedule import (
    Activation,
    AddBias,
    Attention,
    Embed,
    GatedActivation,
    HeadNorm,
    Matmul,
    Op,
    RMSNorm,
    Rope,
    RopeStyle,
    Schedule,
    SelectRows,
    StoreKV,
)
from swiftsure.models.tensors import EMBEDDING, HEAD, MATRIX_TYPES

VECTOR_TYPES = ("F32",)
FINAL_NORM = "output_norm.weight"
ROPE_FACTORS = "rope_freqs.weight"
WINDOW = "attention.sliding_window"

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
    "rope.scaling.factor",
    "rope.scale_linear",  # what rope.scaling.factor was called once
    "rope.scaling.original_context_length",
    "rope.scaling.low_freq_factor",  # these two are in no GGUF file: folders of the transformers library state them
    "rope.scaling.high_freq_factor",
    "rope.scaling.finetuned",
    "vocab_size",
)
# Keys of which these values are understood: most mean "nothing out of the ordinary".
_UNDERSTOOD_VALUES: Mapping[str, tuple[object, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scaling.type": ("none", "linear", "llama3"),
    "rope.scaling.attn_factor": (1.0,),
    WINDOW: (0,),
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "tensor_data_layout": ("Meta AI original pth",),
}


# --- metadata ---------------------------------------------------------------------------------------------------------------------


def refuse_unknown_keys(file: ModelFile, architecture: str, *, read: Collection[str] = ()) -> None:
    """Raises UnsupportedModelError for keys of this architecture that nobody reads, or whose value nobody understands; it names them all.

    ``read`` names keys, without the architecture's name before them, that the architecture file reads itself.
    """
    unknown = []
    for key in file.metadata:
        prefix, _, name = key.partition(".")
        if prefix != architecture or name in _READ_KEYS or name in read:
            continue
        value = file.metadata.get(key)
        plain = isinstance(value, bool | int | float | str)  # an array is no single value, and compares as none
        if not plain or value not in _UNDERSTOOD_VALUES.get(name, ()):
            unknown.append(f"'{key}' = {value!r}")
    if len(unknown) == 1:
        raise UnsupportedModelError(f"metadata key {unknown[0]} is not supported, and ignoring it would run another model")
    if unknown:
        raise UnsupportedModelError(f"metadata keys {', '.join(unknown)} are not supported, and ignoring them would run another model")


def read_head_dim(file: ModelFile, architecture: str) -> int:
    """Width of a head: stated, or an equal share of the hidden width. Raises ModelFileError, UnsupportedModelError."""
    meta = file.metadata
    hidden = meta.integer(f"{architecture}.embedding_length")
    heads = meta.count(f"{architecture}.attention.head_count")
    if f"{architecture}.attention.key_length" not in meta and hidden % heads:
        raise ModelFileError(f"embedding_length {hidden} is not a multiple of head_count {heads}, and no key_length is given")
    head_dim = meta.integer(f"{architecture}.attention.key_length", hidden // heads)
    value_dim = meta.integer(f"{architecture}.attention.value_length", head_dim)
    if value_dim != head_dim:
        raise UnsupportedModelError(f"value_length {value_dim} differs from key_length {head_dim}; only equal lengths are supported")
    return head_dim


def read_rotation(file: ModelFile, architecture: str, *, head_dim: int, style: RopeStyle) -> Rotation:
    """The rotation of all layers, scaled as the metadata say. Raises ModelFileError for impossible values."""
    meta = file.metadata
    plain = Rotation(
        dims=meta.integer(f"{architecture}.rope.dimension_count", head_dim),
        theta=meta.number(f"{architecture}.rope.freq_base", 10000.0),
        style=style,
    )
    return replace(plain, factors=_stated_factors(file, architecture, plain))


def _stated_factors(file: ModelFile, architecture: str, plain: Rotation) -> tuple[float, ...]:
    meta, key = file.metadata, f"{architecture}.rope.scaling"
    kind = meta.text(f"{key}.type", "")
    if kind == "none":
        return ()
    # A factor without a type is linear, as llama.cpp reads it; so is 0 for "not set".
    factor = meta.number(f"{key}.factor", meta.number(f"{architecture}.rope.scale_linear", 0.0)) or 1.0
    if kind and factor == 1.0 and f"{key}.factor" not in meta:
        raise ModelFileError(f"metadata key '{key}.factor' is missing, which scaling of type '{kind}' needs")
    if kind == "llama3":
        return llama3_factors(
            plain,
            factor=factor,
            low=meta.number(f"{key}.low_freq_factor"),
            high=meta.number(f"{key}.high_freq_factor"),
            original_context=meta.integer(f"{key}.original_context_length"),
        )
    return () if factor == 1.0 else (factor,) * (plain.dims // 2)


def llama3_factors(plain: Rotation, *, factor: float, low: float, high: float, original_context: int) -> tuple[float, ...]:
    """Llama 3.1's scaling: pairs that turn less than ``low`` times within the original context are slowed by ``factor``, pairs that turn
    more than ``high`` times not at all, and those between by a mixture (``_compute_llama3_parameters`` of the transformers library).

    Raises ModelFileError for impossible values.
    """
    if not 1 <= factor <= MAX_ROPE_FACTOR:
        raise ModelFileError(f"rotary factors must be from 1 to {MAX_ROPE_FACTOR}, got {factor}")
    if not plain.theta >= 1:
        raise ModelFileError(f"scaling of type 'llama3' needs a rope_theta of at least 1, got {plain.theta}")
    if not 0 < low < high < math.inf or original_context < 1:
        raise ModelFileError(
            "scaling of type 'llama3' needs 0 < low_freq_factor < high_freq_factor and an original context of at least 1, "
            f"got {low}, {high} and {original_context}"
        )
    factors = []
    for pair in range(plain.dims // 2):
        turns = original_context * plain.theta ** (-2 * pair / plain.dims) / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)  # the part of the frequency that stays
        factors.append(1.0 / ((1.0 - kept) / factor + kept))
    return tuple(factors)


def read_rope_factors(file: ModelFile, rotation: Rotation) -> Rotation:
    """The rotation with the factors that the file keeps as a tensor, as GGUF's converter does for Llama 3.1 and later, if it does.

    Raises ModelFileError for impossible values and UnsupportedModelError for a tensor of another type.
    """
    if ROPE_FACTORS not in file:
        return rotation
    info = file.info(ROPE_FACTORS)
    if info.type not in VECTOR_TYPES:
        raise UnsupportedModelError(f"tensor '{ROPE_FACTORS}' has type {info.type}; supported: {', '.join(VECTOR_TYPES)}")
    if info.shape != (rotation.dims // 2,):
        raise ModelFileError(f"tensor '{ROPE_FACTORS}' has shape {list(info.shape)}, but {rotation.dims // 2} pairs rotate")
    stored = file.read(ROPE_FACTORS).view(np.float32).tolist()
    stated = rotation.factors or (1.0,) * len(stored)
    return replace(rotation, factors=tuple(a * b for a, b in zip(stored, stated, strict=True)))


def read_window(file: ModelFile, architecture: str) -> int | None:
    """The window of attention where it is the same in all layers; 0 is GGUF's word for none. Raises ModelFileError."""
    return file.metadata.integer(f"{architecture}.{WINDOW}", 0) or None


def read_alike_layers(file: ModelFile, architecture: str, *, qkv_bias: bool = False, head_norms: bool = False) -> ModelConfig:
    """A model of the plain transformer whose layers are all alike and rotate the halves of a head. Raises as what it reads with."""
    head_dim = read_head_dim(file, architecture)
    rotation = read_rotation(file, architecture, head_dim=head_dim, style="halves")
    layer = LayerConfig(rotation=rotation, score_scale=1.0 / math.sqrt(head_dim), qkv_bias=qkv_bias, head_norms=head_norms)
    return read_model(file, architecture, head_dim=head_dim, pattern=(layer,))


def read_model(
    file: ModelFile,
    architecture: str,
    *,
    head_dim: int,
    pattern: tuple[LayerConfig, ...],
    activation: Activation = "silu",
    embedding_scale: float = 1.0,
) -> ModelConfig:
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
        activation=activation,
        embedding_scale=embedding_scale,
    )


# --- tensors ----------------------------------------------------------------------------------------------------------------------


def unsupported_reasons(file: ModelFile, config: ModelConfig) -> list[str]:
    """Why this build cannot run a sound file; empty when it can. Raises ModelFileError when tensors are missing or of the wrong shape."""
    expected = expected_shapes(config)
    alike: dict[str, list[str]] = {}  # reason -> tensors: a model of experts has hundreds
    for name in file.names():
        if name == ROPE_FACTORS and any(layer.rotation.factors for layer in config.pattern):
            continue  # read with the configuration
        if name not in expected:
            why = f"is none that the {config.architecture} architecture computes with{_known_extra(name)}"
            alike.setdefault(why, []).append(name)
            continue
        info = file.info(name)
        supported = VECTOR_TYPES if len(expected[name]) == 1 else MATRIX_TYPES
        if info.type not in supported:
            alike.setdefault(f"has type {info.type}; supported: {', '.join(supported)}", []).append(name)
    for name, shape in expected.items():
        found = file.info(name).shape
        if found != shape:
            raise ModelFileError(f"tensor '{name}' has shape {list(found)}, but the metadata calls for {list(shape)}")
    return _in_words(alike)


def type_reasons(file: ModelFile) -> list[str]:
    """What of the tensors' types alone rules a file out, whatever its architecture."""
    alike: dict[str, list[str]] = {}
    for name in file.names():
        info = file.info(name)
        if info.type not in MATRIX_TYPES:
            alike.setdefault(f"has type {info.type}; supported: {', '.join(MATRIX_TYPES)}", []).append(name)
    return _in_words(alike)


def _in_words(alike: Mapping[str, list[str]]) -> list[str]:
    """One sentence for all tensors with the same reason."""
    more = {why: f" ({len(names) - 1} more alike)" if len(names) > 1 else "" for why, names in alike.items()}
    return [f"tensor '{names[0]}'{more[why]} {why}" for why, names in alike.items()]


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor that the schedule reads, with its shape."""
    hidden, vocab = config.hidden, config.vocab_size
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (vocab, hidden), FINAL_NORM: (hidden,)}
    if not config.tied_head:
        shapes[HEAD] = (vocab, hidden)
    for index in range(config.layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in _layer_shapes(config, config.layer(index)).items()}
    return shapes


def _layer_shapes(config: ModelConfig, layer: LayerConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden
    shapes: dict[str, tuple[int, ...]] = {
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
    if layer.qkv_bias:
        shapes |= {"attn_q.bias": (config.heads_width,), "attn_k.bias": (config.kv_width,), "attn_v.bias": (config.kv_width,)}
    if layer.head_norms:
        shapes |= {"attn_q_norm.weight": (config.head_dim,), "attn_k_norm.weight": (config.head_dim,)}
    if layer.post_norms:
        shapes |= {"post_attention_norm.weight": (hidden,), "post_ffw_norm.weight": (hidden,)}
    return shapes


def _known_extra(name: str) -> str:
    """A word on what an unexpected tensor is, where that is well known."""
    if name == "rope_freqs.weight":
        return " (rotary frequency scaling)"
    if name.endswith(".bias"):
        return " (a bias)"
    if re.search(r"_exps?\.|_inp\.", name):
        return " (mixture of experts)"
    if name.startswith(("v.", "mm.")):
        return " (a part for images; only text is computed)"
    return ""


# --- the schedule -----------------------------------------------------------------------------------------------------------------


def write_schedule(config: ModelConfig) -> Schedule:
    """The static program of one pass."""
    ops: list[Op] = [Embed(weight=EMBEDDING, out="residual", scale=config.embedding_scale)]
    for index in range(config.layers):
        ops += _attention_ops(config, index)
        ops += _feed_forward_ops(config, index)
    ops += [
        SelectRows(x="residual", out="selected"),
        RMSNorm(x="selected", weight=FINAL_NORM, out="selected_normed", eps=config.rms_eps),
        Matmul(x="selected_normed", weights=(EMBEDDING if config.tied_head else HEAD,), out="logits"),
    ]
    projected = {"projected": config.hidden} if any(layer.post_norms for layer in config.pattern) else {}
    return Schedule(
        ops=tuple(ops),
        buffers={
            "residual": config.hidden,
            "normed": config.hidden,
            **projected,
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
        *_query_key_ops(config, layer, block),
        StoreKV(x="qkv", k_offset=config.heads_width, v_offset=config.heads_width + config.kv_width, layer=index),
        Attention(x="qkv", q_offset=0, out="attended", layer=index, heads=config.heads, scale=layer.score_scale, window=layer.window),
        *_residual_ops(config, layer, "attended", f"{block}.attn_output.weight", f"{block}.post_attention_norm.weight"),
    ]


def _query_key_ops(config: ModelConfig, layer: LayerConfig, block: str) -> list[Op]:
    """What happens to queries, keys and values between their product and the cache."""
    ops: list[Op] = []
    if layer.qkv_bias:
        ops.append(AddBias(x="qkv", weights=tuple(f"{block}.attn_{part}.bias" for part in "qkv")))
    if layer.head_norms:
        for part, offset, heads in (("q", 0, config.heads), ("k", config.heads_width, config.kv_heads)):
            weight = f"{block}.attn_{part}_norm.weight"
            ops.append(HeadNorm(x="qkv", weight=weight, offset=offset, heads=heads, head_dim=config.head_dim, eps=config.rms_eps))
    # Queries and keys lie side by side, so one rotation covers both.
    ops.append(
        Rope(
            x="qkv",
            offset=0,
            heads=config.heads + config.kv_heads,
            head_dim=config.head_dim,
            rotary_dim=layer.rotation.dims,
            theta=layer.rotation.theta,
            style=layer.rotation.style,
            factors=layer.rotation.factors,
        )
    )
    return ops


def _residual_ops(config: ModelConfig, layer: LayerConfig, x: str, weight: str, post_norm: str) -> list[Op]:
    """The last product of attention or feed-forward, added to the residual."""
    if not layer.post_norms:
        return [Matmul(x=x, weights=(weight,), out="residual", accumulate=True)]
    return [
        Matmul(x=x, weights=(weight,), out="projected"),
        RMSNorm(x="projected", weight=post_norm, out="residual", eps=config.rms_eps, accumulate=True),
    ]


def _feed_forward_ops(config: ModelConfig, index: int) -> list[Op]:
    block, layer = f"blk.{index}", config.layer(index)
    return [
        RMSNorm(x="residual", weight=f"{block}.ffn_norm.weight", out="normed", eps=config.rms_eps),
        Matmul(x="normed", weights=(f"{block}.ffn_gate.weight", f"{block}.ffn_up.weight"), out="gate_up"),
        GatedActivation(kind=config.activation, x="gate_up", out="activated"),
        *_residual_ops(config, layer, "activated", f"{block}.ffn_down.weight", f"{block}.post_ffw_norm.weight"),
    ]
