"""Every architecture in every tensor type: a few schedules each, every row against a token-by-token portable pass."""

from __future__ import annotations

import numpy as np
import pytest
from plans import TEXTS, run_plans
from worlds import Stage, Tally

from swiftsure import kernels
from swiftsure.engine.cpu import CPUBackend
from swiftsure.engine.numerics import FULL_NUMERICS, Numerics
from swiftsure.models.architectures import ARCHITECTURES
from tiny_models import MATRIX_TYPES, TinyModel, spec_of_type

SCHEDULES_PER_MODEL = 10
FULL_FACTOR = 20
KV_BLOCKS = 96
MAX_ROWS = 128


@pytest.mark.parametrize("tensor_type", MATRIX_TYPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_schedule_changes_a_bit(architecture: str, tensor_type: str, full: bool, tallies: dict[str, Tally]) -> None:
    index = MATRIX_TYPES.index(tensor_type) + list(ARCHITECTURES).index(architecture)
    scaling = ("none", "linear", "llama3")[index % 3]
    model = TinyModel(spec_of_type(tensor_type, seed=index, architecture=architecture, scaling=scaling))
    rng = np.random.default_rng(index)
    lengths = (300 if index % 2 else 90, 70, 33, 50, 1, 20)
    assert len(lengths) == TEXTS
    texts = [rng.integers(0, model.spec.vocab, length).astype(np.int32) for length in lengths]
    numerics = Numerics(packing={}, kv_bits=8) if index % 5 == 4 else FULL_NUMERICS

    def make(isa: str, threads: int) -> CPUBackend:
        return CPUBackend(
            model.schedule,
            model.source(),
            isa=isa,
            threads=threads,
            kv_blocks=KV_BLOCKS,
            max_rows=MAX_ROWS,
            max_logit_rows=MAX_ROWS,
            numerics=numerics,
        )

    tally = tallies.setdefault("every architecture x tensor type", Tally())
    before = len(tally.schedules)
    stage = Stage(f"{architecture} {tensor_type}", make, texts, tally)
    wanted = SCHEDULES_PER_MODEL * (FULL_FACTOR if full else 1)
    # More than needed: those that compare no row or repeat another are not counted.
    run_plans(stage.run, wanted + 3, isas=kernels.supported_isas())
    stage.close()
    assert len(tally.schedules) - before >= wanted
