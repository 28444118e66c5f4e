"""The CPU back end on small random models: close to the float64 twin, the same bits on every path, honest about what it holds."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from swiftsure import kernels
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.reference import ReferenceBackend, ReferenceModel
from swiftsure.errors import UnsupportedModelError, UsageError
from swiftsure.kernels import reference
from swiftsure.models.tensors import TensorInfo
from tiny_architectures import ARCHITECTURES
from tiny_models import MATRIX_TYPES, MemoryTensors, TinyModel, TinySpec, spec_of_type

# Attention of these random models is sharp and their activations have heavy tails: both magnify the rounding of keys and activations
# several times over what trained models show (SmolLM2: 1e-4).
TOLERANCE = 1e-3
TOKENS = np.random.default_rng(5).integers(0, 300, 290).astype(np.int32)


def backend(spec: TinySpec, isa: str = "portable", threads: int = 1, **options: int) -> CPUBackend:
    model = TinyModel(spec)
    return CPUBackend(model.schedule, model.source(), isa=isa, threads=threads, kv_blocks=24, **options)


def feed(target: CPUBackend, tokens: NDArray[np.int32], rows: int) -> NDArray[np.float32]:
    """Logits of all positions, in passes of ``rows`` rows."""
    table = np.arange(target.kv_blocks, dtype=np.int32)[None]
    out = []
    for start in range(0, len(tokens), rows):
        part = tokens[start : start + rows]
        count = np.arange(len(part), dtype=np.int32)
        batch = RowBatch(tokens=part, positions=start + count, sequences=np.zeros_like(count), block_tables=table, logit_rows=count)
        out.append(target.run(batch).copy())
    return np.concatenate(out)


@pytest.mark.parametrize("tensor_type", MATRIX_TYPES)
def test_logits_are_close_to_the_float64_twin(tensor_type: str) -> None:
    model = TinyModel(spec_of_type(tensor_type))
    truth = ReferenceModel(model.schedule, model.source()).logits(TOKENS[:60])
    measured = feed(backend(model.spec), TOKENS[:60], 20)
    assert reference.relative_l2(measured, truth) < TOLERANCE


@pytest.mark.parametrize("tensor_type", MATRIX_TYPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_in_every_type_is_close_to_the_float64_twin(architecture: str, tensor_type: str) -> None:
    spec = spec_of_type(tensor_type, seed=3, architecture=architecture, scaling="linear")
    model = TinyModel(spec)
    truth = ReferenceModel(model.schedule, model.source()).logits(TOKENS[:60])
    measured = feed(backend(spec), TOKENS[:60], 20)
    assert reference.relative_l2(measured, truth) < TOLERANCE


@pytest.mark.parametrize(
    "spec",
    [
        TinySpec(type="Q4_0", kv_heads=4, hidden=96, intermediate=32),
        TinySpec(type="Q8_0", heads=6, kv_heads=1, head_dim=48, tied=False, rope_style="halves"),
        TinySpec(type="F16", heads=3, kv_heads=3, hidden=40, intermediate=50),
        TinySpec(types={"attn_k": "Q8_0", "attn_v": "BF16", "ffn_up": "F32", "head": "Q4_0"}, tied=False),
        TinySpec(
            type="Q4_K", hidden=256, heads=8, head_dim=32, intermediate=512, types={"attn_v": "Q6_K", "ffn_down": "Q5_K", "head": "Q8_0"}
        ),
        TinySpec(type="Q5_0", hidden=96, types={"attn_v": "Q5_1", "ffn_down": "Q8_0", "attn_k": "Q4_1"}),
    ],
    ids=["one-head-a-group", "wide-heads", "widths-of-no-block", "mixed-types", "super-blocks", "five-bits"],
)
def test_every_shape_and_mixture_gives_one_set_of_bits_close_to_the_twin(spec: TinySpec) -> None:
    alone = feed(backend(spec), TOKENS, 1)
    model = TinyModel(spec)
    truth = ReferenceModel(model.schedule, model.source()).logits(TOKENS)
    assert reference.relative_l2(alone, truth) < TOLERANCE
    for isa in kernels.supported_isas():
        for threads, rows in [(1, 32), (3, 7), (2, 1)]:
            assert feed(backend(spec, isa, threads), TOKENS, rows).tobytes() == alone.tobytes(), (isa, threads, rows)


class CountingTensors(MemoryTensors):
    """Remembers what was read."""

    def __init__(self, model: TinyModel) -> None:
        super().__init__(model.tensors.values())
        self.calls: list[str] = []
        self.rows: dict[str, list[int]] = defaultdict(list)

    def read(self, name: str, rows: range | None = None) -> NDArray[np.uint8]:
        self.calls.append(name)
        self.rows[name] += [0] if rows is None else rows
        return super().read(name, rows)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_each_tensor_is_read_and_packed_once(tied: bool, threads: int) -> None:
    model = TinyModel(TinySpec(tied=tied))
    source = CountingTensors(model)
    steps: list[tuple[int, int]] = []
    made = CPUBackend(
        model.schedule, source, isa="portable", threads=threads, kv_blocks=4, progress=lambda done, total: steps.append((done, total))
    )
    assert {name: sorted(rows) for name, rows in source.rows.items()} == {
        name: list(range(tensor.shape[0] if len(tensor.shape) > 1 else 1)) for name, tensor in model.tensors.items()
    }
    assert len(source.calls) == len(model.tensors), "small tensors are read whole"
    total = sum(tensor.nbytes for tensor in model.tensors.values())
    assert steps[-1] == (total, total)
    assert [done for done, _ in steps] == sorted({done for done, _ in steps})
    # Q4_1 packs into its own size, up to strips of 16 rows and cache lines.
    assert total <= made.weight_bytes <= 1.1 * total + 64 * len(model.tensors)


def test_it_states_what_it_holds() -> None:
    made = backend(TinySpec(), threads=2, max_rows=9, max_logit_rows=3)
    assert (made.numerics, made.isa, made.threads, made.vocab_size) == ("cpu1", "portable", 2, 300)
    assert (made.max_rows, made.max_logit_rows, made.kv_block_size, made.kv_blocks) == (9, 3, 32, 24)
    assert made.kv_bytes == 2 * 2 * 24 * 32 * (4 * 16 + 8)
    assert made.pack_seconds > 0


def test_a_closed_back_end_refuses_to_run_and_closes_twice() -> None:
    made = backend(TinySpec())
    made.close()
    made.close()
    with pytest.raises(UsageError, match="the back end is closed"):
        feed(made, TOKENS[:1], 1)


def test_a_step_that_breaks_a_rule_is_a_usage_error() -> None:
    made = backend(TinySpec())
    with pytest.raises(UsageError, match=r"token of row 0 is 300, not in \[0, 300\)"):
        feed(made, np.array([300], dtype=np.int32), 1)


class RelabelledTensors(MemoryTensors):
    """One tensor claims another type or shape."""

    def __init__(self, model: TinyModel, name: str, **changes: object) -> None:
        super().__init__(model.tensors.values())
        self._name, self._changes = name, changes

    def info(self, name: str) -> TensorInfo:
        found = super().info(name)
        return dataclasses.replace(found, **self._changes) if name == self._name else found  # type: ignore[arg-type]

    def names(self) -> Iterable[str]:
        return super().names()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("blk.0.attn_k.weight", {"type": "Q3_K"}, "tensor 'blk.0.attn_k.weight' has type Q3_K; supported: F32, F16"),
        ("blk.1.attn_norm.weight", {"type": "F16"}, "tensor 'blk.1.attn_norm.weight' must be a vector of type F32, got F16"),
        ("blk.0.attn_q.weight", {"type": "Q6_K"}, "'blk.0.attn_q.weight' of type Q6_K must have a multiple of 256 columns, got 64"),
        ("blk.0.ffn_down.weight", {"shape": (64, 48)}, "'blk.0.ffn_down.weight' of type Q4_1 must have a multiple of 32 columns, got 48"),
        ("blk.0.attn_v.weight", {"shape": (32,)}, "tensor 'blk.0.attn_v.weight' must be a matrix"),
        ("blk.0.ffn_up.weight", {"shape": (96, 96)}, "multiply one input but have 64 and 96 columns"),
    ],
)
def test_weights_these_kernels_do_not_run_are_refused_by_name(name: str, changes: dict[str, object], message: str) -> None:
    model = TinyModel(TinySpec())
    with pytest.raises(UnsupportedModelError, match=message):
        CPUBackend(model.schedule, RelabelledTensors(model, name, **changes), isa="portable", threads=1, kv_blocks=1)


def test_a_head_dim_of_no_whole_vector_is_refused() -> None:
    model = TinyModel(TinySpec())
    schedule = dataclasses.replace(model.schedule, head_dim=24)
    with pytest.raises(UnsupportedModelError, match="head_dim must be a multiple of 16 from 16 to 256, got 24"):
        CPUBackend(schedule, model.source(), isa="portable", threads=1, kv_blocks=1)


@pytest.mark.parametrize("setting", ["threads", "max_rows", "max_logit_rows"])
def test_impossible_settings_are_usage_errors(setting: str) -> None:
    with pytest.raises(UsageError, match=f"{setting} must be at least 1, got 0"):
        backend(TinySpec(), **{setting: 0})


def test_hidden_rows_are_those_that_the_logits_came_from() -> None:
    spec = TinySpec(type="Q4_1")
    target = backend(spec)
    twin = ReferenceBackend(TinyModel(spec).schedule, TinyModel(spec).source(), kv_blocks=24)
    zero = np.zeros(12, np.int32)
    batch = RowBatch(
        tokens=TOKENS[:12],
        positions=np.arange(12, dtype=np.int32),
        sequences=zero,
        block_tables=np.arange(24, dtype=np.int32)[None],
        logit_rows=np.array([3, 4, 11], np.int32),
    )
    for one in (target, twin):
        one.run(batch)
    assert target.hidden().shape == (3, TinySpec().hidden)
    assert reference.relative_l2(target.hidden(), twin.hidden().astype(np.float64)) < TOLERANCE
