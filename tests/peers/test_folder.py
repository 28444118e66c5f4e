"""The model in the hub's words: names, configuration, and the order of rotated rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers.folder import halves_from_pairs, hub_name, write_folder

from swiftsure.kernels.reference import rope


def test_names_are_the_hubs() -> None:
    assert hub_name("blk.3.attn_q.weight") == "model.layers.3.self_attn.q_proj.weight"
    assert hub_name("token_embd.weight") == "model.embed_tokens.weight"
    assert hub_name("output_norm.weight") == "model.norm.weight"


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(8, 8), (8, 4)])
def test_reordered_rows_give_the_same_scores_under_the_hubs_rotation(head_dim: int, rotary_dim: int) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((5, 6))
    q, k = (random.standard_normal((2 * head_dim, 6)).astype(np.float32) for _ in range(2))

    def scores(q: np.ndarray, k: np.ndarray, style: str) -> np.ndarray:
        turned = [
            rope((x @ w.T).reshape(5, 2, head_dim), np.arange(5), rotary_dim=rotary_dim, theta=100.0, style=style)  # type: ignore[arg-type]
            for w in (q, k)
        ]
        return np.einsum("ihd,jhd->hij", *turned)

    hub = scores(halves_from_pairs(q, 2, rotary_dim), halves_from_pairs(k, 2, rotary_dim), "halves")
    np.testing.assert_allclose(hub, scores(q, k, "interleaved"), rtol=1e-9, atol=1e-9)
    assert not np.allclose(scores(q, k, "halves"), scores(q, k, "interleaved"))


@pytest.mark.model
def test_the_folder_holds_every_tensor_and_is_written_once(smollm2_path: Path, tmp_path: Path) -> None:
    from safetensors import safe_open

    from swiftsure.models.files import ModelFiles
    from swiftsure.models.model import open_model

    files = ModelFiles(name="m", path=smollm2_path, sha256="0" * 64, source="test", version=None, licence=None)
    with open_model(files) as model:
        folder = write_folder(model, tmp_path / "f")
        stamp = (folder / "model.safetensors").stat().st_mtime_ns
        assert (write_folder(model, tmp_path / "f") / "model.safetensors").stat().st_mtime_ns == stamp
        with safe_open(folder / "model.safetensors", "np") as tensors:
            assert len(tensors.keys()) == len(list(model.tensors.names()))
            assert tensors.get_tensor("model.layers.0.self_attn.k_proj.weight").shape == (192, 576)
    assert json.loads((folder / "config.json").read_text())["num_key_value_heads"] == 3
