"""A quantized file: read by gguf's own reader, metadata copied to the byte, whole or not there at all, and a model that runs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import swiftsure
from edited_gguf import edited
from gguf_bytes import ARRAY, F32, STRING, U32, GGUFBytes, pair, strings, tensor, text, u32, u64
from swiftsure.engine.reference import ReferenceModel
from swiftsure.errors import CapacityError, ModelFileError, UnsupportedModelError, UsageError
from swiftsure.kernels import reference
from swiftsure.models.files import ModelFiles, file_stamp
from swiftsure.models.gguf import GGUFFile
from swiftsure.models.gguf_writer import metadata_entry, write_gguf
from swiftsure.models.quantize import QUANTIZED_TYPES
from swiftsure.models.quantize_file import PROVENANCE_KEY, QuantizeReport, quantize_file
from swiftsure.models.tensors import TensorInfo
from tiny_models import TinyModel, TinySpec

EMBEDDING, HEAD, QUERY, NORM = "token_embd.weight", "output.weight", "blk.0.attn_q.weight", "blk.0.attn_norm.weight"
TOKENS = np.arange(40, dtype=np.int32)
TEXT = """A river does not hurry, and yet by evening it has carried the whole valley's rain to the sea. The miller knows this; he sets
his wheel low, waits, and lets the water do what a hundred horses could not. When the frost comes he mends the paddles, counts his
sacks, and writes in a small brown book how much flour went to which village, so that nobody can say in spring that he was cheated.

def moving_average(values, width):
    total = sum(values[:width])
    yield total / width
    for old, new in zip(values, values[width:]):
        total += new - old
        yield total / width
"""


def files_of(path: Path) -> ModelFiles:
    return ModelFiles(name=path.stem, path=path, sha256="0" * 64, source="path")


def make(source: Path, target: Path, kind: str | None, **options: Any) -> QuantizeReport:
    return quantize_file(files_of(source), target, kind, version="9.9", **options)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with BF16 weights and a head of its own."""
    return TinyModel(TinySpec(type="BF16", tied=False, seed=2)).write_gguf(tmp_path_factory.mktemp("wide") / "wide.gguf")


