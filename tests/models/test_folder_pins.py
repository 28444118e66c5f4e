"""What a folder is pinned by: the digests of its files, and that a change after or while they are read is noticed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from hf_folders import tiny_folder
from swiftsure.errors import DigestError, ModelFileError
from swiftsure.models import cache
from swiftsure.models.catalogue import resolve, verify
from swiftsure.models.model import open_model
from tiny_models import TinyModel, TinySpec


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def model() -> TinyModel:
    return TinyModel(TinySpec(seed=5, type="BF16"))


def test_the_digest_is_what_sha256sum_prints_of_the_list(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "f", shards=2)
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not of the model")
    files = resolve(folder)
    assert files.file_sha256 is not None
    assert sorted(files.file_sha256) == [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    listed = subprocess.run(["sha256sum", *sorted(files.file_sha256)], cwd=folder, capture_output=True, check=True).stdout
    assert files.sha256 == hashlib.sha256(listed).hexdigest()
    assert files.pins()["files"] == files.file_sha256


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_any_file_that_changes_changes_the_digest(tmp_path: Path, model: TinyModel, name: str) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    (folder / "tokenizer.json").write_text("{}")
    before = resolve(folder).sha256
    with (folder / name).open("ab") as file:
        file.write(b" ")
    assert resolve(folder).sha256 != before


def test_progress_runs_once_over_the_bytes_of_all_files(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "f", shards=3)
    seen: list[tuple[int, int]] = []
    resolve(folder, progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)
    seen.clear()
    resolve(folder, progress=lambda done, total: seen.append((done, total)))
    assert seen == []  # every digest is on record


def test_verify_names_the_file_whose_bytes_changed_under_the_same_stamp(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    verify(folder)
    path = folder / "model.safetensors"
    cache.remember_digest(path, "0" * 64, cache.stamp_of(path))
    with pytest.raises(DigestError, match=r"model\.safetensors: SHA-256 was 0000"):
        verify(folder)


def test_a_folder_that_changed_after_its_digest_is_refused(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    files = resolve(folder)
    os.utime(folder / "config.json", (1, 1))
    with pytest.raises(ModelFileError, match="the file changed after its SHA-256 was taken"):
        open_model(files)


@pytest.mark.parametrize("change", ["weights", "config", "another file", "gone"])
def test_a_folder_that_changes_while_it_is_loaded_is_noticed(tmp_path: Path, model: TinyModel, change: str) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    (folder / "tokenizer.json").write_text("{}")
    with open_model(resolve(folder)) as opened:
        opened.check_unchanged()
        if change == "another file":
            (folder / "chat_template.jinja").write_text("x")
        elif change == "gone":
            (folder / "tokenizer.json").unlink()
        else:
            os.utime(folder / ("model.safetensors" if change == "weights" else "config.json"), (1, 1))
        with pytest.raises(ModelFileError, match="the folder changed while it was being loaded"):
            opened.check_unchanged()
