"""What lies in the place of a model's file when a download went wrong is named, with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hf_folders import whole_tiny_folder
from swiftsure.errors import ModelFileError
from swiftsure.models.catalogue import resolve
from swiftsure.models.model import open_model
from tiny_models import TinyModel, TinySpec

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 98362432\n"
STAND_INS = {
    "pointer": (POINTER, "this is a Git LFS pointer, which stands for the file; fetch the file itself with: git lfs pull"),
    "page": (b"<!DOCTYPE html><html><head><title>404</title></head></html>", "this is a web page, which was saved in place of the file"),
    "page in capitals": (b"\n<HTML><BODY>Not found</BODY></HTML>", "this is a web page"),
}
OLD = {magic: (magic + bytes(100), "in a format that llama.cpp had before GGUF") for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_tiny_folder(TinyModel(TinySpec()), tmp_path_factory.mktemp("made") / "folder")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path / "home"))


@pytest.mark.parametrize(("data", "words"), [*STAND_INS.values(), *OLD.values()])
def test_in_place_of_a_gguf_file(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught, open_model(resolve(path)):
        pass
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kind", STAND_INS)
def test_in_place_of_a_file_of_a_folder(tmp_path: Path, folder: Path, name: str, kind: str) -> None:
    data, words = STAND_INS[kind]
    copy = shutil.copytree(folder, tmp_path / "folder")
    (copy / name).write_bytes(data)
    with pytest.raises(ModelFileError) as caught, open_model(resolve(copy)) as model:
        assert model.tokenizer
    assert str(caught.value).startswith(str(copy / name))
    assert words in str(caught.value)
