"""Qwen2 and Qwen2.5: queries, keys and values have biases (Yang et al., 2024). The rotation pairs the halves of a head."""

from __future__ import annotations

from swiftsure.models.config import ModelConfig
from swiftsure.models.model_file import ModelFile
from swiftsure.models.transformer import read_alike_layers, refuse_unknown_keys

NAME = "qwen2"


def read_config(file: ModelFile) -> ModelConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for features that are not computed."""
    refuse_unknown_keys(file, NAME)
    return read_alike_layers(file, NAME, qkv_bias=True)
