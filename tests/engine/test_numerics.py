"""The levers that change the function: what they make of a model, and that what was packed is what is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import swiftsure
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.numerics import FULL_NUMERICS, packed_weight_bytes, plan_numerics
from swiftsure.errors import NotActiveError
from tiny_models import TinyModel, TinySpec, spec_of_type


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = TinySpec(seed=5, types={"embed": "Q8_0", "attn_v": "F16"})
    return TinyModel(spec).write_gguf(tmp_path_factory.mktemp("numerics") / "tiny.gguf")


def test_without_numeric_levers_the_numerics_are_those_of_default() -> None:
    model = TinyModel(TinySpec())
    assert plan_numerics(model.schedule, model.source(), ("speculation", "batching")) == FULL_NUMERICS


def test_four_bit_weights_stay_at_four_bits_and_wider_ones_get_eight() -> None:
    model = TinyModel(TinySpec(types={"embed": "Q8_0", "attn_v": "F16"}))
    numerics = plan_numerics(model.schedule, model.source(), ("row_integers", "int8_kv"))
    assert numerics.id == "cpu1+row_integers+int8_kv32"
    assert numerics.packing["blk.0.attn_v.weight"] == "R8"
    assert numerics.packing["token_embd.weight"] == "R8"  # the head; looked-up rows stay as the file has them
    assert numerics.packing["blk.0.attn_q.weight"] == "R4"
    assert numerics.kv_bits == 8


@pytest.mark.parametrize("levers", [(), ("row_integers",)])
@pytest.mark.parametrize("kinds", [{}, {"embed": "Q8_0", "attn_v": "F16", "ffn_down": "Q5_1"}, {"embed": "BF16"}])
@pytest.mark.parametrize("tied", [True, False])
def test_planned_bytes_of_weights_are_those_that_are_packed(levers: tuple[str, ...], kinds: dict[str, str], tied: bool) -> None:
    """In strips of 16 rows, which these shapes fill."""
    model = TinyModel(TinySpec(types=kinds, tied=tied, vocab=320))
    numerics = plan_numerics(model.schedule, model.source(), levers)
    packed = CPUBackend(model.schedule, model.source(), isa="portable", threads=1, kv_blocks=2, numerics=numerics).weight_bytes
    planned = packed_weight_bytes(model.schedule, model.source(), numerics)
    assert planned <= packed <= planned + 64 * len(model.tensors), "each begins at a line of the cache"


@pytest.mark.parametrize(
    ("tensor_type", "grid"), [("Q4_0", "R4"), ("Q4_K", "R4"), ("Q5_0", "R8"), ("Q5_1", "R8"), ("Q5_K", "R8"), ("Q6_K", "R8")]
)
def test_every_file_type_runs_in_mode_fast(tmp_path: Path, tensor_type: str, grid: str) -> None:
    model = TinyModel(spec_of_type(tensor_type))
    assert set(plan_numerics(model.schedule, model.source(), ("row_integers",)).packing.values()) == {grid}
    path, ids = model.write_gguf(tmp_path / "tiny.gguf"), list(range(3, 60))
    with swiftsure.load(path, mode="default", threads=1, cache=False) as llm:
        expected = llm.logits(ids)
    with swiftsure.load(path, mode="fast", threads=1, cache=False) as llm:
        moved = llm.logits(ids)
    assert 0 < np.linalg.norm(moved - expected) / np.linalg.norm(expected) < 0.25


@pytest.mark.parametrize(
    ("without", "numerics", "uses"),
    [
        ((), "cpu1+row_integers+int8_kv32", {"row_integers", "int8_kv"}),
        (("int8_kv",), "cpu1+row_integers", {"row_integers"}),
        (("row_integers",), "cpu1+int8_kv32", {"int8_kv"}),
        (("row_integers", "int8_kv"), "cpu1", set()),
    ],
)
def test_each_lever_can_be_left_off_and_what_is_packed_is_counted(
    tiny: Path, without: tuple[str, ...], numerics: str, uses: set[str]
) -> None:
    with swiftsure.load(tiny, mode="fast", without=without, threads=1, cache=False) as llm:
        llm.generate([1, 2, 3, 4], max_tokens=3, ignore_eos=True)
        activation = llm.activation
        assert activation.numerics == numerics
        assert set(llm.backend.lever_uses) == uses
        states = {state.name: state for state in activation.lever_states}
        for lever in ("row_integers", "int8_kv"):
            assert states[lever].state == ("on" if lever in uses else "off")
        assert activation.unproved == ()


def test_fast_without_its_numeric_levers_has_the_bits_of_default(tiny: Path) -> None:
    ids = list(range(3, 60))
    with swiftsure.load(tiny, mode="default", threads=1, cache=False) as llm:
        expected = llm.logits(ids)
    with swiftsure.load(tiny, mode="fast", without=("row_integers", "int8_kv"), threads=1, cache=False) as llm:
        np.testing.assert_array_equal(llm.logits(ids).view(np.uint32), expected.view(np.uint32))
    with swiftsure.load(tiny, mode="fast", threads=1, cache=False) as llm:
        moved = llm.logits(ids)
    assert 0 < np.linalg.norm(moved - expected) / np.linalg.norm(expected) < 0.25  # heavy tails, on one grid a row


def test_a_matrix_that_no_grid_of_rows_can_hold_makes_the_lever_not_active_with_the_reason(tmp_path: Path) -> None:
    path = TinyModel(TinySpec(seed=6, type="F16", hidden=48, heads=3, kv_heads=1)).write_gguf(tmp_path / "odd.gguf")
    with pytest.raises(
        NotActiveError, match="lever row_integers cannot engage: matrices must have a multiple of 32 columns, at most 65536, got 48"
    ):
        swiftsure.load(path, mode="fast", threads=1)
