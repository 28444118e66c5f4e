"""The model types of the transformers library that run: their defaults, their own fields of ``config.json``, their tensors' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from swiftsure.errors import ModelFileError
from swiftsure.models.gguf_header import Value
from swiftsure.models.hf_tensors import GEMMA3_LAYER_NAMES, LAYER_NAMES
from swiftsure.models.json_files import Fields

# Of the rotation, where a file does not say; of Gemma 3's layers that see everything.
_THETA = 10000.0
_GEMMA3_GLOBAL_THETA = 1000000.0
_GEMMA3_HEAD_DIM = 256
_GEMMA3_SCALAR = 256
_GEMMA3_PERIOD = 6
_EVERYTHING, _WINDOWED = "full_attention", "sliding_attention"


def _read_rope(config: Fields) -> dict[str, Value]:
    """``rope_theta`` and ``rope_scaling``, or ``rope_parameters`` that holds both since version 5 of the library."""
    old, new = config.section("rope_scaling"), config.section("rope_parameters")
    if old.given and new.given:
        config.refuse("rope_scaling", "and rope_parameters are both given; which of them counts is not known")
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
        rope.refuse("rope_type", f"{kind!r} is not supported; supported: default, linear, llama3")
        return {}  # its other fields are that kind's own
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
    if set(config.texts("layer_types")) - {_EVERYTHING}:
        config.refuse("layer_types", "may name full_attention alone")
    return values


def _read_mistral(config: Fields) -> dict[str, Value]:
    values = _read_rope(config)
    if config.is_null("sliding_window"):
        return values
    if "sliding_window" not in config:  # the library would take 4096
        raise ModelFileError(f"{config.where('sliding_window')} is missing; null says that there is none")
    return values | {"attention.sliding_window": config.integer("sliding_window")}


def _read_gemma3(config: Fields) -> dict[str, Value]:
    """Two rotations: of the layers that see everything, which alone may be scaled, and of those with a window."""
    old, new = config.section("rope_scaling"), config.section("rope_parameters")
    everything, near = new.section("full_attention"), new.section("sliding_attention")
    new.refuse_unread({})
    if old.given and new.given:
        config.refuse("rope_scaling", "and rope_parameters are both given; which of them counts is not known")
    theta = everything.number("rope_theta", config.number("rope_theta", _GEMMA3_GLOBAL_THETA))
    near_theta = near.number("rope_theta", config.number("rope_local_base_freq", _THETA))
    near.refuse_unless("rope_type", ("default",))
    near.refuse_unread({})
    values: dict[str, Value] = {"rope.freq_base": theta, **_read_scaling(everything if new.given else old, config)}
    if near_theta != _THETA:
        values["rope.freq_base_swa"] = near_theta
    # Always stated: what GGUF files leave out depends on the size of the model.
    values["attention.scale"] = _positive_scalar(config) ** -0.5
    period = _gemma3_period(config)
    if period != _GEMMA3_PERIOD:
        values["attention.sliding_window_pattern"] = period
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        config.refuse_unless(key, ())
    config.refuse_unless("use_bidirectional_attention", (False,))
    return values | {"attention.sliding_window": config.integer("sliding_window")}


def _positive_scalar(config: Fields) -> float:
    return config.positive("query_pre_attn_scalar") if "query_pre_attn_scalar" in config else float(_GEMMA3_SCALAR)


def _gemma3_period(config: Fields) -> int:
    """Every so many layers one sees everything, the last of each period. A list of layers comes before a number, as in the library."""
    layers, stated = config.integer("num_hidden_layers"), config.texts("layer_types")
    period = config.integer("sliding_window_pattern", config.integer("_sliding_window_pattern", _GEMMA3_PERIOD))
    if not stated:
        return period
    if len(stated) != layers:
        raise ModelFileError(f"{config.where('layer_types')} names {len(stated)} layers of {layers}")
    if _EVERYTHING in stated:
        period = stated.index(_EVERYTHING) + 1
    elif period <= layers:
        period = layers + 1
    if stated != [_WINDOWED if (i + 1) % period else _EVERYTHING for i in range(layers)]:
        config.refuse("layer_types", f"must repeat: {_WINDOWED} some times, then {_EVERYTHING}")
    return period


FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        Family(model_type="llama", architecture="llama", causal_class="LlamaForCausalLM", kv_heads_stated=False),
        Family(model_type="qwen2", architecture="qwen2", causal_class="Qwen2ForCausalLM", read_more=_read_qwen),
        Family(model_type="mistral", architecture="llama", causal_class="MistralForCausalLM", read_more=_read_mistral),
        Family(model_type="qwen3", architecture="qwen3", causal_class="Qwen3ForCausalLM", head_dim=128, read_more=_read_qwen),
        Family(
            model_type="gemma3_text",
            architecture="gemma3",
            causal_class="Gemma3ForCausalLM",
            activation=("hidden_activation", ("gelu_pytorch_tanh",)),
            tied=True,
            head_dim=_GEMMA3_HEAD_DIM,
            norm_offset=1.0,
            layer_names=GEMMA3_LAYER_NAMES,
            read_more=_read_gemma3,
        ),
    )
}
