"""The schedules of the tiny models, written by hand, so that tests of back ends do not depend on the reader of model files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swiftsure.models.schedule import (
    AddBias,
    Attention,
    Embed,
    GatedActivation,
    HeadNorm,
    Matmul,
    Op,
    RMSNorm,
    Rope,
    Schedule,
    SelectRows,
    StoreKV,
)
from tiny_architectures import is_local, rope_factors

if TYPE_CHECKING:
    from tiny_models import TinySpec


def schedule_by_hand(spec: TinySpec) -> Schedule:
    """What a back end must compute for a model of this specification."""
    q_width, kv_width = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    scale = spec.hidden**0.5 if spec.kind.scaled_embedding else 1.0
    ops: list[Op] = [Embed(weight="token_embd.weight", out="x", scale=scale)]
    for layer in range(spec.layers):
        ops += _layer_ops(spec, layer, q_width, kv_width)
    ops += [
        SelectRows(x="x", out="last"),
        RMSNorm(x="last", weight="output_norm.weight", out="last_normed", eps=spec.rms_eps),
        Matmul(x="last_normed", weights=("token_embd.weight" if spec.tied else "output.weight",), out="logits"),
    ]
    buffers = {"x": spec.hidden, "normed": spec.hidden, "qkv": q_width + 2 * kv_width, "attended": q_width}
    if spec.kind.post_norms:
        buffers["projected"] = spec.hidden
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


def _layer_ops(spec: TinySpec, layer: int, q_width: int, kv_width: int) -> list[Op]:
    def weight(role: str) -> str:
        return f"blk.{layer}.{role}.weight"

    local = is_local(spec, layer)
    local_theta = spec.kind.local_theta if local else None  # such layers rotate apart

    def rope(offset: int, heads: int) -> Rope:
        return Rope(
            x="qkv",
            offset=offset,
            heads=heads,
            head_dim=spec.head_dim,
            rotary_dim=spec.head_dim,
            theta=spec.rope_theta if local_theta is None else local_theta,
            style=spec.rope_style,
            factors=rope_factors(spec) if local_theta is None else (),
        )

    def norm(part: str, offset: int, heads: int) -> HeadNorm:
        return HeadNorm(x="qkv", weight=weight(f"attn_{part}_norm"), offset=offset, heads=heads, head_dim=spec.head_dim, eps=spec.rms_eps)

    def added(x: str, role: str, post_norm: str) -> list[Op]:
        """A product that is added to the residual, normed before where the architecture does."""
        if not spec.kind.post_norms:
            return [Matmul(x=x, weights=(weight(role),), out="x", accumulate=True)]
        return [
            Matmul(x=x, weights=(weight(role),), out="projected"),
            RMSNorm(x="projected", weight=weight(post_norm), out="x", eps=spec.rms_eps, accumulate=True),
        ]

    between: list[Op] = []
    if spec.kind.qkv_bias:
        between.append(AddBias(x="qkv", weights=tuple(f"blk.{layer}.attn_{part}.bias" for part in "qkv")))
    if spec.kind.head_norms:
        between += [norm("q", 0, spec.heads), norm("k", q_width, spec.kv_heads)]
    return [
        RMSNorm(x="x", weight=weight("attn_norm"), out="normed", eps=spec.rms_eps),
        Matmul(x="normed", weights=(weight("attn_q"), weight("attn_k"), weight("attn_v")), out="qkv"),
        *between,
        rope(0, spec.heads),
        rope(q_width, spec.kv_heads),
        StoreKV(x="qkv", k_offset=q_width, v_offset=q_width + kv_width, layer=layer),
        Attention(
            x="qkv",
            q_offset=0,
            out="attended",
            layer=layer,
            heads=spec.heads,
            scale=spec.head_dim**-0.5,
            window=spec.window if local else None,
        ),
        *added("attended", "attn_output", "post_attention_norm"),
        RMSNorm(x="x", weight=weight("ffn_norm"), out="normed", eps=spec.rms_eps),
        Matmul(x="normed", weights=(weight("ffn_gate"), weight("ffn_up")), out="gate_up"),
        GatedActivation(kind=spec.kind.activation, x="gate_up", out="mlp"),
        *added("mlp", "ffn_down", "post_ffw_norm"),
    ]
