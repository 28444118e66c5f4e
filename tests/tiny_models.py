"""Small random models of every architecture: in memory, as a GGUF file, and as the Hugging Face twin of the same weights.

Everything follows from the specification and its seed; what is not here is in ``tiny_architectures.py``, ``tiny_schedules.py``,
``tiny_files.py`` and ``tiny_vocabulary.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

import super_blocks
import tiny_files
from swiftsure.kernels import reference as ref
from swiftsure.models.schedule import RopeStyle, Schedule
from swiftsure.models.tensors import TensorInfo, byte_span
from tiny_architectures import ARCHITECTURES, ROPE_FACTORS, Scaling, TinyArchitecture, rope_factors
from tiny_schedules import schedule_by_hand

ROLES = ("embed", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "head")
MATRIX_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", *super_blocks.SUPER_TYPES)
# What files have instead where rows are not whole super-blocks.
NARROW_TYPES = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySpec:
    """What a tiny model looks like. ``types`` names a tensor type per role (see ``ROLES``); ``type`` serves the others.

    A type of super-blocks falls back to a narrow one (``NARROW_TYPES``) where rows are not a multiple of 256 columns.
    """

    seed: int = 0
    architecture: str = "llama"
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    hidden: int = 64
    intermediate: int = 96
    vocab: int = 300
    context: int = 640
    type: str = "Q4_1"
    types: Mapping[str, str] = field(default_factory=dict)
    tied: bool = True
    rope_theta: float = 10000.0
    rope_style: RopeStyle = "interleaved"
    scaling: Scaling = "none"  # of the rotation
    scaling_factor: float = 8.0
    window: int | None = None  # of attention; None: there is none
    global_every: int = 6  # layers, where some are without the window
    rms_eps: float = float(np.float32(1e-5))  # a file holds it as float32

    def type_of(self, role: str) -> str:
        return self.types.get(role, self.type)

    @property
    def kind(self) -> TinyArchitecture:
        return ARCHITECTURES[self.architecture]


@dataclass(frozen=True, slots=True)
class TinyTensor:
    """One tensor as a file holds it."""

    name: str
    type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]  # (nbytes,)

    @property
    def nbytes(self) -> int:
        return self.data.size

    def values(self) -> NDArray[np.float64]:
        return ref.dequantize(self.type, self.data, self.shape)


class MemoryTensors:
    """A tensor source over a list of tensors."""

    def __init__(self, tensors: Iterable[TinyTensor]) -> None:
        self._tensors = {tensor.name: tensor for tensor in tensors}

    def names(self) -> Iterable[str]:
        return list(self._tensors)

    def info(self, name: str) -> TensorInfo:
        tensor = self._tensors[name]
        return TensorInfo(name, tensor.type, tensor.shape, tensor.nbytes)

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        start, nbytes = byte_span(self.info(name), rows)
        return self._tensors[name].data[start : start + nbytes]

    def close(self) -> None:
        """Nothing is open."""


class TinyModel:
    """The weights that follow from a specification, and the forms they take."""

    def __init__(self, spec: TinySpec) -> None:
        self.spec = spec
        rng = np.random.default_rng(spec.seed)
        self.tensors: dict[str, TinyTensor] = {}
        for name, role, shape in _tensor_list(spec):
            self._add(rng, name, role, shape)
        if spec.scaling == "llama3":
            factors = np.array(rope_factors(spec))
            self.tensors[ROPE_FACTORS] = TinyTensor(ROPE_FACTORS, "F32", factors.shape, encode(factors, "F32"))

    def _add(self, rng: np.random.Generator, name: str, role: str, shape: tuple[int, ...]) -> None:
        if role == "norm":
            values, tensor_type = rng.uniform(0.6, 1.4, shape), "F32"
        elif role == "bias":
            values, tensor_type = rng.standard_normal(shape), "F32"
        else:
            # Keeps activations near one in size; heavy tails so that group scales differ.
            gain = {"embed": 1.0, "head": 2.0, "attn_q": 2.5, "attn_k": 2.5}.get(role, 1.0)
            values, tensor_type = rng.standard_t(5, shape), self.spec.type_of(role)
            if shape[1] % super_blocks.COLUMNS:
                tensor_type = NARROW_TYPES.get(tensor_type, tensor_type)
            values *= gain / (1.0 if role == "embed" else np.sqrt(shape[1]))
        self.tensors[name] = TinyTensor(name, tensor_type, shape, encode(values, tensor_type))

    def source(self) -> MemoryTensors:
        return MemoryTensors(self.tensors.values())

    def perturbed(self, name: str, byte: int) -> TinyModel:
        """The same model with one bit of one tensor's bytes flipped."""
        other = TinyModel(self.spec)
        data = other.tensors[name].data.copy()
        data[byte] ^= 1
        other.tensors[name] = TinyTensor(name, other.tensors[name].type, other.tensors[name].shape, data)
        return other

    @cached_property
    def schedule(self) -> Schedule:
        return schedule_by_hand(self.spec)

    def write_gguf(self, path: Path) -> Path:
        return tiny_files.write_gguf(self, path)

    def huggingface_config(self) -> dict[str, Any]:
        return tiny_files.huggingface_config(self.spec)

    def huggingface_state(self) -> dict[str, NDArray[np.float32]]:
        return tiny_files.huggingface_state(self)

    def write_huggingface(self, folder: Path) -> Path:
        return tiny_files.write_huggingface(self, folder)


