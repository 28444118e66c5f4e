"""Rows of a matrix are read alone, whatever holds them: pieces one after another are the whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hf_folders import whole_tiny_folder
from swiftsure.models.gguf import GGUFFile
from swiftsure.models.model_file import open_model_file
from swiftsure.models.requantized import Requantized
from swiftsure.models.tensors import MATRIX_TYPES, TensorInfo, TensorSource, row_pieces
from tiny_models import TinyModel, TinySpec, spec_of_type


def check_rows(source: TensorSource) -> None:
    for name in source.names():
        info, whole = source.info(name), source.read(name)
        assert whole.size == info.nbytes
        if len(info.shape) == 2:
            cuts = [0, 1, info.shape[0] // 3 + 2, info.shape[0]]
            pieces = [source.read(name, range(a, b)) for a, b in pairwise(cuts)]
            assert np.concatenate(pieces).tobytes() == whole.tobytes(), name


@pytest.mark.parametrize("tensor_type", MATRIX_TYPES)
def test_rows_of_a_gguf_file(tmp_path: Path, tensor_type: str) -> None:
    with GGUFFile(TinyModel(spec_of_type(tensor_type)).write_gguf(tmp_path / "tiny.gguf")) as file:
        check_rows(file)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_rows_of_a_folder(tmp_path: Path, architecture: str, dtype: str) -> None:
    spec = TinySpec(architecture=architecture, window=64 if architecture == "gemma3" else None)
    folder = whole_tiny_folder(TinyModel(spec), tmp_path / "tiny", dtype, shards=3)
    with open_model_file(folder) as file:
        check_rows(file)


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_what_is_quantized_while_it_is_read(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr("swiftsure.models.requantized._PIECE_VALUES", 320)  # of rows of 64 and 96
    model = TinyModel(TinySpec(type="F16"))
    check_rows(Requantized(model.source(), {"token_embd.weight": "Q8_0", "blk.0.ffn_down.weight": "Q4_1"}, threads=threads))


def test_pieces_cover_each_row_once_in_whole_strips() -> None:
    for rows, row_bytes in [(1, 10), (15, 1 << 20), (16, 5 << 20), (1000, 100_000), (262_144, 680), (33, 0)]:
        pieces = row_pieces(TensorInfo("w", "Q8_0", (rows, 32), rows * row_bytes), multiple=16)
        assert [row for piece in pieces for row in piece or ()] == list(range(rows))
        assert all(len(piece or ()) % 16 == 0 for piece in pieces[:-1])
        assert max(len(piece or ()) for piece in pieces) * row_bytes <= max(4 << 20, 16 * row_bytes)
    assert row_pieces(TensorInfo("w", "F32", (640,), 2560)) == [None]
