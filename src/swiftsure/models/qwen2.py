"""Qwen2 and Qwen2.5: queries, keys and values have biases (Yang et al., 2024). The rotation pairs the halves of a head."""

from __future__ import annotations

import math

from swiftsure.models.config import LayerConfig, ModelConfig
from swiftsure.models.model_file import ModelFile
from swiftsure.models.transformer import read_head_dim, read_model, read_rotation, refuse_unknown_keys

NAME = "qwen2"


def read_config(file: ModelFile) -> ModelConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for features that are not computed."""
    refuse_unknown_keys(file, NAME)
    head_dim = read_head_dim(file, NAME)
    rotation = read_rotation(file, NAME, head_dim=head_dim, style="halves")
    layer = LayerConfig(rotation=rotation, score_scale=1.0 / math.sqrt(head_dim), qkv_bias=True)
    return read_model(file, NAME, head_dim=head_dim, pattern=(layer,))
