"""Gemma 3, text (Gemma Team, 2025): norms before and after attention and feed-forward, scaled embeddings, normed queries and keys, and a
window of attention in five layers of six.

GGUF's converter adds the 1 of this family's norms, ``x * (1 + w)``, to the weights that it stores.
"""

from __future__ import annotations

import math

from swiftsure.errors import ModelFileError
from swiftsure.models.config import LayerConfig, ModelConfig, Rotation
from swiftsure.models.model_file import ModelFile
from swiftsure.models.transformer import read_head_dim, read_model, read_rotation, refuse_unknown_keys

NAME = "gemma3"

_WINDOW = "attention.sliding_window"
_PATTERN = "attention.sliding_window_pattern"
_LOCAL_BASE = "rope.freq_base_swa"
_SCORE_SCALE = "attention.scale"
_MAX_PATTERN = 64
_LAYERS_27B = 62


def read_config(file: ModelFile) -> ModelConfig:
    """Raises ModelFileError for impossible values and UnsupportedModelError for features that are not computed."""
    refuse_unknown_keys(file, NAME, read=(_WINDOW, _PATTERN, _LOCAL_BASE, _SCORE_SCALE))
    meta = file.metadata
    head_dim = read_head_dim(file, NAME)
    rotation = read_rotation(file, NAME, head_dim=head_dim, style="halves")  # a scaling that is stated is that of the global layers
    score_scale = meta.number(f"{NAME}.{_SCORE_SCALE}", _usual_score_scale(file, head_dim))
    local = LayerConfig(
        rotation=Rotation(dims=rotation.dims, theta=meta.number(f"{NAME}.{_LOCAL_BASE}", 10000.0), style="halves"),
        score_scale=score_scale,
        window=meta.integer(f"{NAME}.{_WINDOW}"),
        head_norms=True,
        post_norms=True,
    )
    everywhere = LayerConfig(rotation=rotation, score_scale=score_scale, head_norms=True, post_norms=True)
    period = meta.integer(f"{NAME}.{_PATTERN}", 6)
    if not 1 <= period <= _MAX_PATTERN:
        raise ModelFileError(f"metadata key '{NAME}.{_PATTERN}' must be between 1 and {_MAX_PATTERN}, got {period}")
    return read_model(
        file,
        NAME,
        head_dim=head_dim,
        pattern=(*[local] * (period - 1), everywhere),
        activation="gelu_tanh",
        embedding_scale=math.sqrt(meta.count(f"{NAME}.embedding_length")),
    )


def _usual_score_scale(file: ModelFile, head_dim: int) -> float:
    """The size of 27 billion parameters scales by the width of its residual's share, not of its heads; files do not say so."""
    meta = file.metadata
    if meta.integer(f"{NAME}.block_count") == _LAYERS_27B:
        return 1.0 / math.sqrt(meta.count(f"{NAME}.embedding_length") / meta.count(f"{NAME}.attention.head_count"))
    return 1.0 / math.sqrt(head_dim)
