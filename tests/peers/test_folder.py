"""The model as a folder for engines that read no GGUF."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers.folder import write_folder
from benchmarks.peers.process import PeerError

from swiftsure.kernels.reference import dequantize
from swiftsure.models.gguf import GGUFFile
from tiny_models import TinyModel, spec_of_type


@pytest.mark.model
@pytest.mark.upstream
def test_the_folder_holds_the_files_values_and_is_written_once(smollm2_path: Path, tmp_path: Path) -> None:
    for library in ("torch", "transformers", "gguf"):
        pytest.importorskip(library)
    from safetensors import safe_open

    folder = write_folder(smollm2_path, tmp_path / "f")
    stamp = (folder / "model.safetensors").stat().st_mtime_ns
    assert (write_folder(smollm2_path, folder) / "model.safetensors").stat().st_mtime_ns == stamp
    with safe_open(folder / "model.safetensors", "np") as tensors, GGUFFile(smollm2_path) as file:
        for ours, theirs in (("blk.3.attn_v", "layers.3.self_attn.v_proj"), ("blk.0.ffn_down", "layers.0.mlp.down_proj")):
            info = file.info(f"{ours}.weight")
            values = dequantize(info.type, file.read(info.name), info.shape).astype(np.float32)
            np.testing.assert_array_equal(tensors.get_tensor(f"model.{theirs}.weight"), values)
    assert json.loads((folder / "config.json").read_text())["num_key_value_heads"] == 3


def test_a_file_that_cannot_be_converted_leaves_nothing_behind(tmp_path: Path) -> None:
    damaged = tmp_path / "m.gguf"
    damaged.write_bytes(TinyModel(spec_of_type("Q4_1")).write_gguf(tmp_path / "whole.gguf").read_bytes()[:64])
    (tmp_path / "whole.gguf").unlink()
    with pytest.raises(PeerError, match=r"m\.gguf: cannot be written as a folder"):
        write_folder(damaged, tmp_path / "f")
    assert list(tmp_path.iterdir()) == [damaged]
