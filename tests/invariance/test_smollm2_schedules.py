"""The same on a real model: at least 50 schedules on SmolLM2 against one token-by-token portable pass over each text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from plans import TEXTS, plans
from worlds import Plan, Stage, Tally

from swiftsure import kernels
from swiftsure.engine.cpu import CPUBackend
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model

pytestmark = pytest.mark.model

SCHEDULES = 54
FULL_FACTOR = 20
KV_BLOCKS = 64
MAX_ROWS = 128
LENGTHS = (110, 56, 44, 40, 9, 1)  # of the texts; with --full the first crosses a span of 256
FULL_LENGTHS = (300, 260, 150, 60, 40, 1)

TEXT = (
    "Memory bandwidth sets the pace of a language model: for every token, all weights travel once from memory to the cores. "
    "def bytes_per_token(weights, kv):\n    return sum(w.nbytes for w in weights) + kv.nbytes\n\n"
    "A cache keeps what was read before; a draft guesses what comes next; neither may change a single bit. "
    "| mode | promise |\n|---|---|\n| exact | the same bits |\n| fast | within tolerances |\n"
    "Der Fluss war im März über die Ufer getreten. 日本語の文も少し。 "
    '{"name": "Ada", "born": 1815, "fields": ["mathematics", "computing"]} '
) * 3


@pytest.fixture(scope="module")
def stage(smollm2_path: Path, full: bool, tallies: dict[str, Tally]) -> Iterator[Stage]:
    with open_model(resolve(smollm2_path)) as model:
        ids = np.array(model.tokenizer.encode(TEXT, special=False), dtype=np.int32)
        lengths = FULL_LENGTHS if full else LENGTHS
        assert len(lengths) == TEXTS
        assert len(ids) >= lengths[0]
        # The second text leaves the first after 40 tokens, inside its second block; the others begin elsewhere.
        texts = [ids[: lengths[0]], np.concatenate([ids[:40], ids[200 : 200 + lengths[1] - 40]])]
        texts += [ids[7 * index : 7 * index + length] for index, length in enumerate(lengths[2:], start=1)]

        def make(isa: str, threads: int) -> CPUBackend:
            return CPUBackend(
                model.schedule(), model.tensors, isa=isa, threads=threads, kv_blocks=KV_BLOCKS, max_rows=MAX_ROWS, max_logit_rows=MAX_ROWS
            )

        stage = Stage("SmolLM2", make, texts, tallies.setdefault("SmolLM2-135M", Tally()))
        yield stage
        stage.close()


def test_every_row_of_smollm2_has_the_bits_of_a_token_by_token_portable_pass(stage: Stage, full: bool) -> None:
    wanted = SCHEDULES * (FULL_FACTOR if full else 1)
    fast = [isa for isa in kernels.supported_isas() if isa != "portable"]

    def run(isas: list[str], count: int, turns: tuple[int, int]) -> None:
        @settings(max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
        @given(plan=plans(isas=isas, threads=(1, 2), turns=turns))
        def check(plan: Plan) -> None:
            stage.run(plan)

        check()

    run(fast or ["portable"], wanted + 4, (3, 6))  # a few compare nothing and are not counted
    run(["portable"], 4, (2, 2))  # slow there: few, short
    assert len(stage.tally.schedules) >= wanted
