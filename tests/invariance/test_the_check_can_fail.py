"""The comparison of the invariance tests notices what it is there to notice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from worlds import BitsDifferError, Part, Pass, Plan, Preempt, Stage, Tally, Text, World, check_row, token_by_token

from swiftsure.engine.backend import Backend, RowBatch
from swiftsure.engine.cpu import CPUBackend
from tiny_models import TinyModel, TinySpec

TOKENS = np.random.default_rng(8).integers(0, 300, 80).astype(np.int32)
DRAFTED = (
    Pass((Part(0, 40),)),
    Pass((Part(0, 1, draft=5, right=2),)),
    Pass((Part(0, 9), Part(1, 3))),
    Preempt(0, share=False),
    Pass((Part(0, 50),)),
)
PLAN = Plan(isa="portable", threads=1, texts=(0, 0), shares=(False, False), block_order=1, actions=DRAFTED)


def backend_of(model: TinyModel) -> CPUBackend:
    return CPUBackend(model.schedule, model.source(), isa="portable", threads=1, kv_blocks=16, max_rows=64, max_logit_rows=64)


@pytest.fixture
def model() -> TinyModel:
    return TinyModel(TinySpec(seed=8))


@pytest.fixture
def truth(model: TinyModel) -> Text:
    backend = backend_of(model)
    text = token_by_token(backend, TOKENS)
    backend.close()
    return text


def run(backend: Backend, truth: Text) -> Tally:
    tally = Tally()
    try:
        World(backend, [truth], PLAN, tally).run(PLAN.actions)
    finally:
        backend.close()
    return tally


def test_the_plan_passes_on_an_untampered_back_end(model: TinyModel, truth: Text) -> None:
    assert run(backend_of(model), truth).rows == 40 + 3 + 9 + 3 + 50


@pytest.mark.parametrize("name", ["token_embd.weight", "blk.0.attn_k.weight", "blk.1.ffn_down.weight", "output_norm.weight"])
def test_one_flipped_bit_of_a_weight_is_caught(model: TinyModel, truth: Text, name: str) -> None:
    byte = 0 if name != "token_embd.weight" else int(TOKENS[0]) * (model.spec.hidden // 32 * 20)
    with pytest.raises(BitsDifferError, match="logits differ"):
        run(backend_of(model.perturbed(name, byte)), truth)


@pytest.mark.parametrize("position", [0, 39, 41, 79])
def test_one_flipped_bit_of_a_true_row_is_caught(model: TinyModel, truth: Text, position: int) -> None:
    logits = truth.logits.copy()
    logits.view(np.uint32)[position, 7] ^= 1
    actions = (*DRAFTED, Pass((Part(0, 64),)))
    plan = Plan(isa="portable", threads=1, texts=(0, 0), shares=(False, False), block_order=1, actions=actions)
    backend = backend_of(model)
    with pytest.raises(BitsDifferError, match=rf"text 0, position {position}: 1 of 300"):
        World(backend, [Text(TOKENS, logits)], plan, Tally()).run(plan.actions)
    backend.close()


class Tampering:
    """A back end that changes rows by what shares their pass, as engines without the promise do."""

    def __init__(self, inner: CPUBackend, tamper: Callable[[RowBatch, NDArray[np.float32]], NDArray[np.float32]]) -> None:
        self._inner, self._tamper = inner, tamper

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def run(self, batch: RowBatch) -> NDArray[np.float32]:
        return self._tamper(batch, self._inner.run(batch).copy())


def last_bit_if_many_rows(batch: RowBatch, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    if len(batch.tokens) > 40:
        logits.view(np.uint32)[-1, 0] ^= 1
    return logits


def last_bit_if_company(batch: RowBatch, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    if batch.sequences.max() > 0:
        logits.view(np.uint32)[0, 0] ^= 1
    return logits


def rows_swapped(batch: RowBatch, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return logits[::-1]


def a_row_short(batch: RowBatch, logits: NDArray[np.float32]) -> NDArray[np.float32]:
    return logits[:-1]


@pytest.mark.parametrize("tamper", [last_bit_if_many_rows, last_bit_if_company, rows_swapped, a_row_short])
def test_a_back_end_whose_rows_depend_on_their_company_is_caught(
    model: TinyModel, truth: Text, tamper: Callable[[RowBatch, NDArray[np.float32]], NDArray[np.float32]]
) -> None:
    with pytest.raises(BitsDifferError):
        run(Tampering(backend_of(model), tamper), truth)  # type: ignore[arg-type]


def test_reading_another_block_is_caught(model: TinyModel, truth: Text) -> None:
    class Misplacing(Tampering):
        def run(self, batch: RowBatch) -> NDArray[np.float32]:
            tables = batch.block_tables.copy()
            if batch.positions.max() >= 64:
                tables[:, 0] = tables[:, 1]
            return self._inner.run(
                RowBatch(
                    tokens=batch.tokens,
                    positions=batch.positions,
                    sequences=batch.sequences,
                    block_tables=tables,
                    logit_rows=batch.logit_rows,
                )
            )

    actions = (Pass((Part(0, 60),)), Pass((Part(0, 10),)))
    plan = Plan(isa="portable", threads=1, texts=(0,), shares=(False,), block_order=1, actions=actions)
    backend = Misplacing(backend_of(model), last_bit_if_company)
    with pytest.raises(BitsDifferError):
        World(backend, [truth], plan, Tally()).run(plan.actions)  # type: ignore[arg-type]


def test_comparison_is_by_bytes_dtype_and_shape() -> None:
    zero = np.zeros(3, dtype=np.float32)
    nan = np.full(3, np.nan, dtype=np.float32)
    check_row(nan, nan.copy(), "equal bytes")
    with pytest.raises(BitsDifferError, match="3 of 3"):
        check_row(zero, -zero, "signed zero")
    with pytest.raises(BitsDifferError, match="float64"):
        check_row(zero.astype(np.float64), zero, "dtype")  # type: ignore[arg-type]
    with pytest.raises(BitsDifferError, match=r"\(2,\)"):
        check_row(zero[:2], zero, "shape")


def test_a_schedule_that_compares_nothing_is_not_counted(model: TinyModel) -> None:
    tally = Tally()
    stage = Stage("idle", lambda isa, threads: backend_of(model), [TOKENS], tally)
    for wanted, counted in (("none", 0), ("all", 1), ("all", 1)):
        stage.run(
            Plan(isa="portable", threads=1, texts=(0,), shares=(False,), block_order=1, actions=(Pass((Part(0, 5, wanted=wanted),)),))
        )  # type: ignore[arg-type]
        assert len(tally.schedules) == counted
    stage.close()


def test_shared_prefixes_and_wrong_drafts_really_occur(model: TinyModel, truth: Text) -> None:
    """The world shares whole blocks only, hands a resumed sequence other blocks and makes every guess past the right ones wrong."""
    seen: list[RowBatch] = []

    class Recording(Tampering):
        def run(self, batch: RowBatch) -> NDArray[np.float32]:
            seen.append(batch)
            return self._inner.run(batch)

    actions = (
        Pass((Part(0, 70),)),
        Preempt(1, share=True),
        Pass((Part(1, 1, draft=4, right=1),)),
        Preempt(0, share=False),
        Pass((Part(0, 40),)),
    )
    plan = Plan(isa="portable", threads=1, texts=(0, 0), shares=(False, False), block_order=1, actions=actions)
    backend = Recording(backend_of(model), last_bit_if_company)
    World(backend, [truth], plan, Tally()).run(plan.actions)  # type: ignore[arg-type]
    first, shared, again = seen
    assert first.block_tables[0, :2].tolist() == shared.block_tables[0, :2].tolist()
    assert shared.positions.tolist() == [64, 65, 66, 67, 68]
    assert shared.tokens[:2].tolist() == TOKENS[64:66].tolist()
    assert shared.tokens[2] != TOKENS[66]
    assert not set(again.block_tables[0].tolist()) & set(first.block_tables[0].tolist())
    backend.close()
