"""Tensors made narrower while they are read: sizes known before, bytes of the quantizer, a back end that notices nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.reference import ReferenceModel
from swiftsure.errors import ModelFileError, UnsupportedModelError, UsageError
from swiftsure.kernels import reference
from swiftsure.models.quantize import QUANTIZED_TYPES, dequantize_rows, quantize_rows
from swiftsure.models.requantized import Requantized, requantization_plan
from tiny_models import MemoryTensors, TinyModel, TinySpec, TinyTensor

EMBEDDING, HEAD, QUERY, NORM = "token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.0.attn_norm.weight"
VALUE = "blk.0.attn_v.weight"
TOKENS = np.arange(40, dtype=np.int32)


def logits_of(backend: CPUBackend) -> NDArray[np.float32]:
    """Of all TOKENS, in two passes."""
    table = np.arange(backend.kv_blocks, dtype=np.int32)[None]
    parts = []
    for positions in np.split(TOKENS, 2):
        rows = np.arange(20, dtype=np.int32)
        batch = RowBatch(tokens=positions, positions=positions, sequences=np.zeros_like(rows), block_tables=table, logit_rows=rows)
        parts.append(backend.run(batch).copy())
    return np.concatenate(parts)


@pytest.mark.parametrize("before", ["F32", "F16", "BF16", "Q8_0"])
@pytest.mark.parametrize("after", ["Q4_0", "Q4_1"])
def test_a_read_tensor_is_what_the_quantizer_makes_of_the_sources_values(before: str, after: str) -> None:
    source = TinyModel(TinySpec(type=before)).source()
    narrow = Requantized(source, {QUERY: after})
    info = narrow.info(QUERY)
    values = dequantize_rows(before, source.read(QUERY), info.shape[1])
    data = narrow.read(QUERY)
    assert (info.type, info.nbytes, data.ndim) == (after, data.size, 1)
    np.testing.assert_array_equal(data, quantize_rows(after, values).reshape(-1))
    assert narrow.info(NORM) == source.info(NORM)
    np.testing.assert_array_equal(narrow.read(NORM), source.read(NORM))


@pytest.mark.parametrize("method", ["rtn", "search"])
def test_threads_change_no_byte(method: str) -> None:
    values = np.random.default_rng(0).normal(0, 1, (3000, 288)).astype(np.float32)  # several pieces, the last one short
    source = MemoryTensors([TinyTensor("w", "F32", values.shape, values.view(np.uint8).reshape(-1))])
    alone, shared = (Requantized(source, {"w": "Q4_1"}, method=method, threads=threads).read("w") for threads in (1, 3))
    np.testing.assert_array_equal(alone, shared)


@pytest.mark.parametrize("kind", QUANTIZED_TYPES)
def test_a_back_end_packs_it_like_a_file_of_these_types(kind: str) -> None:
    wide = TinyModel(TinySpec(type="BF16", tied=False))
    source = Requantized(wide.source(), requantization_plan(wide.source(), kind))
    narrow = MemoryTensors(
        TinyTensor(name, source.info(name).type, source.info(name).shape, source.read(name).copy()) for name in source.names()
    )
    made, read = (CPUBackend(wide.schedule, tensors, isa="portable", threads=1, kv_blocks=4) for tensors in (source, narrow))
    assert made.weight_bytes == read.weight_bytes
    logits = [logits_of(backend) for backend in (made, read)]
    np.testing.assert_array_equal(logits[0].view(np.uint32), logits[1].view(np.uint32))
    truth = ReferenceModel(wide.schedule, wide.source()).logits(TOKENS)
    assert reference.relative_l2(logits[0], truth) < {"Q8_0": 0.1, "Q4_1": 0.8, "Q4_0": 0.9}[kind]  # these models magnify, see test_cpu


def test_the_plan_covers_matrices_and_leaves_norms() -> None:
    source = TinyModel(TinySpec(type="F16", tied=False)).source()
    plan = requantization_plan(source, "Q4_0", head="Q8_0", embedding="Q4_1")
    assert (plan[EMBEDDING], plan[HEAD], plan[QUERY]) == ("Q4_1", "Q8_0", "Q4_0")
    assert NORM not in plan
    assert set(plan) == {name for name in source.names() if len(source.info(name).shape) == 2}


def test_a_head_that_is_the_embedding_has_one_type() -> None:
    source = TinyModel(TinySpec(type="BF16", tied=True)).source()
    assert requantization_plan(source, None, head="Q4_1") == {EMBEDDING: "Q4_1"}
    assert requantization_plan(source, "Q4_0", head="Q8_0", embedding="Q8_0")[EMBEDDING] == "Q8_0"
    with pytest.raises(UsageError, match="one tensor, which cannot be Q8_0 and Q4_0 at once"):
        requantization_plan(source, "Q4_0", head="Q8_0", embedding="Q4_0")


def test_eight_bits_are_rounded_again_only_where_that_is_asked_for() -> None:
    source = TinyModel(TinySpec(type="BF16", types={"head": "Q8_0"}, tied=False)).source()
    with pytest.raises(UnsupportedModelError, match=r"tensor 'output.weight' has type Q8_0 already: to Q4_1 it would be rounded twice"):
        requantization_plan(source, "Q4_1")
    assert requantization_plan(source, "Q4_1", requantize=True)[HEAD] == "Q4_1"
    assert HEAD not in requantization_plan(source, "Q8_0")


def test_half_float_vectors_become_float32_exactly() -> None:
    half = np.arange(8, dtype=np.float16) / 3
    source = MemoryTensors([TinyTensor("norm", "F16", (8,), half.view(np.uint8))])
    made = Requantized(source, requantization_plan(source, "Q4_0"))
    assert (made.info("norm").type, made.info("norm").nbytes) == ("F32", 32)
    np.testing.assert_array_equal(made.read("norm").view(np.float32), half.astype(np.float32))


def test_what_a_plan_cannot_do_is_refused_before_anything_is_read() -> None:
    model = TinyModel(TinySpec(type="Q4_1", hidden=64, types={"attn_v": "Q5_0"}))
    odd = TinyTensor("odd", "F16", (2, 40), np.zeros(160, np.uint8))
    source = MemoryTensors([*model.tensors.values(), odd])
    for plan, error, message in (
        ({QUERY: "Q4_0"}, UnsupportedModelError, "has type Q4_1, which cannot become Q4_0"),
        ({VALUE: "Q4_0"}, UnsupportedModelError, "has type Q5_0, which cannot become Q4_0: weights must be F32, F16 or BF16"),
        ({"odd": "Q8_0"}, UnsupportedModelError, "rows of a multiple of 32 to become Q8_0, got 40"),
        ({NORM: "Q8_0"}, UnsupportedModelError, "must be a matrix to be quantized, got shape"),
        ({"odd": "Q2_K"}, UsageError, "can become Q8_0, Q4_0, Q4_1 or F32, not 'Q2_K'"),
    ):
        with pytest.raises(error, match=message):
            Requantized(source, plan)
    with pytest.raises(UsageError, match="threads must be at least 1, got 0"):
        Requantized(source, {}, threads=0)


def test_a_weight_that_is_not_finite_is_refused_with_the_tensors_name() -> None:
    values = np.zeros((2, 32), np.float32)
    values[1, 3] = np.nan
    source = MemoryTensors([TinyTensor("w", "F32", (2, 32), values.view(np.uint8).reshape(-1))])
    with pytest.raises(ModelFileError, match="tensor 'w': weights must be finite to be quantized, got nan"):
        Requantized(source, {"w": "Q4_0"}).read("w")
