"""Small random draft heads for the tiny models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from swiftsure.models.draft_head import DraftHeadConfig, write_draft_head
from tiny_models import TinyModel, TinySpec

TARGET = TinyModel(TinySpec(type="F16"))
CONFIG = DraftHeadConfig(target_sha256="0" * 64, hidden=TARGET.spec.hidden, blocks=2, inner=96, norm_eps=float(np.float32(1e-5)))


def head_arrays(
    config: DraftHeadConfig = CONFIG, *, vocab: int = TARGET.spec.vocab, shortlist: int = 120, seed: int = 0
) -> dict[str, NDArray[np.generic]]:
    """Random weights of about unit gain; a shortlist of ``shortlist`` tokens."""
    rng = np.random.default_rng(seed)
    hidden, inner = config.hidden, config.inner
    arrays: dict[str, NDArray[np.generic]] = {
        name: (rng.standard_normal((hidden, hidden)) / np.sqrt(hidden)).astype(np.float32) for name in ("feature.weight", "token.weight")
    }
    for block in range(config.blocks):
        arrays[f"blk.{block}.norm.weight"] = rng.uniform(0.6, 1.4, hidden).astype(np.float32)
        for part, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
            arrays[f"blk.{block}.{part}.weight"] = (rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
    arrays["output_norm.weight"] = rng.uniform(0.6, 1.4, hidden).astype(np.float32)
    arrays["shortlist"] = np.sort(rng.choice(vocab, shortlist, replace=False)).astype(np.int32)
    return arrays


def head_file(path: Path, *, target_sha256: str = CONFIG.target_sha256, matrix_type: str = "Q8_0", seed: int = 0) -> Path:
    write_draft_head(path, head_arrays(seed=seed), replace(CONFIG, target_sha256=target_sha256), matrix_type=matrix_type)
    return path
