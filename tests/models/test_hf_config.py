"""Configurations of every model type in GGUF's words: those of released models, and those that are not computed."""

from __future__ import annotations

from typing import Any

import pytest

from swiftsure.errors import ModelError, ModelFileError, UnsupportedModelError
from swiftsure.models.hf_config import translate

# Fields of published configurations; widths of the small members.
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": True,
    "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
    "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": False,
    "rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers.js_config": {"dtype": "q4"},
    "transformers_version": "4.42.3", "use_cache": True, "vocab_size": 49152,
}  # fmt: skip
LLAMA_3_2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3",
    },
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256,
}  # fmt: skip
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0",
    "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
QWEN2_5 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu",
    "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21,
    "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": None,
    "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
GEMMA_3 = {
    "_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "bos_token_id": 2, "eos_token_id": 1, "final_logit_softcapping": None, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640, "initializer_range": 0.02, "intermediate_size": 2048,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000.0, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 512,
    "torch_dtype": "bfloat16", "transformers_version": "4.55.0.dev0", "use_bidirectional_attention": False, "use_cache": True,
    "vocab_size": 262144,
}  # fmt: skip


def own(config: dict[str, Any]) -> dict[str, Any]:
    """The metadata below the architecture's name."""
    metadata = translate(config).metadata
    prefix = f"{metadata['general.architecture']}."
    return {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}


def widths(
    layers: int, context: int, hidden: int, inner: int, heads: int, kv_heads: int, head_dim: int, eps: float, vocab: int
) -> dict[str, Any]:
    return {
        "block_count": layers, "context_length": context, "embedding_length": hidden, "feed_forward_length": inner,
        "attention.head_count": heads, "attention.head_count_kv": kv_heads, "attention.key_length": head_dim,
        "attention.value_length": head_dim, "attention.layer_norm_rms_epsilon": eps, "rope.dimension_count": head_dim, "vocab_size": vocab,
    }  # fmt: skip


def test_released_llamas_are_understood() -> None:
    assert own(SMOLLM2) == widths(30, 8192, 576, 1536, 9, 3, 64, 1e-5, 49152) | {"rope.freq_base": 100000.0}
    assert translate(SMOLLM2).tied
    assert own(LLAMA_3_2) == widths(16, 131072, 2048, 8192, 32, 8, 64, 1e-5, 128256) | {
        "rope.freq_base": 500000.0,
        "rope.scaling.type": "llama3",
        "rope.scaling.factor": 32.0,
        "rope.scaling.low_freq_factor": 1.0,
        "rope.scaling.high_freq_factor": 4.0,
        "rope.scaling.original_context_length": 8192,
    }


def test_released_qwens_are_understood_and_an_unused_window_means_nothing() -> None:
    assert own(QWEN2_5) == widths(24, 32768, 896, 4864, 14, 2, 64, 1e-6, 151936) | {"rope.freq_base": 1e6}
    assert own(QWEN3) == widths(28, 40960, 1024, 3072, 16, 8, 128, 1e-6, 151936) | {"rope.freq_base": 1e6}


def test_a_field_that_is_absent_has_the_librarys_default() -> None:
    silent = ("rope_theta", "rms_norm_eps", "tie_word_embeddings", "num_key_value_heads")
    bare = {key: value for key, value in SMOLLM2.items() if key not in silent}
    assert own(bare) == widths(30, 8192, 576, 1536, 9, 9, 64, 1e-6, 49152) | {"rope.freq_base": 10000.0}
    assert not translate(bare).tied


