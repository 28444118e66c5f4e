"""The shape of a model, checked once, so that nobody below has to."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from swiftsure.errors import ModelFileError
from swiftsure.models.schedule import Activation, RopeStyle

# Far above any released model, far below what would overflow a 32-bit index or a sane allocation.
MAX_LAYERS = 4096
MAX_WIDTH = 1 << 20
MAX_VOCABULARY = 1 << 22
MAX_CONTEXT = 1 << 24
MAX_ROPE_FACTOR = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """How the queries and keys of a layer rotate with their position (Su et al., 2021).

    ``factors`` slow the pairs of dimensions down, so that a model reaches further than it was first trained for.

    Raises ModelFileError when a value is impossible.
    """

    dims: int  # leading dimensions of a head that rotate
    theta: float  # base of the frequencies
    style: RopeStyle
    factors: tuple[float, ...] = ()  # (dims / 2,) what the frequency of each pair is divided by; none: 1 everywhere

    def __post_init__(self) -> None:
        if self.dims % 2 or not 1 <= self.dims <= MAX_WIDTH:
            raise ModelFileError(f"rotary_dim must be even and between 2 and {MAX_WIDTH}, got {self.dims}")
        if not (math.isfinite(self.theta) and self.theta > 0):
            raise ModelFileError(f"rope_theta must be a positive number, got {self.theta}")
        if self.factors and len(self.factors) != self.dims // 2:
            raise ModelFileError(f"there must be a rotary factor for each of {self.dims // 2} pairs, got {len(self.factors)}")
        for factor in self.factors:
            if not 1 <= factor <= MAX_ROPE_FACTOR:
                raise ModelFileError(f"rotary factors must be from 1 to {MAX_ROPE_FACTOR}, got {factor}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """What a layer computes beyond the widths that all layers share. The defaults are those of the plain pre-norm transformer."""

    rotation: Rotation
    score_scale: float  # multiplies the scores of attention
    qkv_bias: bool = False  # queries, keys and values have a bias each
    head_norms: bool = False  # each head of queries and keys is normalized before it rotates
    window: int | None = None  # positions that attention sees, the row's own included; None: all up to its own
    post_norms: bool = False  # what attention and feed-forward give is normed before it is added to the residual

    def __post_init__(self) -> None:
        if self.window is not None and not 1 <= self.window <= MAX_CONTEXT:
            raise ModelFileError(f"sliding_window must be between 1 and {MAX_CONTEXT}, got {self.window}")
        if not (math.isfinite(self.score_scale) and self.score_scale > 0):
            raise ModelFileError(f"the scale of attention scores must be a positive number, got {self.score_scale}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer with grouped-query attention. Widths are in elements.

    Raises ModelFileError when a value is impossible, with the field and the value.
    """

    architecture: str
    layers: int
    pattern: tuple[LayerConfig, ...]  # repeats through the layers: layer i is of kind i modulo its length
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int  # width of the feed-forward layer
    vocab_size: int
    context_length: int  # positions the model was made for
    rms_eps: float
    tied_head: bool  # the head is the embedding
    activation: Activation = "silu"  # of the feed-forward's gate
    embedding_scale: float = 1.0  # multiplies the rows of the embedding that are looked up

    def __post_init__(self) -> None:
        limits = {
            "layers": MAX_LAYERS,
            "hidden": MAX_WIDTH,
            "heads": MAX_WIDTH,
            "kv_heads": MAX_WIDTH,
            "head_dim": MAX_WIDTH,
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
        for layer in self.pattern:
            if layer.rotation.dims > self.head_dim:
                raise ModelFileError(f"rotary_dim must be at most head_dim ({self.head_dim}), got {layer.rotation.dims}")
        if not (math.isfinite(self.rms_eps) and 0 <= self.rms_eps < 1):
            raise ModelFileError(f"rms_eps must be at least 0 and below 1, got {self.rms_eps}")

    def layer(self, index: int) -> LayerConfig:
        return self.pattern[index % len(self.pattern)]

    @property
    def heads_width(self) -> int:
        """Columns of all queries."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of all keys; values have as many."""
        return self.kv_heads * self.head_dim
