"""``config.json`` of the transformers library in GGUF's words, so that an architecture reads either format.

Every field is read, known to change nothing about the logits, or refused by name: a scaling or a bias that is ignored gives fluent text
from another model. A field that is null counts as absent, as it does there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swiftsure.errors import ModelFileError
from swiftsure.models.gguf_header import Value
from swiftsure.models.hf_families import FAMILIES, Family
from swiftsure.models.json_files import Fields

FILE = "config.json"

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
class TranslatedConfig:
    """``metadata`` under GGUF's keys; a ``family`` of None has none but the name of the model's type. ``tied``: the head is the embedding.
    ``unsupported``: every reason why the model cannot be run, in words."""

    family: Family | None
    metadata: dict[str, Value]
    tied: bool
    unsupported: tuple[str, ...] = ()


def translate(values: Mapping[str, Any]) -> TranslatedConfig:
    """Raises ModelFileError for impossible values."""
    config = Fields(values, FILE)
    model_type = config.text("model_type")
    family = FAMILIES.get(model_type)
    if family is None:  # what its fields mean is not known
        config.refuse("model_type", f"{model_type!r} is not supported; supported: {', '.join(sorted(FAMILIES))}")
        return TranslatedConfig(family=None, metadata={"general.architecture": model_type}, tied=False, unsupported=(*config.refused,))
    config.refuse_unless("architectures", ([family.causal_class],))
    config.refuse_unless(*family.activation)
    heads = config.integer("num_attention_heads")
    hidden = config.integer("hidden_size")
    head_dim = config.integer("head_dim", family.head_dim or _even_share(hidden, heads))
    tied = config.boolean("tie_word_embeddings", family.tied)
    own: dict[str, Value] = {
        "block_count": config.integer("num_hidden_layers"),
        "context_length": config.integer("max_position_embeddings"),
        "embedding_length": hidden,
        "feed_forward_length": config.integer("intermediate_size"),
        "attention.head_count": heads,
        "attention.head_count_kv": config.integer("num_key_value_heads", None if family.kv_heads_stated else heads),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        "rope.dimension_count": head_dim,
        "vocab_size": config.integer("vocab_size"),
    }
    own |= family.read_more(config)
    config.refuse_unread(_NEUTRAL, harmless=_HARMLESS)
    metadata: dict[str, Value] = {"general.architecture": family.architecture}
    metadata |= {f"{family.architecture}.{key}": own[key] for key in own}
    return TranslatedConfig(family=family, metadata=metadata, tied=tied, unsupported=(*config.refused,))


def _even_share(hidden: int, heads: int) -> int:
    if heads < 1 or hidden % heads:
        raise ModelFileError(f"{FILE}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and no head_dim is given")
    return hidden // heads
