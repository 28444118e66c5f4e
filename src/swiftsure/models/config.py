"""The shape of a model, checked once, so that nobody below has to."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from swiftsure.errors import ModelFileError
from swiftsure.models.schedule import RopeStyle

# Far above any released model, far below what would overflow a 32-bit index or a sane allocation.
MAX_LAYERS = 4096
MAX_WIDTH = 1 << 20
MAX_VOCABULARY = 1 << 22
MAX_CONTEXT = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer with grouped-query attention. Widths are in elements.

    Raises ModelFileError when a value is impossible, with the field and the value.
    """

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int  # leading dimensions of a head that rotate
    intermediate: int  # width of the feed-forward layer
    vocab_size: int
    context_length: int  # positions the model was made for
    rope_theta: float
    rope_style: RopeStyle
    rms_eps: float
    tied_head: bool  # the head is the embedding

    def __post_init__(self) -> None:
        limits = {
            "layers": MAX_LAYERS,
            "hidden": MAX_WIDTH,
            "heads": MAX_WIDTH,
            "kv_heads": MAX_WIDTH,
            "head_dim": MAX_WIDTH,
            "rotary_dim": MAX_WIDTH,
            "intermediate": MAX_WIDTH,
            "vocab_size": MAX_VOCABULARY,
            "context_length": MAX_CONTEXT,
        }
        for field in fields(self):
            limit = limits.get(field.name)
            value = getattr(self, field.name)
            if limit is not None and not 1 <= value <= limit:
                raise ModelFileError(f"{field.name} must be between 1 and {limit}, got {value}")
        if self.heads % self.kv_heads:
            raise ModelFileError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.rotary_dim % 2 or self.rotary_dim > self.head_dim:
            raise ModelFileError(f"rotary_dim must be even and at most head_dim ({self.head_dim}), got {self.rotary_dim}")
        if not (math.isfinite(self.rope_theta) and self.rope_theta > 0):
            raise ModelFileError(f"rope_theta must be a positive number, got {self.rope_theta}")
        if not (math.isfinite(self.rms_eps) and 0 <= self.rms_eps < 1):
            raise ModelFileError(f"rms_eps must be at least 0 and below 1, got {self.rms_eps}")
