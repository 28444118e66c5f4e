"""What the architectures read from metadata and tensors: features, scaled rotations, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edited_gguf import edited
from swiftsure.engine.reference import ReferenceModel
from swiftsure.errors import ModelFileError, UnsupportedModelError
from swiftsure.models.architectures import ARCHITECTURES
from swiftsure.models.config import Rotation
from swiftsure.models.files import ModelFiles
from swiftsure.models.model import Model, open_model
from swiftsure.models.schedule import AddBias, Attention, Embed, GatedActivation, HeadNorm, Matmul, Op, RMSNorm, Rope, StoreKV
from swiftsure.models.transformer import llama3_factors
from tiny_architectures import HIGH_FREQ_FACTOR, LOW_FREQ_FACTOR, ORIGINAL_CONTEXT, ROPE_FACTORS, rope_factors
from tiny_models import TinyModel, TinySpec, spec_of_architecture

Open = Callable[..., Model]

LLAMA3_KEYS = {
    "llama.rope.scaling.type": "llama3",
    "llama.rope.scaling.factor": 8.0,
    "llama.rope.scaling.low_freq_factor": LOW_FREQ_FACTOR,
    "llama.rope.scaling.high_freq_factor": HIGH_FREQ_FACTOR,
    "llama.rope.scaling.original_context_length": ORIGINAL_CONTEXT,
}


@pytest.fixture
def open_changed(tmp_path: Path) -> Open:
    """Opens a tiny model of a specification after changes to its file."""

    def open_it(spec: TinySpec, **changes: Any) -> Model:
        path = TinyModel(spec).write_gguf(tmp_path / "sound.gguf")
        target = edited(path, tmp_path / "changed.gguf", **changes) if changes else path
        return open_model(ModelFiles(name="tiny", path=target, sha256="", source="path"))

    return open_it


def factors_of(model: Model) -> tuple[float, ...]:
    with model:
        (factors,) = {op.factors for op in model.schedule().ops if isinstance(op, Rope)}
        return factors


def ops_between_product_and_cache(model: Model) -> list[Op]:
    """Of the first layer."""
    ops = model.schedule().ops
    return list(ops[3 : next(i for i, op in enumerate(ops) if isinstance(op, StoreKV))])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_schedule_of_a_file_computes_what_the_one_by_hand_does(name: str, open_changed: Open) -> None:
    for tied, scaling, layers in ((True, "none", 2), (False, "linear", 7)):
        model = TinyModel(spec_of_architecture(name, tied=tied, scaling=scaling, layers=layers))
        tokens = np.arange(60) * 7 % model.spec.vocab
        with open_changed(model.spec) as opened:
            ours = ReferenceModel(opened.schedule(), opened.tensors).logits(tokens)
        np.testing.assert_allclose(ours, ReferenceModel(model.schedule, model.source()).logits(tokens), rtol=1e-9, atol=1e-9)


def test_qwen2_adds_biases_before_it_rotates(open_changed: Open) -> None:
    with open_changed(spec_of_architecture("qwen2")) as model:
        bias, rope = ops_between_product_and_cache(model)
        assert bias == AddBias(x="qkv", weights=("blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias"))
        assert isinstance(rope, Rope)
        assert rope.style == "halves"


def test_qwen3_norms_queries_and_keys_apart_before_it_rotates(open_changed: Open) -> None:
    with open_changed(spec_of_architecture("qwen3")) as model:
        *norms, rope = ops_between_product_and_cache(model)
        assert [(op.weight, op.offset, op.heads, op.head_dim) for op in norms if isinstance(op, HeadNorm)] == [
            ("blk.0.attn_q_norm.weight", 0, 4, 16),
            ("blk.0.attn_k_norm.weight", 64, 2, 16),
        ]
        assert isinstance(rope, Rope)
        assert rope.style == "halves"


def attentions_of(model: Model) -> list[Attention]:
    with model:
        return [op for op in model.schedule().ops if isinstance(op, Attention)]


def test_gemma_sees_a_window_in_five_layers_of_six(open_changed: Open) -> None:
    attentions = attentions_of(open_changed(spec_of_architecture("gemma3", layers=14, window=40)))
    assert [op.window for op in attentions] == [40, 40, 40, 40, 40, None, 40, 40, 40, 40, 40, None, 40, 40]
    assert {op.scale for op in attentions} == {0.25}


def test_gemma_rotates_local_layers_by_their_own_base_and_unscaled(open_changed: Open) -> None:
    spec = spec_of_architecture("gemma3", layers=6, rope_theta=1e6, scaling="linear")
    for keys, base in (({}, 10000.0), ({"gemma3.rope.freq_base_swa": 5000.0}, 5000.0)):
        with open_changed(spec, keys=keys) as model:
            rotations = [(op.theta, set(op.factors)) for op in model.schedule().ops if isinstance(op, Rope)]
        assert rotations == [(base, set())] * 5 + [(1e6, {8.0})]


def test_gemma_scales_and_gates_and_norms_in_its_own_way(open_changed: Open) -> None:
    with open_changed(spec_of_architecture("gemma3")) as model:
        ops = model.schedule().ops
        assert ops[0] == Embed(weight="token_embd.weight", out="residual", scale=8.0)  # sqrt(64)
        assert {op.kind for op in ops if isinstance(op, GatedActivation)} == {"gelu_tanh"}
        added = [op.weight for op in ops if isinstance(op, RMSNorm) and op.accumulate]
        assert added == [f"blk.{layer}.post_{part}_norm.weight" for layer in range(2) for part in ("attention", "ffw")]
        assert not any(op.accumulate for op in ops if isinstance(op, Matmul))


def test_the_largest_gemma_scales_scores_by_the_share_of_its_residual(open_changed: Open) -> None:
    """168 = 5376 / 32 there, where heads are 128 wide; here 64 / 4 beside heads of 32. A scale that is stated comes first."""
    largest = spec_of_architecture("gemma3", layers=62, head_dim=32)
    assert {op.scale for op in attentions_of(open_changed(largest))} == {0.25}
    assert {op.scale for op in attentions_of(open_changed(largest, keys={"gemma3.attention.scale": 0.5}))} == {0.5}


def test_a_llama_with_a_window_sees_it_in_every_layer(open_changed: Open) -> None:
    """Mistral, which GGUF calls llama; 0 is its word for no window."""
    for stated, window in ((4096, 4096), (0, None)):
        attentions = attentions_of(open_changed(TinySpec(), keys={"llama.attention.sliding_window": stated}))
        assert [op.window for op in attentions] == [window, window]


def test_a_head_is_an_equal_share_of_the_hidden_width_where_no_length_is_stated(open_changed: Open) -> None:
    """As converters write qwen2."""
    dropped = ["qwen2.attention.key_length", "qwen2.attention.value_length", "qwen2.rope.dimension_count", "qwen2.vocab_size"]
    with open_changed(spec_of_architecture("qwen2"), drop_keys=dropped) as model:
        assert (model.config.head_dim, model.config.layer(0).rotation.dims) == (16, 16)


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scaling.factor": 4.0}, 4.0),
        ({"llama.rope.scale_linear": 2.5}, 2.5),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scale_linear": 2.5}, 2.5),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0}, None),
        ({"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}, None),
        ({"llama.rope.scaling.factor": 0.0}, None),
        ({"llama.rope.scaling.factor": 1.0, "llama.rope.scaling.finetuned": True}, None),
    ],
)
def test_linear_scaling_slows_all_pairs_alike(open_changed: Open, keys: dict[str, Any], factor: float | None) -> None:
    assert factors_of(open_changed(TinySpec(), keys=keys)) == (() if factor is None else (factor,) * 8)


def test_factors_of_llama3_are_read_from_their_tensor(open_changed: Open) -> None:
    spec = TinySpec(scaling="llama3", head_dim=32)
    factors = factors_of(open_changed(spec))
    assert factors == rope_factors(spec)
    assert factors[0] == 1.0
    assert factors[-1] == spec.scaling_factor
    assert len(set(factors)) > 3  # some lie between


def test_factors_of_llama3_follow_from_metadata_where_there_is_no_tensor(open_changed: Open) -> None:
    factors = factors_of(open_changed(TinySpec(head_dim=32), keys=LLAMA3_KEYS))
    np.testing.assert_allclose(factors, rope_factors(TinySpec(scaling="llama3", head_dim=32)), rtol=1e-6)


def test_factors_of_llama3_are_those_of_the_released_model() -> None:
    """Llama 3.1: heads of 128, base 500,000, 8192 positions; dimension 29 is the first that slows, 36 on are slowed by all of 8."""
    plain = Rotation(dims=128, theta=500000.0, style="halves")
    factors = np.array(llama3_factors(plain, factor=8.0, low=1.0, high=4.0, original_context=8192))
    assert (factors[:29] == 1).all()
    assert (np.diff(factors[28:36]) > 0).all()
    assert (factors[36:] == 8).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"keys": {"llama.rope.scaling.type": "linear"}}, ModelFileError, "'llama.rope.scaling.factor' is missing"),
        ({"keys": {"llama.rope.scaling.factor": 0.5}}, ModelFileError, "rotary factors must be from 1 to 1000000000, got 0.5"),
        ({"keys": {"llama.rope.scaling.factor": float("nan")}}, ModelFileError, "got nan"),
        (
            {"keys": LLAMA3_KEYS | {"llama.rope.scaling.factor": -1.0}},
            ModelFileError,
            "rotary factors must be from 1 to 1000000000, got -1.0",
        ),
        ({"keys": LLAMA3_KEYS | {"llama.rope.scaling.factor": float("inf")}}, ModelFileError, "got inf"),
        ({"keys": LLAMA3_KEYS | {"llama.rope.freq_base": 1e-45}}, ModelFileError, "needs a rope_theta of at least 1, got 1.4"),
        (
            {"keys": LLAMA3_KEYS | {"llama.rope.scaling.low_freq_factor": 4.0}},
            ModelFileError,
            "< high_freq_factor.*got 4.0",
        ),
        ({"keys": {"llama.rope.scaling.type": "llama3", "llama.rope.scaling.factor": 8.0}}, ModelFileError, "low_freq_factor' is missing"),
        ({"keys": {"llama.rope.scaling.type": "su"}}, UnsupportedModelError, "'llama.rope.scaling.type' = 'su' is not supported"),
        ({"tensors": {ROPE_FACTORS: np.ones(16, np.float32)}}, ModelFileError, r"'rope_freqs.weight' has shape \[16\], but 8 pairs rotate"),
        ({"tensors": {ROPE_FACTORS: np.zeros(8, np.float32)}}, ModelFileError, "rotary factors must be from 1 to 1000000000, got 0.0"),
        ({"tensors": {ROPE_FACTORS: np.ones(8, np.float16)}}, UnsupportedModelError, "'rope_freqs.weight' has type F16; supported: F32"),
    ],
)
def test_impossible_or_unknown_scaling_is_refused(
    open_changed: Open, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        open_changed(TinySpec(), **changes)


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        (spec_of_architecture("qwen2"), {"keys": {"qwen2.rope.scaling.type": "yarn"}}, "'qwen2.rope.scaling.type' = 'yarn'"),
        (
            spec_of_architecture("qwen2"),
            {"tensors": {ROPE_FACTORS: np.ones(8, np.float32)}},
            "'rope_freqs.weight'.*rotary frequency",
        ),
        (
            spec_of_architecture("qwen2"),
            {"tensors": {"blk.1.attn_output.bias": np.ones(64, np.float32)}},
            "attn_output.bias'.*a bias",
        ),
        (spec_of_architecture("qwen3"), {"tensors": {"blk.1.attn_q.bias": np.ones(64, np.float32)}}, "'blk.1.attn_q.bias'.*a bias"),
        (spec_of_architecture("qwen3"), {"keys": {"qwen3.attention.sliding_window": 128}}, "'qwen3.attention.sliding_window' = 128"),
        (TinySpec(), {"keys": {"general.architecture": "qwen2"}}, "qwen2"),
        (spec_of_architecture("gemma3"), {"keys": {"gemma3.final_logit_softcapping": 30.0}}, "'gemma3.final_logit_softcapping' = 30.0"),
        (spec_of_architecture("gemma3"), {"keys": {"gemma3.attn_logit_softcapping": 50.0}}, "'gemma3.attn_logit_softcapping' = 50.0"),
        (spec_of_architecture("gemma3"), {"keys": {"gemma3.attention.sliding_window": 0}}, "sliding_window must be between 1 and .*got 0"),
        (spec_of_architecture("gemma3"), {"keys": {"gemma3.attention.sliding_window_pattern": 0}}, "must be between 1 and 64, got 0"),
        (spec_of_architecture("gemma3"), {"drop_keys": ["gemma3.attention.sliding_window"]}, "sliding_window' is missing"),
        (spec_of_architecture("gemma3"), {"keys": {"gemma3.attention.scale": 0.0}}, "scale of attention scores must be a positive number"),
        (
            spec_of_architecture("gemma3"),
            {"tensors": {"v.patch_embd.weight": np.ones((4, 4), np.float32)}},
            "'v.patch_embd.weight'.*a part for images; only text is computed",
        ),
        (TinySpec(), {"keys": {"llama.attention.sliding_window": 1 << 25}}, "sliding_window must be between 1 and 16777216, got 33554432"),
    ],
)
def test_what_an_architecture_does_not_compute_is_refused_by_name(
    open_changed: Open, spec: TinySpec, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises((UnsupportedModelError, ModelFileError), match=message):
        open_changed(spec, **changes)


def test_a_missing_bias_or_norm_is_named(open_changed: Open) -> None:
    for name, tensor in (("qwen2", "blk.1.attn_k.bias"), ("qwen3", "blk.0.attn_q_norm.weight"), ("gemma3", "blk.1.post_ffw_norm.weight")):
        with pytest.raises(ModelFileError, match=f"tensor '{tensor}' is missing"):
            open_changed(spec_of_architecture(name), drop_tensors=[tensor])
