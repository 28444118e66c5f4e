"""Logits are a pure function of the tokens: random models, random schedules, every row against a token-by-token portable pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from plans import TEXTS, run_plans
from worlds import Stage, Tally

from swiftsure import kernels
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.numerics import FULL_NUMERICS, Numerics
from swiftsure.models.schedule import Matmul
from tiny_models import TinyModel, random_spec

MODELS = 24
FAST_MODELS = 3  # beside them: keys and values of eight bits; weights on one grid a row; both
SCHEDULES_PER_MODEL = 85  # 24 x 85 = 2,040 in the size for CI
FULL_FACTOR = 20
KV_BLOCKS = 96
MAX_ROWS = 128


def make_texts(model: TinyModel, seed: int) -> list[NDArray[np.int32]]:
    """Six texts, some with a common beginning; the first crosses key-value blocks of 32 and, for two models in three, spans of 256."""
    rng = np.random.default_rng(seed)
    longest = (90, 300, 560)[seed % 3]
    base = rng.integers(0, model.spec.vocab, longest)
    texts = [base]
    for shared in (int(rng.integers(32, 80)), int(rng.integers(longest // 2, longest))):
        texts.append(np.concatenate([base[:shared], rng.integers(0, model.spec.vocab, int(rng.integers(5, 60)))]))
    texts += [rng.integers(0, model.spec.vocab, int(length)) for length in (1, 33, rng.integers(2, 70))]
    assert len(texts) == TEXTS
    return [text.astype(np.int32) for text in texts]


def numerics_of(model: TinyModel, fast: int) -> Numerics:
    """``fast`` numbers the models with other numerics, from 0; below, full numerics."""
    if fast < 0:
        return FULL_NUMERICS
    names = [name for op in model.schedule.ops if isinstance(op, Matmul) for name in op.weights]
    grids = {name: ("R4", "R8")[index // 3 % 2] for index, name in enumerate(names)}
    return Numerics(packing=grids if fast else {}, kv_bits=16 if fast == 1 else 8)


@pytest.fixture(scope="module", params=range(MODELS + FAST_MODELS))
def stage(request: pytest.FixtureRequest, tallies: dict[str, Tally]) -> Iterator[Stage]:
    model = TinyModel(random_spec(request.param))

    def make(isa: str, threads: int) -> CPUBackend:
        return CPUBackend(
            model.schedule,
            model.source(),
            isa=isa,
            threads=threads,
            kv_blocks=KV_BLOCKS,
            max_rows=MAX_ROWS,
            max_logit_rows=MAX_ROWS,
            numerics=numerics_of(model, request.param - MODELS),
        )

    tally = tallies.setdefault("random small models", Tally())
    stage = Stage(f"random {request.param}", make, make_texts(model, request.param), tally)
    yield stage
    stage.close()


def test_every_row_has_the_bits_of_a_token_by_token_portable_pass(stage: Stage, full: bool, tallies: dict[str, Tally]) -> None:
    tally = tallies["random small models"]
    before = len(tally.schedules)
    wanted = SCHEDULES_PER_MODEL * (FULL_FACTOR if full else 1)
    # More than needed: those that compare no row or repeat another are not counted.
    run_plans(stage.run, wanted + wanted // 8, isas=kernels.supported_isas())
    assert len(tally.schedules) - before >= wanted


def test_texts_with_a_common_beginning_have_the_same_logits_there(stage: Stage) -> None:
    base, sibling = stage.texts[0], stage.texts[1]
    common = int(np.flatnonzero(base.tokens[: len(sibling.tokens)] != sibling.tokens[: len(base.tokens)])[0])
    assert common >= 32
    assert base.logits[:common].tobytes() == sibling.logits[:common].tobytes()
    assert base.logits[common].tobytes() != sibling.logits[common].tobytes()
