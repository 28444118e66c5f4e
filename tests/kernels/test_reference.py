"""The float64 twin against hand-worked values and against the ``gguf`` package's own dequantization."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from swiftsure.errors import UsageError
from swiftsure.kernels import reference as ref

TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
BLOCKS = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210}


def quantized(tensor_type: str, shape: tuple[int, int], scale: float = 1.0) -> np.ndarray:
    weights = np.random.default_rng(5).standard_normal(shape).astype(np.float32) * np.float32(scale)
    return gguf.quantize(weights, gguf.GGMLQuantizationType[tensor_type]).view(np.uint8).reshape(-1)


@pytest.mark.parametrize("tensor_type", TYPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_dequantized_values_round_to_those_of_the_gguf_package(tensor_type: str, scale: float) -> None:
    shape = (7, 96)
    data = quantized(tensor_type, shape, scale)
    kind = gguf.GGMLQuantizationType[tensor_type]
    rows = data.reshape(shape[0], -1)
    expected = gguf.dequantize(rows.view(np.float32 if tensor_type == "F32" else np.float16 if tensor_type == "F16" else np.uint8), kind)
    assert np.array_equal(ref.dequantize(tensor_type, data, shape).astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("tensor_type", BLOCKS)
def test_any_bytes_of_a_block_type_dequantize_as_the_gguf_package_does(tensor_type: str) -> None:
    rng = np.random.default_rng(11)
    data = rng.integers(0, 256, (64, BLOCKS[tensor_type]), dtype=np.uint8)
    scales = rng.uniform(-60, 60, (64, 2)).astype(np.float16).view(np.uint8)
    if tensor_type == "Q6_K":
        data[:, -2:] = scales[:, :2]
    else:
        data[:, :4] = scales
    expected = gguf.dequantize(data, gguf.GGMLQuantizationType[tensor_type])
    assert np.array_equal(ref.dequantize(tensor_type, data.reshape(-1), expected.shape).astype(np.float32), expected)


def test_dequantizing_states_the_bytes_it_expects() -> None:
    with pytest.raises(UsageError, match=r"Q4_0 of shape \(2, 32\) takes 36 bytes, got 35"):
        ref.dequantize("Q4_0", np.zeros(35, np.uint8), (2, 32))
    with pytest.raises(UsageError, match="must be a multiple of 32, got 33"):
        ref.dequantize("Q8_0", np.zeros(35, np.uint8), (1, 33))
    with pytest.raises(UsageError, match="must be a multiple of 256, got 128"):
        ref.dequantize("Q6_K", np.zeros(105, np.uint8), (1, 128))
    with pytest.raises(UsageError, match="got 'Q2_K'"):
        ref.dequantize("Q2_K", np.zeros(35, np.uint8), (1, 32))


def test_rmsnorm_of_a_worked_example() -> None:
    x = np.array([[3.0, 4.0]])
    assert np.allclose(ref.rmsnorm(x, np.array([1.0, 2.0]), 0.0), [[3 / np.sqrt(12.5), 8 / np.sqrt(12.5)]], rtol=1e-15)


@pytest.mark.parametrize("style", ["interleaved", "halves"])
def test_rope_rotates_pairs_by_their_angle_and_leaves_the_rest(style: str) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 12))
    positions = [0, 1, 17]
    out = ref.rope(x, positions, rotary_dim=8, theta=100.0, style=style)  # type: ignore[arg-type]
    assert np.array_equal(out[0], x[0])
    assert np.array_equal(out[..., 8:], x[..., 8:])
    for row, position in enumerate(positions):
        for i in range(4):
            a, b = (2 * i, 2 * i + 1) if style == "interleaved" else (i, i + 4)
            turned = (x[row, :, a] + 1j * x[row, :, b]) * np.exp(1j * position * 100.0 ** (-2 * i / 8))
            assert np.allclose(out[row, :, a] + 1j * out[row, :, b], turned, rtol=1e-13)


def test_both_rope_styles_agree_up_to_the_order_of_dimensions() -> None:
    x = np.random.default_rng(1).standard_normal((4, 3, 16))
    order = np.concatenate([np.arange(0, 16, 2), np.arange(1, 16, 2)])  # interleaved -> halves
    positions = [0, 5, 6, 900]
    interleaved = ref.rope(x, positions, rotary_dim=16, theta=1e4, style="interleaved")
    halves = ref.rope(x[..., order], positions, rotary_dim=16, theta=1e4, style="halves")
    assert np.allclose(interleaved[..., order], halves, rtol=1e-14)


def test_attention_matches_a_loop_over_heads_and_keys() -> None:
    rng = np.random.default_rng(2)
    q, keys, values = rng.standard_normal((3, 6, 8)), rng.standard_normal((9, 2, 8)), rng.standard_normal((9, 2, 8))
    positions = [0, 4, 8]
    out = ref.attention(q, keys, values, positions, 0.3)
    for row, position in enumerate(positions):
        for head in range(6):
            group = head // 3
            scores = [0.3 * float(q[row, head] @ keys[j, group]) for j in range(position + 1)]
            weights = np.exp(scores) / np.sum(np.exp(scores))
            assert np.allclose(out[row, head], weights @ values[: position + 1, group], rtol=1e-12)


def test_silu_is_finite_for_any_input() -> None:
    x = np.array([-1e4, -800.0, -1.0, 0.0, 1.0, 800.0, 1e4])
    out = ref.silu(x)
    assert np.all(np.isfinite(out))
    assert np.allclose(out[[2, 4]], [-1 / (1 + np.e), 1 / (1 + np.exp(-1.0))], rtol=1e-15)
    assert out[-1] == 1e4


def test_softmax_and_log_softmax_survive_large_logits_and_masks() -> None:
    x = np.array([[1e4, 1e4 - 1, -np.inf]])
    p = ref.softmax(x)
    assert p[0, 2] == 0.0
    assert np.isclose(p.sum(), 1.0)
    assert np.allclose(np.exp(ref.log_softmax(x)), p)


def test_gumbel_argmax_draws_from_the_softmax() -> None:
    rng = np.random.default_rng(3)
    logits, temperature, draws = np.array([0.0, 1.0, 2.0, -1.0]), 0.7, 20_000
    uniform = rng.uniform(1e-12, 1.0, (draws, 4))
    counts = np.bincount([ref.gumbel_argmax(logits, temperature, u) for u in uniform], minlength=4)
    assert np.abs(counts / draws - ref.softmax(logits / temperature)).max() < 0.015
    assert ref.gumbel_argmax(np.array([1.0, 3.0, 3.0]), 0.0, np.array([0.1, 0.1, 0.9])) == 1


def test_kl_divergence_is_zero_for_shifted_logits_and_positive_otherwise() -> None:
    p = np.random.default_rng(4).standard_normal((5, 11))
    assert np.allclose(ref.kl_divergence(p, p + 3.0), 0.0, atol=1e-14)
    assert np.all(ref.kl_divergence(p, p * 1.5) > 0)
    assert ref.relative_l2(p * 1.001, p) == pytest.approx(1e-3)