@pytest.mark.parametrize("before", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("kind", QUANTIZED_TYPES)
def test_plain_rounding_gives_the_file_that_ggufs_quantizer_would(tmp_path: Path, before: str, kind: str) -> None:
    model = TinyModel(TinySpec(type=before, tied=False))
    make(model.write_gguf(tmp_path / "wide.gguf"), tmp_path / "narrow.gguf", kind, method="rtn", threads=2)
    made = {t.name: t for t in gguf.GGUFReader(tmp_path / "narrow.gguf").tensors}
    assert list(made) == list(model.tensors)
    for name, source in model.tensors.items():
        if len(source.shape) == 1:
            expected, tensor_type = source.data, "F32"
        else:
            expected = gguf.quants.quantize(source.values().astype(np.float32), gguf.GGMLQuantizationType[kind])
            tensor_type = kind
        assert made[name].tensor_type.name == tensor_type
        np.testing.assert_array_equal(np.array(made[name].data).view(np.uint8).reshape(-1), expected.reshape(-1))


def test_metadata_is_copied_to_the_byte_whatever_its_types(tmp_path: Path) -> None:
    nested = u32(ARRAY) + u64(1) + u32(U32) + u64(2) + u32(1) + u32(2)
    pairs = [
        pair("general.architecture", STRING, text("none")),
        pair("general.alignment", U32, u32(64)),
        pair("tiny.int8", 1, b"\xff"),
        pair("tiny.uint64", 10, u64(1 << 60)),
        pair("tiny.float64", 12, np.float64(0.1).tobytes()),
        strings("tiny.strings", ["a", "", "ü"]),
        pair("tiny.nested", ARRAY, nested),
        pair("general.file_type", U32, u32(1)),
        pair("tiny.eps", F32, np.float32(1e-5).tobytes()),
    ]
    tensors = [tensor("odd.bias", (3,), kind=0), tensor("w", (32, 2), kind=1, offset=64)]
    data = np.float32([1, 2, 3]).tobytes() + bytes(52) + np.arange(64, dtype=np.float16).tobytes()
    source = tmp_path / "source.gguf"
    source.write_bytes(GGUFBytes(pairs=pairs, tensors=tensors, alignment=64, data=data).build())
    make(source, tmp_path / "made.gguf", "Q8_0")
    with GGUFFile(source) as before, GGUFFile(tmp_path / "made.gguf") as after:
        same = [key for key in before.metadata if key != "general.file_type"]
        assert [after.metadata_entry(key) for key in same] == [before.metadata_entry(key) for key in same]
        assert (after.alignment, after.metadata.integer("general.file_type")) == (64, 7)
        assert after.metadata.integer("general.quantization_version") == 2
        facts = json.loads(after.metadata.text(PROVENANCE_KEY))
        assert facts == {"source_sha256": "0" * 64, "tool": "swiftsure 9.9", "method": "search"}
        assert after.read("odd.bias").view(np.float32).tolist() == [1, 2, 3]
    assert gguf.GGUFReader(tmp_path / "made.gguf").fields["tiny.strings"].contents() == ["a", "", "ü"]


@pytest.mark.parametrize(("kind", "limit"), [("Q8_0", 0.2), ("Q4_1", 0.8), ("Q4_0", 0.9)])
def test_the_report_states_bytes_errors_and_the_worst_tensor(wide: Path, tmp_path: Path, kind: str, limit: float) -> None:
    target = tmp_path / "narrow.gguf"
    report = make(wide, target, kind)
    assert report.output_bytes == target.stat().st_size
    errors = {}
    with GGUFFile(wide) as before, GGUFFile(target) as after:
        for made in report.tensors:
            old, new = (reference.dequantize(f.info(made.name).type, f.read(made.name), made.shape) for f in (before, after))
            errors[made.name] = reference.relative_l2(new, old)
            assert made.relative_l2 == pytest.approx(errors[made.name], rel=1e-4)
            assert (made.source_bytes, made.bytes) == (before.info(made.name).nbytes, after.info(made.name).nbytes)
        assert report.worst == max(errors, key=lambda name: errors[name])
        assert report.copied == 5  # norms
        schedule = TinyModel(TinySpec(type="BF16", tied=False, seed=2)).schedule
        truth, narrow = (ReferenceModel(schedule, f).logits(TOKENS) for f in (before, after))
    assert reference.relative_l2(narrow, truth) < limit  # unrelated logits: 1.4; random models magnify, test_cpu says why


def test_the_search_brings_logits_nearer_than_plain_rounding(wide: Path, tmp_path: Path) -> None:
    schedule = TinyModel(TinySpec(type="BF16", tied=False, seed=2)).schedule
    with GGUFFile(wide) as file:
        truth = ReferenceModel(schedule, file).logits(TOKENS)
    distance = {}
    for method in ("rtn", "search"):
        make(wide, tmp_path / f"{method}.gguf", "Q8_0", method=method)
        with GGUFFile(tmp_path / f"{method}.gguf") as file:
            distance[method] = reference.relative_l2(ReferenceModel(schedule, file).logits(TOKENS), truth)
    assert distance["search"] < distance["rtn"]


def test_head_and_embedding_have_types_of_their_own(wide: Path, tmp_path: Path) -> None:
    make(wide, tmp_path / "mixed.gguf", "Q4_0", head="Q8_0", embedding="Q4_1")
    with GGUFFile(tmp_path / "mixed.gguf") as file:
        assert [file.info(name).type for name in (EMBEDDING, HEAD, QUERY, NORM)] == ["Q4_1", "Q8_0", "Q4_0", "F32"]
    report = make(wide, tmp_path / "head.gguf", None, head="Q8_0")
    assert [made.name for made in report.tensors] == [HEAD]
    again = make(tmp_path / "head.gguf", tmp_path / "again.gguf", None, head="Q4_1", requantize=True)
    assert again.requantized == (HEAD,)


def test_progress_ends_with_every_byte(wide: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    make(wide, tmp_path / "x.gguf", "Q4_0", progress=lambda done, total: seen.append((done, total)))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == seen[-1][1]


# --- whole or not at all ------------------------------------------------------------------------------------------------------------


def test_output_that_cannot_be_is_refused_and_nothing_is_touched(wide: Path, tmp_path: Path) -> None:
    there = tmp_path / "there.gguf"
    there.write_bytes(b"mine")
    link = tmp_path / "link.gguf"
    os.link(shutil.copy(wide, tmp_path / "copy.gguf"), link)
    (tmp_path / "folder.gguf").mkdir()
    for source, target, force, message in (
        (wide, there, False, "exists; --force replaces it"),
        (wide, wide, True, "source and output must be different files"),
        (tmp_path / "copy.gguf", link, True, "source and output must be different files"),
        (wide, tmp_path / "folder.gguf", True, "must be a file, and .* is a folder"),
        (wide, tmp_path / "none" / "x.gguf", False, "folder must exist"),
        (wide, tmp_path / "x.bin", False, r"must be called \*.gguf"),
    ):
        with pytest.raises(UsageError, match=message):
            make(source, target, "Q4_0", force=force)
    assert there.read_bytes() == b"mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.gguf", "folder.gguf", "link.gguf", "there.gguf"]
    make(wide, there, "Q4_0", force=True)
    assert there.read_bytes()[:4] == b"GGUF"


def test_a_full_disk_is_refused_before_and_survived_while_writing(wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1000))
        with pytest.raises(CapacityError, match=r"needs \d+ bytes, but its file system has 1000 free"):
            make(wide, tmp_path / "x.gguf", "Q4_0")

    def breaks(_info: TensorInfo) -> Iterator[NDArray[np.uint8]]:
        yield np.zeros(16, np.uint8)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_gguf(tmp_path / "x.gguf", [metadata_entry("k", 1)], [TensorInfo("t", "F32", (8,), 32)], breaks)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_changes_meanwhile_is_refused(wide: Path, tmp_path: Path) -> None:
    source = Path(shutil.copy(wide, tmp_path / "source.gguf"))
    stamp = file_stamp(source.stat())

    def disturb(_done: int, _total: int) -> None:
        with source.open("ab") as file:
            file.write(b"x")

    with pytest.raises(ModelFileError, match="the file changed while it was being loaded"):
        make(source, tmp_path / "out.gguf", "Q4_0", progress=disturb)
    with pytest.raises(ModelFileError, match="the file changed after its digest was taken"):
        quantize_file(replace(files_of(source), stamp=stamp), tmp_path / "out.gguf", "Q4_0", version="9.9")
    assert [p.name for p in tmp_path.iterdir()] == ["source.gguf"]