def refusal_of(config: dict[str, Any], kind: type[ModelError]) -> str:
    """What is said of a damaged configuration, or of a sound one that cannot be run: there must be one thing to say."""
    if kind is UnsupportedModelError:
        [reason] = translate(config).unsupported
        return reason
    with pytest.raises(kind) as caught:
        translate(config)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        (QWEN2_5 | {"use_sliding_window": True}, UnsupportedModelError, "use_sliding_window = True"),
        (QWEN3 | {"layer_types": ["sliding_attention"] * 28}, UnsupportedModelError, "layer_types may name full_attention alone"),
        (QWEN3 | {"layer_types": [1]}, ModelFileError, "layer_types must be a list of texts"),
        (QWEN3 | {"attention_bias": True}, UnsupportedModelError, "attention_bias = True"),
        (QWEN2_5 | {"num_key_value_heads": None}, ModelFileError, "num_key_value_heads is missing"),
        (SMOLLM2 | {"tie_word_embeddings": None}, ModelFileError, "tie_word_embeddings must be true or false, got None"),
        (SMOLLM2 | {"sliding_window": 4096}, UnsupportedModelError, "sliding_window = 4096 is not supported"),
    ],
)
def test_what_a_family_does_not_compute_is_refused_by_name(config: dict[str, Any], kind: type[ModelError], words: str) -> None:
    assert words in refusal_of(config, kind)


def test_a_released_mistral_has_its_window_and_null_says_there_is_none() -> None:
    expected = widths(32, 32768, 4096, 14336, 32, 8, 128, 1e-5, 32000) | {"rope.freq_base": 10000.0}
    assert own(MISTRAL) == expected | {"attention.sliding_window": 4096}
    assert own(MISTRAL | {"sliding_window": None}) == expected
    silent = {key: value for key, value in MISTRAL.items() if key != "sliding_window"}
    with pytest.raises(ModelFileError, match="sliding_window is missing; null says that there is none"):
        translate(silent)


def test_a_released_gemma_3_is_understood_in_old_and_new_words() -> None:
    expected = widths(18, 32768, 640, 2048, 4, 1, 256, 1e-6, 262144)
    expected |= {"rope.freq_base": 1e6, "attention.sliding_window": 512, "attention.scale": 1 / 16}
    assert own(GEMMA_3) == expected
    assert translate(GEMMA_3).tied
    rope = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    new = {key: value for key, value in GEMMA_3.items() if key not in ("rope_theta", "rope_local_base_freq", "rope_scaling")}
    assert own(new | {"rope_parameters": rope}) == expected
    scaled = own(GEMMA_3 | {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}})
    assert scaled == expected | {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"final_logit_softcapping": 30.0}, UnsupportedModelError, "final_logit_softcapping = 30.0"),
        ({"use_bidirectional_attention": True}, UnsupportedModelError, "use_bidirectional_attention = True"),
        (
            {"layer_types": ["full_attention", "sliding_attention"] * 9},
            UnsupportedModelError,
            "sliding_attention some times, then full",
        ),
        ({"query_pre_attn_scalar": 0}, ModelFileError, "query_pre_attn_scalar must be above 0, got 0"),
        ({"layer_types": ["sliding_attention"] * 5}, ModelFileError, "layer_types names 5 layers of 18"),
        ({"sliding_window": None}, ModelFileError, "sliding_window is missing"),
        ({"hidden_activation": "gelu"}, UnsupportedModelError, "hidden_activation = 'gelu'"),
        ({"rope_parameters": {"full_attention": {}, "other": {}}}, UnsupportedModelError, "rope_parameters.other"),
        ({"model_type": "gemma3"}, UnsupportedModelError, "model_type 'gemma3' is not supported"),
    ],
)
def test_a_gemma_3_that_is_not_computed_is_refused_by_name(fields: dict[str, Any], kind: type[ModelError], words: str) -> None:
    assert words in refusal_of(GEMMA_3 | fields, kind)


@pytest.mark.parametrize(
    ("fields", "period"),
    [
        ({}, None),
        ({"layer_types": None, "_sliding_window_pattern": 3}, 3),
        ({"layer_types": None, "_sliding_window_pattern": None, "sliding_window_pattern": 9}, 9),
        ({"layer_types": ["full_attention"] * 18}, 1),
        ({"layer_types": ["sliding_attention", "full_attention"] * 9}, 2),
        ({"layer_types": ["sliding_attention"] * 18}, 19),
    ],
)
def test_the_layers_that_see_everything_come_once_a_period(fields: dict[str, Any], period: int | None) -> None:
    assert own(GEMMA_3 | fields).get("attention.sliding_window_pattern") == period
