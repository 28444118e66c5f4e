"""The static schedule of a model: a list of operations on named buffers.

Pure data. ``models/transformer.py`` writes it, a back end runs it. A buffer is a matrix of float32 with one row per
token of the pass, ``(rows, width)``; after :class:`SelectRows` there is one row per token whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

RopeStyle: TypeAlias = Literal["interleaved", "halves"]
Activation: TypeAlias = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed:
    """``out[row] = weight[token[row]] * scale``; the scale is rounded to float32."""

    weight: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """``out[row] = features[row]``: rows of floats that come with the pass, as wide as ``out``."""

    out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSNorm:
    """``out (+)= x / sqrt(mean(x^2) + eps) * weight`` (Zhang and Sennrich, 2019).

    ``accumulate`` adds to what ``out`` holds (the residual).
    """

    x: str
    weight: str
    out: str
    eps: float
    accumulate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """``out (+)= x @ concatenate(weights).T``; each weight is ``(n, k)``. ``accumulate`` adds to what ``out`` holds (the residual)."""

    x: str
    weights: tuple[str, ...]
    out: str
    accumulate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBias:
    """``x += concatenate(weights)``, in place; the weights together are as wide as ``x``."""

    x: str
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorm:
    """:class:`RMSNorm` of each of ``heads`` vectors of ``head_dim`` that start at column ``offset`` of ``x``, in place.

    All heads share one ``weight`` (head_dim,).
    """

    x: str
    weight: str
    offset: int
    heads: int
    head_dim: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotates ``heads`` vectors of ``head_dim`` that start at column ``offset`` of ``x``, in place (Su et al., 2021).

    The angle of pair i at position p is ``p * theta ** (-2 i / rotary_dim) / factors[i]``; dimensions past ``rotary_dim`` stay.
    """

    x: str
    offset: int
    heads: int
    head_dim: int
    rotary_dim: int
    theta: float
    style: RopeStyle
    factors: tuple[float, ...] = ()  # (rotary_dim / 2,), each at least 1; none: 1 everywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKV:
    """Writes the keys at column ``k_offset`` and the values at ``v_offset`` of ``x`` to layer ``layer`` of the cache."""

    x: str
    k_offset: int
    v_offset: int
    layer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Causal grouped-query attention of the ``heads`` queries at column ``q_offset`` of ``x`` over the layer's cache.

    With a ``window`` position p sees the keys of positions above ``p - window`` only: at most ``window`` of them, its own included.
    """

    x: str
    q_offset: int
    out: str
    layer: int
    heads: int
    scale: float
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedActivation:
    """``out = kind(x[:, :width]) * x[:, width:]`` where x is (rows, 2 width).

    "silu" is ``x * sigmoid(x)``; "gelu_tanh" is ``x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))``.
    """

    kind: Activation
    x: str
    out: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectRows:
    """Keeps the rows whose logits are wanted; every later operation runs on those only."""

    x: str
    out: str


Op: TypeAlias = Embed | Input | RMSNorm | Matmul | AddBias | HeadNorm | Rope | StoreKV | Attention | GatedActivation | SelectRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What a back end needs to run a model.

    The last operation writes ``logits_buffer``, whose width is ``vocab_size``. With 0 layers there is no cache, and no row
    knows of another.
    """

    ops: tuple[Op, ...]
    buffers: Mapping[str, int]  # name -> width
    logits_buffer: str
    vocab_size: int
    layers: int
    kv_heads: int
    head_dim: int
    context_length: int

    @property
    def head_input(self) -> str:
        """The buffer that the logits are computed from: the normed last hidden rows."""
        head = self.ops[-1]
        assert isinstance(head, Matmul), "the last operation is the head"
        return head.x
