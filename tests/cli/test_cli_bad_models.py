"""Models that cannot be used: a clear line and exit code 2, from ``run`` and from ``check``."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from cli_runner import Run

import tiny_files
from swiftsure.models.architectures import ARCHITECTURES
from tiny_models import TinyModel, TinySpec, TinyTensor


def missing(folder: Path, sound: bytes) -> Path:
    return folder / "missing.gguf"


def empty(folder: Path, sound: bytes) -> Path:
    return written(folder, b"")


def no_model_at_all(folder: Path, sound: bytes) -> Path:
    return written(folder, b"just some text, and not a model " * 40)


def truncated_header(folder: Path, sound: bytes) -> Path:
    return written(folder, sound[:500])


def truncated_weights(folder: Path, sound: bytes) -> Path:
    return written(folder, sound[:-1000])


def hostile_counts(folder: Path, sound: bytes) -> Path:
    return written(folder, sound[:8] + b"\xff" * 16 + sound[24:])


def unknown_architecture(folder: Path, sound: bytes) -> Path:
    writer = gguf.GGUFWriter(folder / "model.gguf", "warbler")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "model.gguf"


def impossible_shape(folder: Path, sound: bytes) -> Path:
    model = TinyModel(TinySpec(seed=11))
    name = "blk.0.ffn_down.weight"
    old = model.tensors[name]
    half = old.shape[0] // 2
    model.tensors[name] = TinyTensor(name, old.type, (half, *old.shape[1:]), old.data[: old.data.size // 2])
    return model.write_gguf(folder / "model.gguf")


def written(folder: Path, data: bytes) -> Path:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "make",
    [missing, empty, no_model_at_all, truncated_header, truncated_weights, hostile_counts, unknown_architecture, impossible_shape],
)
@pytest.mark.parametrize("command", [["run", "-p", "hello"], ["check"]], ids=["run", "check"])
def test_a_model_that_cannot_be_used_is_one_clear_line(swiftsure: Run, tiny: Path, tmp_path: Path, make, command: list[str]) -> None:  # type: ignore[no-untyped-def]
    path = make(tmp_path, tiny.read_bytes())
    result = swiftsure(*command, "-m", path)
    assert result.code == 2
    assert path.name in result.line("error: ")
    assert result.out == ""


@pytest.mark.parametrize("command", [["run", "-p", "hello"], ["check"]], ids=["run", "check"])
def test_an_unsupported_architecture_is_named_beside_those_that_run(swiftsure: Run, tmp_path: Path, command: list[str]) -> None:
    result = swiftsure(*command, "-m", unknown_architecture(tmp_path, b""))
    assert result.code == 2
    assert f"architecture 'warbler' is not supported; supported: {', '.join(sorted(ARCHITECTURES))}" in result.line("error: ")


def test_an_unknown_name_is_refused_and_the_known_ones_are_named(swiftsure: Run) -> None:
    result = swiftsure("run", "smollm9", "-p", "hello")
    assert result.code == 2
    assert "smollm2-135m-instruct" in result.line("error: ")


def test_a_template_that_refuses_the_messages_is_quoted(swiftsure: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_files, "CHAT_TEMPLATE", "{{ raise_exception('this model takes no questions') }}")
    path = TinyModel(TinySpec(seed=11)).write_gguf(tmp_path / "shy.gguf")
    result = swiftsure("run", path, "-p", "hello")
    assert result.code == 2
    assert "this model takes no questions" in result.line("error: ")


def test_a_template_that_is_no_template_is_refused(swiftsure: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny_files, "CHAT_TEMPLATE", "{% for message in messages %}")
    path = TinyModel(TinySpec(seed=11)).write_gguf(tmp_path / "broken.gguf")
    result = swiftsure("run", path, "-p", "hello")
    assert result.code == 2
    assert "template" in result.line("error: ")
