"""Llama 1 to 3.x, SmolLM2, TinyLlama and their relatives: pre-norm transformer, rotary grouped-query attention, gated SiLU feed-forward
(Touvron et al., 2023).

From Llama 3.1 on, rotary frequencies are scaled; GGUF's converter keeps the factors as a tensor. Mistral 7B (Jiang et al., 2023) is of this
family and GGUF gives it this name; its first version sees a window of positions in every layer, which few files state.
"""

from __future__ import annotations

import math

from swiftsure.models.config import LayerConfig, ModelConfig
from swiftsure.models.model_file import ModelFile
from swiftsure.models.transformer import (
    WINDOW,
    read_head_dim,
    read_model,
    read_rope_factors,
    read_rotation,
    read_window,
    refuse_unknown_keys,
)

NAME = "llama"


def read_config(file: ModelFile) -> ModelConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for features that are not computed."""
    refuse_unknown_keys(file, NAME, read=(WINDOW,))
    head_dim = read_head_dim(file, NAME)
    rotation = read_rotation(file, NAME, head_dim=head_dim, style="interleaved" if file.permuted_rope else "halves")
    rotation = read_rope_factors(file, rotation)
    layer = LayerConfig(rotation=rotation, score_scale=1.0 / math.sqrt(head_dim), window=read_window(file, NAME))
    return read_model(file, NAME, head_dim=head_dim, pattern=(layer,))
