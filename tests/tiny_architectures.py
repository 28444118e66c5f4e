"""What sets the architectures apart, written down a second time, for the tiny models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from swiftsure.models.schedule import Activation, RopeStyle

if TYPE_CHECKING:
    from tiny_models import TinySpec

ROPE_FACTORS = "rope_freqs.weight"
Scaling: TypeAlias = Literal["none", "linear", "llama3"]

# Of the llama3 scaling; the original context is short, so that tests stand far beyond it.
LOW_FREQ_FACTOR, HIGH_FREQ_FACTOR, ORIGINAL_CONTEXT = 1.0, 4.0, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyArchitecture:
    """One architecture. ``config`` holds what its ``config.json`` says beyond the fields that all have."""

    huggingface: str  # class of the transformers library
    rope_style: RopeStyle  # in GGUF files
    qkv_bias: bool = False
    head_norms: bool = False
    post_norms: bool = False
    activation: Activation = "silu"
    scaled_embedding: bool = False
    local_theta: float | None = None  # of layers with a window, where not all have one
    norm_offset: float = 0.0  # what GGUF's converter adds to the weights of norms
    model_type: str | None = None  # in ``config.json``; None: GGUF's name
    config: Mapping[str, Any] = field(default_factory=dict)


ARCHITECTURES: Mapping[str, TinyArchitecture] = {
    "llama": TinyArchitecture(
        huggingface="LlamaForCausalLM", rope_style="interleaved", config={"attention_bias": False, "mlp_bias": False}
    ),
    "qwen2": TinyArchitecture(huggingface="Qwen2ForCausalLM", rope_style="halves", qkv_bias=True, config={"use_sliding_window": False}),
    "qwen3": TinyArchitecture(
        huggingface="Qwen3ForCausalLM",
        rope_style="halves",
        head_norms=True,
        config={"attention_bias": False, "use_sliding_window": False},
    ),
    "gemma3": TinyArchitecture(
        huggingface="Gemma3ForCausalLM",
        rope_style="halves",
        head_norms=True,
        post_norms=True,
        activation="gelu_tanh",
        scaled_embedding=True,
        local_theta=10000.0,
        norm_offset=1.0,
        model_type="gemma3_text",
        config={"attention_bias": False, "hidden_activation": "gelu_pytorch_tanh"},
    ),
}


def is_local(spec: TinySpec, layer: int) -> bool:
    """Whether attention of the layer sees the window only: the last layer of every ``spec.global_every`` sees everything."""
    return spec.window is not None and (spec.kind.local_theta is None or (layer + 1) % spec.global_every != 0)


def huggingface_window(spec: TinySpec) -> dict[str, Any]:
    """What ``config.json`` says about the window. A llama with one is called Mistral there."""
    if spec.window is None:
        return {}
    if spec.architecture == "llama":
        return {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": spec.window}
    every = {} if spec.global_every == 6 else {"sliding_window_pattern": spec.global_every}
    return {"sliding_window": spec.window, "query_pre_attn_scalar": spec.head_dim, **every}


def rope_factors(spec: TinySpec) -> tuple[float, ...]:
    """What each pair's frequency is divided by, as GGUF's converter writes it down (float32) for the llama3 scaling; none without any."""
    pairs = spec.head_dim // 2
    if spec.scaling == "none":
        return ()
    if spec.scaling == "linear":
        return (spec.scaling_factor,) * pairs
    low_wavelength, high_wavelength = ORIGINAL_CONTEXT / LOW_FREQ_FACTOR, ORIGINAL_CONTEXT / HIGH_FREQ_FACTOR
    factors = []
    for wavelength in 2 * np.pi * spec.rope_theta ** (np.arange(pairs) / pairs):
        if wavelength < high_wavelength:
            factors.append(1.0)
        elif wavelength > low_wavelength:
            factors.append(spec.scaling_factor)
        else:
            smooth = (ORIGINAL_CONTEXT / wavelength - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR)
            factors.append(1 / ((1 - smooth) / spec.scaling_factor + smooth))
    return tuple(np.array(factors, np.float32).tolist())


def huggingface_scaling(spec: TinySpec) -> dict[str, Any]:
    """The ``rope_scaling`` of a ``config.json``."""
    if spec.scaling == "none":
        return {}
    scaling: dict[str, Any] = {"rope_type": spec.scaling, "factor": spec.scaling_factor}
    if spec.scaling == "llama3":
        scaling |= {"low_freq_factor": LOW_FREQ_FACTOR, "high_freq_factor": HIGH_FREQ_FACTOR}
        scaling |= {"original_max_position_embeddings": ORIGINAL_CONTEXT}
    return {"rope_scaling": scaling}
