"""Small random llama-family models: in memory, as a GGUF file, and as the Hugging Face twin of the same weights.

Everything follows from the specification and its seed. The schedule here is written by hand, so that tests of back ends do not depend on
the reader of model files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

import super_blocks
from swiftsure.kernels import reference as ref
from swiftsure.models.schedule import (
    Attention,
    Embed,
    Matmul,
    Op,
    RMSNorm,
    Rope,
    RopeStyle,
    Schedule,
    SelectRows,
    SiluMul,
    StoreKV,
)
from swiftsure.models.tensors import TensorInfo

ROLES = ("embed", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "head")
MATRIX_TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", *super_blocks.SUPER_TYPES)
# What files have instead where rows are not whole super-blocks.
NARROW_TYPES = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySpec:
    """What a tiny model looks like. ``types`` names a tensor type per role (see ``ROLES``); ``type`` serves the others.

    A type of super-blocks falls back to a narrow one (``NARROW_TYPES``) where rows are not a multiple of 256 columns.
    """

    seed: int = 0
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
    rms_eps: float = float(np.float32(1e-5))  # a file holds it as float32

    def type_of(self, role: str) -> str:
        return self.types.get(role, self.type)


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

    def read(self, name: str) -> NDArray[np.uint8]:
        return self._tensors[name].data

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

    def _add(self, rng: np.random.Generator, name: str, role: str, shape: tuple[int, ...]) -> None:
        if role == "norm":
            values, tensor_type = rng.uniform(0.6, 1.4, shape), "F32"
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
        spec = self.spec
        q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
        ops: list[Op] = [Embed(weight="token_embd.weight", out="x")]
        for layer in range(spec.layers):
            ops += _layer_ops(spec, layer, q_width, kv_width)
        ops += [
            SelectRows(x="x", out="last"),
            RMSNorm(x="last", weight="output_norm.weight", out="last_normed", eps=spec.rms_eps),
            Matmul(x="last_normed", weights=("token_embd.weight" if spec.tied else "output.weight",), out="logits"),
        ]
        buffers = {"x": spec.hidden, "normed": spec.hidden, "qkv": q_width + 2 * kv_width, "attended": q_width}
        buffers |= {"gate_up": 2 * spec.intermediate, "mlp": spec.intermediate}
        buffers |= {"last": spec.hidden, "last_normed": spec.hidden, "logits": spec.vocab}
        return Schedule(
            ops=tuple(ops),
            buffers=buffers,
            logits_buffer="logits",
            vocab_size=spec.vocab,
            layers=spec.layers,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            context_length=spec.context,
        )

    def write_gguf(self, path: Path) -> Path:
        """Writes the model as a llama GGUF file (rows of q and k in that format's order: rope pairs neighbouring dimensions)."""
        if self.spec.rope_style != "interleaved":
            raise ValueError("a llama GGUF file rotates neighbouring dimensions; rope_style must be 'interleaved'")
        writer = gguf.GGUFWriter(path, "llama")
        _write_metadata(writer, self.spec)
        for tensor in self.tensors.values():
            kind = gguf.GGMLQuantizationType[tensor.type]
            rows = tensor.data.reshape(*tensor.shape[:-1], -1)
            if tensor.type in ("F32", "F16"):
                writer.add_tensor(tensor.name, rows.view(np.float32 if tensor.type == "F32" else np.float16))
            else:
                writer.add_tensor(tensor.name, rows, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def huggingface_config(self) -> dict[str, Any]:
        """``LlamaConfig`` fields."""
        spec = self.spec
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": spec.hidden,
            "intermediate_size": spec.intermediate,
            "num_hidden_layers": spec.layers,
            "num_attention_heads": spec.heads,
            "num_key_value_heads": spec.kv_heads,
            "head_dim": spec.head_dim,
            "vocab_size": spec.vocab,
            "max_position_embeddings": spec.context,
            "rope_theta": spec.rope_theta,
            "rms_norm_eps": spec.rms_eps,
            "tie_word_embeddings": spec.tied,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "float32",
        }

    def huggingface_state(self) -> dict[str, NDArray[np.float32]]:
        """The state dict of ``LlamaForCausalLM``, float32, rows of q and k in its order (rope pairs dimensions half a head apart)."""
        state = {}
        for tensor in self.tensors.values():
            values = tensor.values()
            if self.spec.rope_style == "interleaved" and (".attn_q." in tensor.name or ".attn_k." in tensor.name):
                values = unpermute(values, self.spec.head_dim)
            state[huggingface_name(tensor.name)] = np.ascontiguousarray(values, dtype=np.float32)
        if self.spec.tied:
            state["lm_head.weight"] = state["model.embed_tokens.weight"]
        return state

    def write_huggingface(self, folder: Path) -> Path:
        """``config.json`` and ``model.safetensors`` in ``folder``."""
        from safetensors.numpy import save_file

        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.huggingface_config(), indent=2))
        state = self.huggingface_state()
        if self.spec.tied:
            del state["lm_head.weight"]
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return folder


