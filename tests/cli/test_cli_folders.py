"""Every command that takes a model, on a folder of the transformers library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

from hf_folders import whole_tiny_folder
from swiftsure.models.catalogue import resolve
from tiny_models import TinyModel, TinySpec

MODEL = TinyModel(TinySpec(seed=11, type="BF16"))
PROMPT = "the cat sat on the mat and the cat sat on the"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return whole_tiny_folder(MODEL, tmp_path_factory.mktemp("folders") / "tiny-folder", shards=3)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights and vocabulary in one GGUF file."""
    return MODEL.write_gguf(tmp_path_factory.mktemp("twin") / "twin.gguf")


@pytest.mark.parametrize("more", [["--raw"], [], ["--system", "be brief"]], ids=["text", "chat", "chat with a system message"])
def test_a_folder_answers_as_the_gguf_file_of_the_same_weights(swiftsure: Run, folder: Path, twin: Path, more: list[str]) -> None:
    ours, theirs = (swiftsure("run", model, "-p", PROMPT, "--max-tokens", "40", *more) for model in (folder, twin))
    assert ours.code == theirs.code == 0, ours.err
    assert len(ours.out) > 20
    assert ours.out == theirs.out


def test_a_run_names_the_folder_by_its_digest(swiftsure: Run, folder: Path) -> None:
    result = swiftsure("run", folder, "-p", PROMPT, "--mode", "exact", "--max-tokens", "8")
    files = resolve(folder)
    assert f" model=tiny-folder weights=sha256:{files.sha256} " in result.line("ACTIVE")
    assert " status=ok " in result.line("EXIT")


def test_check_resolves_a_folder_without_running_it(swiftsure: Run, folder: Path) -> None:
    result = swiftsure("check", folder, "--mode", "exact", "--json")
    assert result.code == 0, result.err
    pins = json.loads(result.out)["pins"]
    assert pins["sha256"] == resolve(folder).sha256
    assert sorted(pins["files"]) == sorted(path.name for path in folder.iterdir())


def test_info_describes_a_folder(swiftsure: Run, folder: Path) -> None:
    facts = json.loads(swiftsure("models", "info", folder, "--json").out)
    assert (facts["architecture"], facts["format"], facts["licence"]) == ("llama", "safetensors, 3 files", None)
    assert (facts["tokenizer"]["kind"], facts["tokenizer"]["vocab_size"]) == ("tokenizer.json", MODEL.spec.vocab)
    assert facts["chat_template"] == {
        "system": True, "tools": False, "documents": False, "switches": [], "templates": ["default"], "error": None,
    }  # fmt: skip
    assert sorted(facts["file_sha256"]) == sorted(path.name for path in folder.iterdir())


def test_verify_lists_the_digest_of_every_file(swiftsure: Run, folder: Path) -> None:
    result = swiftsure("models", "verify", folder)
    assert result.code == 0, result.err
    listed = dict(line.split() for line in result.out.splitlines())
    assert listed["model-00002-of-00003.safetensors"] == (resolve(folder).file_sha256 or {})["model-00002-of-00003.safetensors"]


def test_prove_compares_the_modes_of_a_folder(swiftsure: Run, folder: Path, tmp_path: Path) -> None:
    prompts, path = tmp_path / "prompts.jsonl", tmp_path / "prove.json"
    prompts.write_text(json.dumps({"prompt": PROMPT, "max_tokens": 24}))
    result = swiftsure(
        "prove", folder, "--modes", "default,exact", "--prompts", prompts, "--rounds", "1", "--json", path, "--report", tmp_path / "report"
    )
    assert result.code == 0, result.err
    facts = json.loads(path.read_text())
    assert [(mode["mode"], mode["verdict"], mode["bits_differing"]) for mode in facts["modes"][:2]] == [
        ("default", "PROVED", 0),
        ("exact", "PROVED", 0),
    ]
    assert facts["pins"]["model"]["sha256"] == resolve(folder).sha256


def test_a_folder_may_draft_for_a_gguf_file_of_the_same_vocabulary(swiftsure: Run, folder: Path, twin: Path) -> None:
    result = swiftsure("run", twin, "-p", PROMPT, "--mode", "exact", "--draft", folder, "--max-tokens", "24")
    assert result.code == 0, result.err
    assert "draft=model:tiny-folder" in result.line("ACTIVE")


def test_quantize_says_that_it_reads_gguf_files_alone(swiftsure: Run, folder: Path, tmp_path: Path) -> None:
    result = swiftsure("quantize", folder, tmp_path / "out.gguf", "--type", "Q8_0")
    assert result.code == 2
    assert "only GGUF files are quantized to GGUF files" in result.err


def test_a_folder_of_pickles_is_refused_with_the_reason(swiftsure: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    result = swiftsure("run", tmp_path, "-p", PROMPT)
    assert result.code == 2
    assert "Python pickles (pytorch_model.bin), which can run code when loaded" in result.err
