"""``config.json`` of the transformers library in GGUF's words, so that an architecture reads either format.

Every field is read, known to change nothing about the logits, or refused by name: a scaling or a bias that is ignored gives fluent text
from another model. A field that is null counts as absent, as it does there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.gguf_header import Value
from swiftsure.models.hf_tensors import LAYER_NAMES

FILE = "config.json"
_LARGEST = 1 << 62

# Fields about training, storage, tokens or other tasks: no logit depends on them.
_HARMLESS = frozenset(
    (
        "_attn_implementation", "_attn_implementation_autoset", "_name_or_path", "attention_dropout", "bos_token_id",
        "cache_implementation", "embd_pdrop", "eos_token_id", "hidden_dropout", "id2label", "initializer_range", "label2id",
        "output_attentions", "output_hidden_states", "pad_token_id", "problem_type", "resid_pdrop", "return_dict",
        "task_specific_params", "torchscript", "transformers.js_config", "transformers_version", "unsloth_fixed", "unsloth_version",
        "use_cache",
    )
)  # fmt: skip
# Fields of every family whose stated value means "nothing out of the ordinary".
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "add_cross_attention": (False,),
    "attention_bias": (False,),
    "chunk_size_feed_forward": (0,),
    "dtype": ("float32", "float16", "bfloat16"),  # of training and of the files, which say it themselves tensor by tensor
    "is_decoder": (False, True),
    "is_encoder_decoder": (False,),
    "is_llama_config": (True,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1,),
    "pretraining_tp": (1,),
    "rope_interleaved": (False,),
    "torch_dtype": ("float32", "float16", "bfloat16"),
    "use_mrope": (False,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the transformers library fixes for a ``model_type``."""

    model_type: str
    architecture: str  # GGUF's name of it
    causal_class: str  # the class of it that gives logits
    activation: tuple[str, str] = ("hidden_act", "silu")  # field and the one value
    tied: bool = False  # the head is the embedding when the file does not say
    head_dim: int | None = None  # when the file does not say; None: hidden_size / num_attention_heads
    kv_heads_stated: bool = True  # the library's own default is a number that no file should rely on
    layer_names: Mapping[str, str] = field(default_factory=lambda: LAYER_NAMES)
    norm_offset: float = 0.0  # what is added to the stored weight of a norm
    neutral: Mapping[str, tuple[object, ...]] = field(default_factory=dict)


FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (Family(model_type="llama", architecture="llama", causal_class="LlamaForCausalLM", kv_heads_stated=False),)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedConfig:
    """``metadata`` under GGUF's keys. ``rope_factors``: what each rotary frequency is divided by, float32 (rotary_dim / 2,); None: by 1."""

    family: Family
    metadata: dict[str, Value]
    layers: int
    tied: bool
    rope_factors: NDArray[np.float32] | None


