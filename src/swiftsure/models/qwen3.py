"""Qwen3, dense: each head of queries and keys is normalized before it rotates (Yang et al., 2025); no biases."""

from __future__ import annotations

from swiftsure.models.config import ModelConfig
from swiftsure.models.model_file import ModelFile
from swiftsure.models.transformer import read_alike_layers, refuse_unknown_keys

NAME = "qwen3"


def read_config(file: ModelFile) -> ModelConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for features that are not computed."""
    refuse_unknown_keys(file, NAME)
    return read_alike_layers(file, NAME, head_norms=True)
