"""Gemma-3-270M on real text against transformers, which dequantizes the same file."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest
from our_rows import rows_of_model

from swiftsure.errors import ModelError, NotActiveError
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from swiftsure.verify.upstream.agreement import run_transformers

pytestmark = [pytest.mark.model, pytest.mark.upstream]

TOKENS = 600  # past the window of 512


def test_logits_on_prose_agree_with_transformers(warm_python: str, figures: list[str]) -> None:
    try:
        files = resolve("gemma-3-270m", offline=True)
    except ModelError as error:
        pytest.skip(str(error))
    prose = resources.files("swiftsure.verify").joinpath("data", "harbour.txt").read_text(encoding="utf-8")
    with open_model(files) as model:
        # Without the token that starts a text, Gemma computes with far larger numbers than it was made for.
        assert model.tokenizer.bos_id is not None
        ids = [model.tokenizer.bos_id, *model.tokenizer.encode(prose, special=False)][:TOKENS]
    try:
        with run_transformers(files.path, prompts=[ids[:1]], forced=[[*ids[1:], 0]], threads=1, python=warm_python) as run:
            theirs = np.array(run.items[0].rows())
    except NotActiveError as error:
        pytest.skip(str(error))
    ours = rows_of_model(files.path, np.array(ids, np.int32))
    largest, spread = float(np.max(np.abs(ours - theirs))), float(theirs.std())
    figures.append(f"upstream, gemma-3-270m: largest logit difference {largest / spread:.3%} of the standard deviation, {len(ids)} tokens")
    assert len(ids) == TOKENS
    assert largest <= 0.005 * spread
    assert np.array_equal(ours.argmax(1), theirs.argmax(1))
