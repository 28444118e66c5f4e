"""The model types of the transformers library that run: their defaults, their own fields of ``config.json``, their tensors' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from swiftsure.errors import UnsupportedModelError
from swiftsure.models.gguf_header import Value
from swiftsure.models.hf_tensors import LAYER_NAMES
from swiftsure.models.json_files import Fields

_THETA = 10000.0  # of the rotation, where a file does not say


def _read_rope(config: Fields) -> dict[str, Value]:
    """``rope_theta`` and ``rope_scaling``, or ``rope_parameters`` that holds both since version 5 of the library."""
    old, new = config.section("rope_scaling"), config.section("rope_parameters")
    if old.given and new.given:
        raise UnsupportedModelError(f"{config.where('rope_scaling')} and rope_parameters are both given; which of them counts is not known")
    rope = new if new.given else old
    theta = rope.number("rope_theta", config.number("rope_theta", _THETA))
    return {"rope.freq_base": theta, **_read_scaling(rope, config)}


def _read_scaling(rope: Fields, config: Fields) -> dict[str, Value]:
    kind = rope.text("rope_type", rope.text("type", "default"))
    rope.refuse_unless("partial_rotary_factor", (1,))
    if kind == "default":
        values: dict[str, Value] = {}
    elif kind in ("linear", "llama3"):
        values = {"rope.scaling.type": kind, "rope.scaling.factor": rope.positive("factor")}
    else:
        raise UnsupportedModelError(f"{rope.where('rope_type')} {kind!r} is not supported; supported: default, linear, llama3")
    if kind == "llama3":
        values["rope.scaling.low_freq_factor"] = rope.positive("low_freq_factor")
        values["rope.scaling.high_freq_factor"] = rope.positive("high_freq_factor")
        context = rope.integer("original_max_position_embeddings", config.integer("max_position_embeddings"))
        values["rope.scaling.original_context_length"] = context
    rope.refuse_unread({})
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the transformers library fixes for a ``model_type``. ``read_more`` reads the fields that not all of them have."""

    model_type: str
    architecture: str  # GGUF's name of it
    causal_class: str  # the class of it that gives logits
    activation: tuple[str, tuple[str, ...]] = ("hidden_act", ("silu",))  # field and what it may say
    tied: bool = False  # the head is the embedding, when the file does not say
    head_dim: int | None = None  # when the file does not say; None: hidden_size / num_attention_heads
    kv_heads_stated: bool = True  # the library's own default is a number that no file should rely on
    norm_offset: float = 0.0  # what is added to the stored weight of a norm
    layer_names: Mapping[str, str] = field(default_factory=lambda: LAYER_NAMES)
    read_more: Callable[[Fields], dict[str, Value]] = _read_rope


def _read_qwen(config: Fields) -> dict[str, Value]:
    """A window that is stated and not used means nothing."""
    values = _read_rope(config)
    config.refuse_unless("use_sliding_window", (False,))
    for key in ("sliding_window", "max_window_layers"):
        config.integer(key, 0)
    if set(config.texts("layer_types")) - {"full_attention"}:
        raise UnsupportedModelError(f"{config.where('layer_types')} may name full_attention alone")
    return values


FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        Family(model_type="llama", architecture="llama", causal_class="LlamaForCausalLM", kv_heads_stated=False),
        Family(model_type="qwen2", architecture="qwen2", causal_class="Qwen2ForCausalLM", read_more=_read_qwen),
        Family(model_type="qwen3", architecture="qwen3", causal_class="Qwen3ForCausalLM", head_dim=128, read_more=_read_qwen),
    )
}