def test_a_weight_that_is_not_finite_leaves_no_file(tmp_path: Path) -> None:
    model = TinyModel(TinySpec(type="F32"))
    values = model.tensors[QUERY].values().astype(np.float32)
    values[3, 5] = np.inf
    source = edited(model.write_gguf(tmp_path / "sound.gguf"), tmp_path / "bad.gguf", tensors={QUERY: values})
    with pytest.raises(ModelFileError, match=f"bad.gguf: tensor '{QUERY}': weights must be finite to be quantized, got inf"):
        make(source, tmp_path / "out.gguf", "Q4_0")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.gguf", "sound.gguf"]


def test_sources_that_cannot_follow_are_refused_by_name(tmp_path: Path) -> None:
    odd = TinyModel(TinySpec(type="F16", hidden=40, intermediate=50, heads=3, kv_heads=3)).write_gguf(tmp_path / "odd.gguf")
    narrow = TinyModel(TinySpec(type="Q4_1")).write_gguf(tmp_path / "narrow.gguf")
    eight = TinyModel(TinySpec(type="Q8_0")).write_gguf(tmp_path / "eight.gguf")
    split = edited(eight, tmp_path / "split.gguf", keys={"split.count": 2})
    for source, kind, error, message in (
        (odd, "Q4_0", UnsupportedModelError, "odd.gguf: tensor '.*' must have rows of a multiple of 32 to become Q4_0, got 40"),
        (narrow, "Q4_0", UnsupportedModelError, "has type Q4_1, which cannot become Q4_0"),
        (eight, "Q4_0", UnsupportedModelError, "has type Q8_0 already: to Q4_0 it would be rounded twice"),
        (eight, "Q8_0", UsageError, "every tensor has its type already"),
        (split, "Q4_0", UnsupportedModelError, "one of 2 parts"),
        (eight, "Q5_0", UsageError, "type must be one of Q8_0, Q4_0, Q4_1, got 'Q5_0'"),
    ):
        with pytest.raises(error, match=message):
            make(source, tmp_path / "out.gguf", kind)
    assert not (tmp_path / "out.gguf").exists()
    assert len(make(eight, tmp_path / "out.gguf", "Q4_0", requantize=True).requantized) == 15


def test_the_writer_refuses_values_that_no_entry_can_hold() -> None:
    assert metadata_entry("k", 1 << 40)[9:13] == u32(10)
    assert metadata_entry("k", True)[9:] == u32(7) + b"\x01"
    for value in (-1, 1 << 64):
        with pytest.raises(UsageError, match=f"metadata key 'k' must be from 0 to .*, got {value}"):
            metadata_entry("k", value)


@pytest.mark.model
def test_the_pinned_models_head_becomes_four_bits_and_the_search_keeps_its_logits_nearer(smollm2_path: Path, tmp_path: Path) -> None:
    def log_probabilities(path: Path) -> NDArray[np.float64]:
        with swiftsure.load(path, threads=2, context=256, cache=False) as llm:
            ids = llm.model.tokenizer.encode(TEXT, special=False)
            logits = llm.logits(ids).astype(np.float64)
        logits -= logits.max(axis=1, keepdims=True)
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))

    released, divergence = log_probabilities(smollm2_path), {}
    for method in ("rtn", "search"):
        made = tmp_path / f"{method}.gguf"
        report = make(smollm2_path, made, None, head="Q4_0", requantize=True, method=method, threads=2)
        assert report.requantized == (EMBEDDING,)
        divergence[method] = (np.exp(released) * (released - log_probabilities(made))).sum(axis=1).mean()
    assert divergence["search"] < divergence["rtn"] < 0.2
    with GGUFFile(smollm2_path) as before, GGUFFile(tmp_path / "rtn.gguf") as after:
        for name in ("blk.7.ffn_down.weight", "output_norm.weight"):
            np.testing.assert_array_equal(after.read(name), before.read(name))