def translate(values: Mapping[str, Any]) -> TranslatedConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for models and features that are not computed here."""
    config = _Fields(values)
    family = _family_of(config)
    config.refuse_unless("architectures", ([family.causal_class],))
    config.refuse_unless(family.activation[0], (family.activation[1],))
    heads = config.integer("num_attention_heads")
    hidden = config.integer("hidden_size")
    layers = config.integer("num_hidden_layers")
    head_dim = config.integer("head_dim", family.head_dim or _even_share(hidden, heads))
    kv_heads = config.integer("num_key_value_heads", None if family.kv_heads_stated else heads)
    tied = config.boolean("tie_word_embeddings", family.tied)
    arch = family.architecture
    metadata: dict[str, Value] = {
        "general.architecture": arch,
        f"{arch}.block_count": layers,
        f"{arch}.context_length": config.integer("max_position_embeddings"),
        f"{arch}.embedding_length": hidden,
        f"{arch}.feed_forward_length": config.integer("intermediate_size"),
        f"{arch}.attention.head_count": heads,
        f"{arch}.attention.head_count_kv": kv_heads,
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        f"{arch}.rope.dimension_count": head_dim,
        f"{arch}.vocab_size": config.integer("vocab_size"),
    }
    rope, factors = _read_rope(config, arch, head_dim)
    config.refuse_unread(_NEUTRAL | dict(family.neutral))
    return TranslatedConfig(family=family, metadata=metadata | rope, layers=layers, tied=tied, rope_factors=factors)


def _family_of(config: _Fields) -> Family:
    model_type = config.text("model_type")
    if model_type not in FAMILIES:
        raise UnsupportedModelError(f"{FILE}: model_type {model_type!r} is not supported; supported: {', '.join(sorted(FAMILIES))}")
    return FAMILIES[model_type]


def _even_share(hidden: int, heads: int) -> int:
    if heads < 1 or hidden % heads:
        raise ModelFileError(f"{FILE}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and no head_dim is given")
    return hidden // heads


def _read_rope(config: _Fields, arch: str, head_dim: int) -> tuple[dict[str, Value], NDArray[np.float32] | None]:
    """``rope_theta`` and ``rope_scaling``, or ``rope_parameters`` that holds both since version 5 of the library."""
    old, new = config.section("rope_scaling"), config.section("rope_parameters")
    if old.given and new.given:
        raise UnsupportedModelError(f"{FILE}: gives both rope_scaling and rope_parameters; which of them counts is not known")
    rope = new if new.given else old
    theta = rope.number("rope_theta", config.number("rope_theta", 10000.0))
    metadata: dict[str, Value] = {f"{arch}.rope.freq_base": theta}
    kind = rope.text("rope_type", rope.text("type", "default"))
    rope.refuse_unless("partial_rotary_factor", (1,))
    factors = None
    if kind == "linear":
        metadata |= {f"{arch}.rope.scaling.type": "linear", f"{arch}.rope.scaling.factor": rope.positive("factor")}
    elif kind == "llama3":
        factors = _llama3_factors(rope, theta, head_dim)
    elif kind != "default":
        raise UnsupportedModelError(f"{FILE}: {rope.where('rope_type')} {kind!r} is not supported; supported: default, linear, llama3")
    rope.refuse_unread({})
    return metadata, factors


def _llama3_factors(rope: _Fields, theta: float, head_dim: int) -> NDArray[np.float32]:
    """Long waves are stretched by ``factor``, short ones are left, those between blend: ``_compute_llama3_parameters`` of the library."""
    factor, context = rope.positive("factor"), rope.positive("original_max_position_embeddings")
    low, high = rope.positive("low_freq_factor"), rope.positive("high_freq_factor")
    if not low < high:
        raise ModelFileError(f"{FILE}: low_freq_factor must be below high_freq_factor, got {low} and {high}")
    if not (1 <= theta < 1e30 and 2 <= head_dim <= 1 << 16):
        raise ModelFileError(f"{FILE}: rope_theta must be at least 1 and head_dim from 2 to 65536, got {theta} and {head_dim}")
    turns = context * theta ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * math.pi)  # (head_dim / 2,) full turns within the old context
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 / ((1 - blend) / factor + blend)).astype(np.float32)


class _Fields:
    """Fields of an object, each noted when it is read; an error names the file, the field and the value."""

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = {key: value for key, value in values.items() if value is not None}
        self._prefix = prefix
        self._read: set[str] = set()

    @property
    def given(self) -> bool:
        return bool(self._values)

    def where(self, key: str) -> str:
        return self._prefix + key

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _LARGEST:
            raise ModelFileError(f"{FILE}: {self.where(key)} must be a whole number of at least 0, got {_shown(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._take(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < _LARGEST:
            raise ModelFileError(f"{FILE}: {self.where(key)} must be a number, got {_shown(value)}")
        return float(value)

    def positive(self, key: str) -> float:
        value = self.number(key)
        if not value > 0:
            raise ModelFileError(f"{FILE}: {self.where(key)} must be above 0, got {value}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise ModelFileError(f"{FILE}: {self.where(key)} must be true or false, got {_shown(value)}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, default)
        if not isinstance(value, str):
            raise ModelFileError(f"{FILE}: {self.where(key)} must be a text, got {_shown(value)}")
        return value

    def section(self, key: str) -> _Fields:
        """An object within; empty when absent."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise ModelFileError(f"{FILE}: {self.where(key)} must be an object, got {_shown(value)}")
        return _Fields(value, f"{self.where(key)}.")

    def refuse_unless(self, key: str, known: tuple[object, ...]) -> None:
        """Refuses a stated value that is none of ``known``."""
        self._read.add(key)
        if key in self._values and not _is_one_of(self._values[key], known):
            raise _not_supported(self.where(key), self._values[key])

    def refuse_unread(self, neutral: Mapping[str, tuple[object, ...]]) -> None:
        """Refuses, by name, what nobody read, unless it is harmless or has a neutral value."""
        for key, value in self._values.items():
            if key in self._read or key in _HARMLESS or (key in neutral and _is_one_of(value, neutral[key])):
                continue
            raise _not_supported(self.where(key), value)

    def _take(self, key: str, default: object) -> object:
        self._read.add(key)
        value = self._values.get(key, default)
        if value is None:
            raise ModelFileError(f"{FILE}: {self.where(key)} is missing")
        return value


def _is_one_of(value: object, known: tuple[object, ...]) -> bool:
    """By value and kind: 1 is neither true nor the other way around, but 1 and 1.0 are the same."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in known)


def _not_supported(key: str, value: object) -> UnsupportedModelError:
    return UnsupportedModelError(f"{FILE}: {key} = {_shown(value)} is not supported, and ignoring it would run another model")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