def unpermute(values: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Rows of q or k from the GGUF order (pairs 2i, 2i + 1) to the Hugging Face order (pairs i, i + head_dim / 2)."""
    return values.reshape(-1, head_dim // 2, 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)


def huggingface_name(name: str) -> str:
    """The ``LlamaForCausalLM`` name of a GGUF tensor."""
    fixed = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in fixed:
        return fixed[name]
    _, layer, role, _ = name.split(".")
    inner = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }[role]
    return f"model.layers.{layer}.{inner}.weight"


def _tensor_list(spec: TinySpec) -> list[tuple[str, str, tuple[int, ...]]]:
    """(name, role, shape) of every tensor."""
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
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
        for role, shape in shapes.items():
            tensors.append((f"blk.{layer}.{role}.weight", "norm" if role.endswith("norm") else role, shape))
    tensors.append(("output_norm.weight", "norm", (spec.hidden,)))
    if not spec.tied:
        tensors.append(("output.weight", "head", (spec.vocab, spec.hidden)))
    return tensors


def _layer_ops(spec: TinySpec, layer: int, q_width: int, kv_width: int) -> list[Op]:
    def weight(role: str) -> str:
        return f"blk.{layer}.{role}.weight"

    def rope(offset: int, heads: int) -> Rope:
        return Rope(
            x="qkv",
            offset=offset,
            heads=heads,
            head_dim=spec.head_dim,
            rotary_dim=spec.head_dim,
            theta=spec.rope_theta,
            style=spec.rope_style,
        )

    return [
        RMSNorm(x="x", weight=weight("attn_norm"), out="normed", eps=spec.rms_eps),
        Matmul(x="normed", weights=(weight("attn_q"), weight("attn_k"), weight("attn_v")), out="qkv"),
        rope(0, spec.heads),
        rope(q_width, spec.kv_heads),
        StoreKV(x="qkv", k_offset=q_width, v_offset=q_width + kv_width, layer=layer),
        Attention(x="qkv", q_offset=0, out="attended", layer=layer, heads=spec.heads, scale=spec.head_dim**-0.5),
        Matmul(x="attended", weights=(weight("attn_output"),), out="x", accumulate=True),
        RMSNorm(x="x", weight=weight("ffn_norm"), out="normed", eps=spec.rms_eps),
        Matmul(x="normed", weights=(weight("ffn_gate"), weight("ffn_up")), out="gate_up"),
        SiluMul(x="gate_up", out="mlp"),
        Matmul(x="mlp", weights=(weight("ffn_down"),), out="x", accumulate=True),
    ]


def encode(values: NDArray[np.float64], tensor_type: str) -> NDArray[np.uint8]:
    """A tensor's bytes (nbytes,), by plain rounding."""
    if tensor_type in super_blocks.SUPER_TYPES:
        return super_blocks.quantize(values, tensor_type).reshape(-1)
    encoded = gguf.quantize(values.astype(np.float32), gguf.GGMLQuantizationType[tensor_type])
    return np.ascontiguousarray(encoded).view(np.uint8).reshape(-1)


def _write_metadata(writer: gguf.GGUFWriter, spec: TinySpec) -> None:
    writer.add_name(f"tiny-{spec.seed}")
    writer.add_license("apache-2.0")
    writer.add_block_count(spec.layers)
    writer.add_context_length(spec.context)
    writer.add_embedding_length(spec.hidden)
    writer.add_feed_forward_length(spec.intermediate)
    writer.add_head_count(spec.heads)
    writer.add_head_count_kv(spec.kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_theta)
    writer.add_layer_norm_rms_eps(spec.rms_eps)
    writer.add_vocab_size(spec.vocab)
    tokens, merges = byte_level_vocabulary(spec.vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    special = int(gguf.TokenType.CONTROL)
    writer.add_token_types([special if token in SPECIAL_TOKENS else int(gguf.TokenType.NORMAL) for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def byte_level_vocabulary(vocab: int) -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE tokenizer of exactly ``vocab`` tokens: specials, bytes (common ones first), then merges.

    Below 259 tokens some bytes have no token; the text a test uses should keep to ASCII then.
    """
    common = b" \nabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:;!?'\"()-_=+*/<>[]{}#%&@$\\|~^`\t\r"
    order = list(dict.fromkeys([*common, *range(256)]))
    tokens = [*SPECIAL_TOKENS, *(_BYTE_CHARACTERS[byte] for byte in order)][:vocab]
    merges: list[str] = []
    space = _BYTE_CHARACTERS[ord(" ")]
    pairs = [(space, c) for c in "tasiowcbphmdf"] + [(a, b) for a in "theinorasl" for b in "eaionrtsdl"]
    pairs += [(space + "t", "he"), (space + "a", "nd"), (space + "i", "n"), (space + "o", "f")]
    for left, right in pairs:
        if len(tokens) >= vocab:
            break
        if left in tokens and right in tokens and left + right not in tokens:
            merges.append(f"{left} {right}")
            tokens.append(left + right)
    if len(tokens) != vocab:
        raise ValueError(f"vocab must be from {len(SPECIAL_TOKENS)} to {len(tokens)}, got {vocab}")
    return tokens, merges


def _byte_characters() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level BPE vocabularies (GPT-2)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    table = {byte: chr(byte) for byte in printable}
    others = [byte for byte in range(256) if byte not in table]
    return table | {byte: chr(256 + index) for index, byte in enumerate(others)}


_BYTE_CHARACTERS = _byte_characters()


def spec_of_type(tensor_type: str, **changes: Any) -> TinySpec:
    """A specification all of whose matrices have ``tensor_type``: rows are wide enough for it."""
    wide = {"hidden": 256, "intermediate": 256, "head_dim": 64} if tensor_type in super_blocks.SUPER_TYPES else {}
    return TinySpec(type=tensor_type, **{**wide, **changes})


def random_spec(seed: int) -> TinySpec:
    """A specification drawn from a seed: shapes, tensor types (uniform or mixed), head and rope style all vary."""
    rng = np.random.default_rng(1000 + seed)
    head_dim = int(rng.choice([16, 32, 64]))
    kv_heads = int(rng.choice([1, 2, 3] if head_dim < 64 else [1, 2]))
    heads = kv_heads * int(rng.choice([1, 2, 3]))
    if heads * head_dim % 32:
        heads *= 2
    kind = MATRIX_TYPES[seed % len(MATRIX_TYPES)]
    types = {role: str(rng.choice(MATRIX_TYPES)) for role in ROLES} if rng.random() < 0.6 else {}
    wide = kind in super_blocks.SUPER_TYPES or (len(types) > 0 and rng.random() < 0.3)  # else such types fall back
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
    )
