"""Draft heads: what a file holds, what is refused by name, and that the schedule computes what the page says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edited_gguf import edited
from swiftsure.engine.reference import run_rows
from swiftsure.errors import ModelFileError, SwiftsureError, UnsupportedModelError, UsageError
from swiftsure.kernels import reference as ref
from swiftsure.models.draft_head import DraftHead, DraftHeadConfig, open_draft_head, write_draft_head
from swiftsure.models.files import ModelFiles
from swiftsure.models.gguf import GGUFFile
from tiny_heads import CONFIG, TARGET, head_arrays, head_file

Arrays = dict[str, NDArray[np.generic]]


def opened(path: Path) -> DraftHead:
    return open_draft_head(ModelFiles(name="head", path=path, sha256="0" * 64, source="path"))


def float64_head(
    arrays: Arrays, tokens: NDArray[np.int64], features: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The page's four lines in NumPy: logits (n, S) and next features (n, hidden). The twin of the schedule, written without it."""

    def norm(x: NDArray[np.float64], g: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG.norm_eps) * g)

    weights = {name: np.asarray(values, np.float64) for name, values in arrays.items()}
    embedding = TARGET.tensors["token_embd.weight"].values()
    x = features @ weights["feature.weight"].T + embedding[tokens] @ weights["token.weight"].T
    for block in range(CONFIG.blocks):
        n = norm(x, weights[f"blk.{block}.norm.weight"])
        gate, up = n @ weights[f"blk.{block}.gate.weight"].T, n @ weights[f"blk.{block}.up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weights[f"blk.{block}.down.weight"].T
    following = norm(x, weights["output_norm.weight"])
    return following @ embedding[np.asarray(arrays["shortlist"])].T, following


@pytest.mark.parametrize("matrix_type", ["BF16", "Q8_0", "Q4_0"])
def test_head_reads_back_what_was_written(tmp_path: Path, matrix_type: str) -> None:
    arrays = head_arrays()
    size = write_draft_head(tmp_path / "head.gguf", arrays, CONFIG, matrix_type=matrix_type)
    assert size == (tmp_path / "head.gguf").stat().st_size
    with opened(tmp_path / "head.gguf") as head, GGUFFile(tmp_path / "head.gguf") as file:
        assert head.config == CONFIG
        assert head.shortlist.tolist() == arrays["shortlist"].tolist()
        for name, values in arrays.items():
            info = file.info(name)
            if name == "shortlist":
                continue
            assert info.type == (matrix_type if values.ndim == 2 else "F32")
            found = ref.dequantize(info.type, file.read(name), info.shape)
            worst = {"F32": 0.0, "BF16": 2**-8, "Q8_0": 0.02, "Q4_0": 0.3}[info.type]
            assert np.linalg.norm(found - values) <= worst * np.linalg.norm(values)


def test_schedule_computes_what_the_page_says(tmp_path: Path) -> None:
    path = head_file(tmp_path / "head.gguf", matrix_type="BF16")
    rng = np.random.default_rng(2)
    tokens, features = rng.integers(0, TARGET.spec.vocab, 9), rng.standard_normal((9, CONFIG.hidden))
    with opened(path) as head, GGUFFile(path) as file:
        stored: Arrays = {
            name: ref.dequantize(file.info(name).type, file.read(name), file.info(name).shape)
            for name in head_arrays()
            if name != "shortlist"
        }
        stored["shortlist"] = head.shortlist
        logits, following = run_rows(head.schedule(), head.tensors(TARGET.source(), TARGET.schedule), tokens, features)
    true_logits, true_following = float64_head(stored, tokens, features)
    np.testing.assert_allclose(following, true_following, rtol=1e-12)
    np.testing.assert_allclose(logits, true_logits, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda a: a.pop("token.weight"), "missing or not known: token.weight"),
        (lambda a: a.update(extra=a["token.weight"]), "missing or not known: extra"),
        (lambda a: a.update({"token.weight": a["token.weight"][:-1]}), r"'token.weight' must be finite and of shape \[64, 64\]"),
        (lambda a: a.update({"blk.0.norm.weight": a["blk.0.norm.weight"] * np.nan}), "'blk.0.norm.weight' must be finite"),
        (lambda a: a.update(shortlist=a["shortlist"][::-1]), "ascending token ids"),
        (lambda a: a.update(shortlist=a["shortlist"][:0]), "at least one"),
        (lambda a: a.update(shortlist=a["shortlist"] * 0.5), "ascending token ids"),
    ],
)
def test_arrays_of_no_head_are_refused(tmp_path: Path, spoil: Callable[[Arrays], object], rule: str) -> None:
    arrays = head_arrays()
    spoil(arrays)
    with pytest.raises(UsageError, match=rule):
        write_draft_head(tmp_path / "head.gguf", arrays, CONFIG)
    assert not (tmp_path / "head.gguf").exists()