def _tensor_list(spec: TinySpec) -> list[tuple[str, str, tuple[int, ...]]]:
    """(name, role, shape) of every tensor."""
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    widths = (q_width, kv_width, kv_width)
    tensors: list[tuple[str, str, tuple[int, ...]]] = [("token_embd.weight", "embed", (spec.vocab, spec.hidden))]
    for layer in range(spec.layers):
        shapes = {
            "attn_norm": (spec.hidden,),
            "attn_q": (q_width, spec.hidden),
            "attn_k": (kv_width, spec.hidden),
            "attn_v": (kv_width, spec.hidden),
            "attn_output": (spec.hidden, q_width),
            "ffn_norm": (spec.hidden,),
            "ffn_gate": (spec.intermediate, spec.hidden),
            "ffn_up": (spec.intermediate, spec.hidden),
            "ffn_down": (spec.hidden, spec.intermediate),
        }
        if spec.kind.post_norms:
            shapes |= {"post_attention_norm": (spec.hidden,), "post_ffw_norm": (spec.hidden,)}
        for role, shape in shapes.items():
            tensors.append((f"blk.{layer}.{role}.weight", "norm" if role.endswith("norm") else role, shape))
        if spec.kind.qkv_bias:
            tensors += [(f"blk.{layer}.attn_{part}.bias", "bias", (width,)) for part, width in zip("qkv", widths, strict=True)]
        if spec.kind.head_norms:
            tensors += [(f"blk.{layer}.attn_{part}_norm.weight", "norm", (spec.head_dim,)) for part in "qk"]
    tensors.append(("output_norm.weight", "norm", (spec.hidden,)))
    if not spec.tied:
        tensors.append(("output.weight", "head", (spec.vocab, spec.hidden)))
    return tensors


def encode(values: NDArray[np.float64], tensor_type: str) -> NDArray[np.uint8]:
    """A tensor's bytes (nbytes,), by plain rounding."""
    if tensor_type in super_blocks.SUPER_TYPES:
        return super_blocks.quantize(values, tensor_type).reshape(-1)
    encoded = gguf.quantize(values.astype(np.float32), gguf.GGMLQuantizationType[tensor_type])
    return np.ascontiguousarray(encoded).view(np.uint8).reshape(-1)


def spec_of_architecture(name: str, **changes: Any) -> TinySpec:
    """A specification of this architecture as its files have it."""
    kind = ARCHITECTURES[name]
    window = None if kind.local_theta is None else 48
    return TinySpec(**{"architecture": name, "rope_style": kind.rope_style, "window": window, **changes})


def spec_of_type(tensor_type: str, *, for_files: bool = False, **changes: Any) -> TinySpec:
    """A specification all of whose matrices have ``tensor_type``: rows are wide enough for it. ``for_files``: it can be written to them."""
    wide = {"hidden": 256, "intermediate": 256, "head_dim": 64} if tensor_type in super_blocks.SUPER_TYPES else {}
    changes = {**wide, **changes, "type": tensor_type}
    return spec_of_architecture(changes.pop("architecture", "llama"), **changes) if for_files else TinySpec(**changes)


def random_spec(seed: int) -> TinySpec:
    """A specification drawn from a seed: shapes, tensor types (uniform or mixed), head, rope and architecture all vary."""
    rng = np.random.default_rng(1000 + seed)
    head_dim = int(rng.choice([16, 32, 64]))
    kv_heads = int(rng.choice([1, 2, 3] if head_dim < 64 else [1, 2]))
    heads = kv_heads * int(rng.choice([1, 2, 3]))
    if heads * head_dim % 32:
        heads *= 2
    kind = MATRIX_TYPES[seed % len(MATRIX_TYPES)]
    types = {role: str(rng.choice(MATRIX_TYPES)) for role in ROLES} if rng.random() < 0.6 else {}
    wide = kind in super_blocks.SUPER_TYPES or (len(types) > 0 and rng.random() < 0.3)  # else such types fall back
    architecture = list(ARCHITECTURES)[seed % len(ARCHITECTURES)]
    windows = (5, 40, 100, 300) if architecture == "gemma3" else (None, None, 64, 256)
    return TinySpec(
        seed=seed,
        layers=int(rng.integers(1, 4)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=256 if wide else int(rng.choice([64, 96, 128])),
        intermediate=256 if wide else int(rng.choice([64, 96, 160])),
        vocab=int(rng.integers(96, 301)),
        context=640,
        type=kind,
        types=types,
        tied=bool(rng.random() < 0.5),
        rope_theta=float(rng.choice([10000.0, 100000.0, 500.0])),
        rope_style="interleaved" if rng.random() < 0.5 else "halves",
        architecture=architecture,
        scaling=("none", "none", "linear", "llama3")[int(rng.integers(4))],
        window=windows[int(rng.integers(4))],
        global_every=int(rng.integers(1, 4)),
    )
