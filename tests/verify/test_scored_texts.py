"""Texts whose every position is compared: where they begin, and how far they go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import swiftsure
from edited_gguf import edited
from swiftsure.verify.proving.worker import Worker
from tiny_models import TinyModel, TinySpec


@pytest.mark.parametrize("leads", [True, False])
def test_a_scored_text_begins_as_the_vocabulary_begins_every_text(leads: bool, tmp_path: Path) -> None:
    spec = TinySpec(vocab=340)
    plain = TinyModel(spec).write_gguf(tmp_path / "plain.gguf")
    path = edited(plain, tmp_path / "edited.gguf", keys={"tokenizer.ggml.add_bos_token": leads})
    worker = Worker(swiftsure.load)
    worker.load(model=str(path), mode="default", options={"threads": 1, "context": 64, "offline": True, "cache": False})
    ids = worker.score(text="ab cd " * 40, tokens=20, logits=str(tmp_path / "rows"))["token_ids"]
    assert len(ids) == 20
    assert (ids[0] == 1) == leads
    assert np.fromfile(tmp_path / "rows", "<f4").size == 20 * spec.vocab