def test_unknown_matrix_type_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Q8_0, Q4_0, BF16, got 'Q2_K'"):
        write_draft_head(tmp_path / "head.gguf", head_arrays(), CONFIG, matrix_type="Q2_K")


@pytest.mark.parametrize(
    ("keys", "error", "rule"),
    [
        ({"general.architecture": "llama"}, UnsupportedModelError, "must be 'swiftsure-draft-head' in a draft head, got 'llama'"),
        ({"swiftsure.draft.hidden": 2**31}, ModelFileError, r"hidden' must be from 32 to 1048576 and a multiple of 32, got 2147483648"),
        ({"swiftsure.draft.hidden": 0}, ModelFileError, "hidden' must be from 32"),
        ({"swiftsure.draft.hidden": 96}, ModelFileError, "calls for"),
        ({"swiftsure.draft.inner": 48}, ModelFileError, "inner' must be from 32 to 1048576 and a multiple of 32, got 48"),
        ({"swiftsure.draft.blocks": 65}, ModelFileError, "blocks' must be from 0 to 64, got 65"),
        ({"swiftsure.draft.blocks": 1}, UnsupportedModelError, "'blk.1.norm.weight' is none that a draft head of 1 blocks"),
        ({"swiftsure.draft.blocks": 3}, ModelFileError, "'blk.2.norm.weight' is missing"),
        ({"swiftsure.draft.blocks": "two"}, ModelFileError, "must be an integer, got 'two'"),
        ({"swiftsure.draft.norm_eps": -1.0}, ModelFileError, "norm_eps' must be at least 0 and below 1"),
        ({"swiftsure.draft.norm_eps": float("nan")}, ModelFileError, "norm_eps' must be at least 0 and below 1"),
        ({"swiftsure.draft.target_sha256": "abc"}, ModelFileError, "64 hexadecimal digits, got 'abc'"),
    ],
)
def test_hostile_metadata_is_refused_by_name(tmp_path: Path, keys: dict[str, object], error: type[SwiftsureError], rule: str) -> None:
    path = edited(head_file(tmp_path / "head.gguf"), tmp_path / "hostile.gguf", keys=keys)
    with pytest.raises(error, match=rule) as caught:
        opened(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("tensors", "drop", "error", "rule"),
    [
        ({}, ("output_norm.weight",), ModelFileError, "'output_norm.weight' is missing"),
        ({}, ("shortlist",), ModelFileError, "'shortlist' is missing"),
        ({"feature.weight": np.zeros((64, 64), np.float32)}, (), UnsupportedModelError, "'feature.weight' has type F32"),
        ({"feature.weight": np.zeros((32, 64), np.float32)}, (), ModelFileError, r"'feature.weight' has shape \[32, 64\]"),
        ({"other.weight": np.zeros((32, 64), np.float32)}, (), UnsupportedModelError, "'other.weight' is none"),
        ({"shortlist": np.arange(4, dtype=np.float32)}, (), ModelFileError, "'shortlist' must be one row of"),
        ({"shortlist": np.array([[1, 2], [3, 4]], np.int32)}, (), ModelFileError, "'shortlist' must be one row of"),
        ({"shortlist": np.array([5, 4], np.int32)}, (), ModelFileError, "ascending order"),
        ({"shortlist": np.array([7, 7], np.int32)}, (), ModelFileError, "ascending order"),
        ({"shortlist": np.array([-1, 7], np.int32)}, (), ModelFileError, "ascending order"),
    ],
)
def test_hostile_tensors_are_refused_by_name(
    tmp_path: Path, tensors: dict[str, NDArray[np.float32]], drop: tuple[str, ...], error: type[SwiftsureError], rule: str
) -> None:
    path = edited(head_file(tmp_path / "head.gguf"), tmp_path / "hostile.gguf", tensors=tensors, drop_tensors=drop)
    with pytest.raises(error, match=rule):
        opened(path)


def test_truncated_head_is_refused(tmp_path: Path) -> None:
    path = head_file(tmp_path / "head.gguf")
    whole = path.read_bytes()
    for keep in (30, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:keep])
        with pytest.raises(ModelFileError):
            opened(path)


def test_head_of_other_sizes_is_written_and_read(tmp_path: Path) -> None:
    config: DraftHeadConfig = replace(CONFIG, blocks=0)
    arrays = {name: values for name, values in head_arrays().items() if not name.startswith("blk")}
    write_draft_head(tmp_path / "head.gguf", arrays, config, matrix_type="Q8_0")
    with opened(tmp_path / "head.gguf") as head:
        assert head.config == config
