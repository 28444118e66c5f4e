"""The models that other tests stand on."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from super_blocks import SUPER_TYPES, quantize
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.reference import ReferenceBackend, ReferenceModel
from swiftsure.kernels import reference as ref
from swiftsure.models.files import ModelFiles
from swiftsure.models.model import open_model
from tiny_models import MATRIX_TYPES, TinyModel, TinySpec, random_spec, spec_of_type
from tiny_vocabulary import byte_level_vocabulary


def test_a_seed_fixes_every_byte() -> None:
    first, second = TinyModel(random_spec(3)), TinyModel(random_spec(3))
    assert all(np.array_equal(first.tensors[name].data, second.tensors[name].data) for name in first.tensors)
    assert not np.array_equal(first.tensors["token_embd.weight"].data, TinyModel(TinySpec(seed=4)).tensors["token_embd.weight"].data)


@pytest.mark.parametrize("tensor_type", MATRIX_TYPES)
def test_the_written_file_holds_the_tensors_of_the_model(tmp_path: Path, tensor_type: str) -> None:
    model = TinyModel(spec_of_type(tensor_type, tied=False, vocab=96))
    assert {tensor.type for tensor in model.tensors.values()} == {tensor_type, "F32"}
    reader = gguf.GGUFReader(model.write_gguf(tmp_path / "tiny.gguf"))
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert found.keys() == model.tensors.keys()
    for name, tensor in model.tensors.items():
        assert found[name].tensor_type.name == tensor.type
        assert tuple(reversed(found[name].shape.tolist())) == tensor.shape
        assert np.array_equal(np.asarray(found[name].data).view(np.uint8).reshape(-1), tensor.data)


@pytest.mark.parametrize("tensor_type", SUPER_TYPES)
def test_super_blocks_are_what_the_gguf_package_reads_them_as_and_near_to_the_values(tensor_type: str) -> None:
    values = np.random.default_rng(1).standard_t(5, (20, 512))
    raw = quantize(values, tensor_type)
    read = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[tensor_type]).reshape(values.shape)
    assert ref.relative_l2(read, values) < {"Q4_K": 0.12, "Q5_K": 0.06, "Q6_K": 0.03}[tensor_type]


@pytest.mark.parametrize("vocab", [96, 200, 259, 300])
def test_the_vocabulary_has_the_size_asked_for_and_no_token_twice(vocab: int) -> None:
    tokens, merges = byte_level_vocabulary(vocab)
    assert len(tokens) == len(set(tokens)) == vocab
    assert all("".join(merge.split(" ")) in tokens for merge in merges)


@pytest.mark.parametrize("seed", range(6))
def test_the_reference_back_end_agrees_with_the_reference_model_however_rows_are_cut(seed: int) -> None:
    model = TinyModel(random_spec(seed))
    tokens = np.random.default_rng(seed).integers(0, model.spec.vocab, 70).astype(np.int32)
    truth = ReferenceModel(model.schedule, model.source()).logits(tokens)
    assert np.all(np.isfinite(truth))
    assert truth.std() > 0.3
    backend = ReferenceBackend(model.schedule, model.source(), kv_blocks=4)
    table = np.array([[3, 0, 2]], dtype=np.int32)
    position = 0
    for rows in (1, 30, 5, 34):
        positions = np.arange(position, position + rows, dtype=np.int32)
        wanted = np.array([rows - 1], dtype=np.int32)
        batch = RowBatch(
            tokens=tokens[positions], positions=positions, sequences=np.zeros(rows, np.int32), block_tables=table, logit_rows=wanted
        )
        position += rows
        assert np.allclose(backend.run(batch)[0], truth[position - 1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spec", [TinySpec(vocab=96, tied=False, type="Q8_0"), TinySpec(seed=5, head_dim=32, rope_theta=500.0)])
def test_the_written_file_opens_as_the_model_it_came_from(tmp_path: Path, spec: TinySpec) -> None:
    model = TinyModel(spec)
    path = model.write_gguf(tmp_path / "tiny.gguf")
    files = ModelFiles(name="tiny", path=path, sha256="", source="path")
    with open_model(files) as opened:
        tokens = np.arange(40) * 7 % spec.vocab
        ours = ReferenceModel(opened.schedule(), opened.tensors).logits(tokens)
        theirs = ReferenceModel(model.schedule, model.source()).logits(tokens)
        assert np.allclose(ours, theirs, rtol=1e-10, atol=1e-10)  # NumPy's products vary with the alignment of a buffer
        assert opened.tokenizer.decode(opened.tokenizer.encode("the rain", special=False)) == "the rain"
        assert opened.chat_template is not None
        rendered = opened.chat_template.render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
        assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
