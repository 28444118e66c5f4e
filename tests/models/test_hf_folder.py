"""Folders of the transformers library: what is read, what is refused by name, and that they are the model of their GGUF twin."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_folders import Stored, stored, tiny_folder, tiny_tensors, write_folder
from swiftsure import kernels
from swiftsure.engine.backend import RowBatch
from swiftsure.engine.cpu import CPUBackend
from swiftsure.errors import ModelError, ModelFileError, ModelNotFoundError, UnsupportedModelError
from swiftsure.models.catalogue import resolve
from swiftsure.models.hf_folder import HFFolder
from swiftsure.models.model import Model, describe, open_model
from swiftsure.models.tensors import MATRIX_TYPES
from tiny_models import TinyModel, TinySpec

SPEC = TinySpec(seed=5, type="BF16")
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def model() -> TinyModel:
    return TinyModel(SPEC)


def logits(model: Model, ids: list[int]) -> np.ndarray:
    backend = CPUBackend(
        model.schedule(), model.tensors, isa=kernels.resolve_isa(None), threads=1, kv_blocks=10, max_rows=len(ids), max_logit_rows=len(ids)
    )
    every = np.arange(len(ids), dtype=np.int32)
    tables = np.arange(10, dtype=np.int32)[None, :]
    tokens = np.array(ids, dtype=np.int32)
    batch = RowBatch(tokens=tokens, positions=every, sequences=np.zeros_like(every), block_tables=tables, logit_rows=every)
    rows = backend.run(batch).copy()
    backend.close()
    return rows


def refusal(folder: Path, kind: type[ModelError]) -> str:
    with pytest.raises(kind) as caught, open_model(resolve(folder)):
        pass
    assert str(caught.value).startswith(str(folder))
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_folder_gives_the_greedy_tokens_of_the_gguf_file_of_the_same_weights(tmp_path: Path, dtype: str, shards: int) -> None:
    twin = TinyModel(TinySpec(seed=6, type=dtype, tied=shards == 1))
    folder, file = tiny_folder(twin, tmp_path / "folder", dtype, shards=shards), twin.write_gguf(tmp_path / "tiny.gguf")
    ids = np.random.default_rng(0).integers(0, SPEC.vocab, 300).tolist()
    with open_model(resolve(folder)) as ours, open_model(resolve(file)) as other:
        mine, theirs = logits(ours, ids), logits(other, ids)
    np.testing.assert_array_equal(mine.argmax(1), theirs.argmax(1))
    # Rows of q and k stand in another order, so sums are rounded in another order, no more.
    assert np.abs(mine - theirs).max() <= 1e-3 * theirs.std()


def test_schedule_says_which_rows_rotate_together(tmp_path: Path, model: TinyModel) -> None:
    with (
        open_model(resolve(tiny_folder(model, tmp_path / "f"))) as ours,
        open_model(resolve(model.write_gguf(tmp_path / "t.gguf"))) as other,
    ):
        assert {op.style for op in ours.schedule().ops if hasattr(op, "style")} == {"halves"}
        assert {op.style for op in other.schedule().ops if hasattr(op, "style")} == {"interleaved"}


@pytest.mark.parametrize("norms", ["F16", "BF16"])
def test_vectors_are_widened_to_the_same_values(tmp_path: Path, model: TinyModel, norms: str) -> None:
    folder = tiny_folder(model, tmp_path / "folder", norms=norms)
    with HFFolder(folder) as file:
        info = file.info("blk.0.attn_norm.weight")
        values = file.read(info.name).view(np.float32)
    dtype, _, data = stored(model.tensors["blk.0.attn_norm.weight"].values(), norms)
    bits = np.frombuffer(data, "<u2")
    expected = bits.view("<f2").astype(np.float32) if dtype == "F16" else (bits.astype(np.uint32) << 16).view(np.float32)
    assert (info.type, info.nbytes) == ("F32", 4 * SPEC.hidden)
    np.testing.assert_array_equal(values, expected)


def test_info_describes_a_folder(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "my model", shards=2)
    facts = describe(resolve(folder))
    assert facts["name"] == "my_model"
    assert facts["format"] == "safetensors, 2 files"
    assert facts["architecture"] == "llama"
    assert facts["unsupported"] == []
    assert facts["tensor_types"]["BF16"]["tensors"] == 15
    assert facts["file_bytes"] == sum(path.stat().st_size for path in folder.iterdir())
    infos = [model.source().info(name) for name in model.source().names()]
    row = 2 * SPEC.hidden  # of the embedding, beside the whole of it as the head; matrices are BF16, vectors F32
    assert facts["decode_bytes_per_token"] == sum((2 if len(t.shape) > 1 else 4) * t.elements for t in infos) + row


# --- config.json -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported; supported: "),
        ({"architectures": ["LlamaForSequenceClassification"]}, "architectures = ['LlamaForSequenceClassification'] is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu' is not supported"),
        ({"attention_bias": True}, "attention_bias = True is not supported, and ignoring it would run another model"),
        ({"mlp_bias": True}, "mlp_bias = True"),
        ({"pretraining_tp": 2}, "pretraining_tp = 2"),
        ({"quantization_config": {"bits": 4}}, "quantization_config = {'bits': 4} is not supported"),
        ({"auto_map": {"AutoModelForCausalLM": "modeling.Mine"}}, "auto_map"),
        ({"logit_scale": 0.5}, "logit_scale = 0.5 is not supported"),
        ({"torch_dtype": "float8_e4m3fn"}, "torch_dtype = 'float8_e4m3fn'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling.rope_type 'yarn' is not supported; supported: default, lin"),
        ({"rope_scaling": LLAMA3 | {"beta_fast": 32}}, "rope_scaling.beta_fast = 32 is not supported"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor = 0.5"),
        ({"rope_scaling": LLAMA3, "rope_parameters": {"rope_theta": 10000.0}}, "rope_scaling and rope_parameters are both given"),
    ],
)
def test_a_configuration_that_is_not_computed_is_refused_by_name(tmp_path: Path, model: TinyModel, fields: Any, words: str) -> None:
    assert words in refusal(tiny_folder(model, tmp_path / "f", **fields), UnsupportedModelError)


def test_every_reason_why_a_folder_cannot_run_is_named(tmp_path: Path, model: TinyModel) -> None:
    """Also those of sections and of tensors; what it holds is described all the same."""
    scaling = {"rope_type": "yarn", "factor": 4.0}
    extra: dict[str, Stored | None] = {"model.layers.0.extra.weight": ("I32", (4,), bytes(16))}
    folder = with_tensors(tmp_path / "f", model, extra, attention_bias=True, rope_scaling=scaling, logit_scale=0.5)
    facts = describe(resolve(folder))
    assert facts["unsupported"] == [
        "config.json: rope_scaling.rope_type 'yarn' is not supported; supported: default, linear, llama3",
        "config.json: attention_bias = True is not supported, and ignoring it would run another model",
        "config.json: logit_scale = 0.5 is not supported, and ignoring it would run another model",
        f"tensor 'model.layers.0.extra.weight' has type I32; supported: {', '.join(MATRIX_TYPES)}",
    ]
    assert facts["parameters"] > 4
    assert facts["unsupported"][0] + " (and 3 more: swiftsure models info lists them)" in refusal(folder, UnsupportedModelError)


def test_a_folder_of_another_model_type_is_described_by_its_tensors(tmp_path: Path, model: TinyModel) -> None:
    facts = describe(resolve(tiny_folder(model, tmp_path / "f", model_type="mamba")))
    assert facts["architecture"] == "mamba"
    assert facts["tensor_types"]["BF16"]["tensors"] == 15
    assert (facts["layers"], facts["context_length"]) == (None, None)
    assert len(facts["unsupported"]) == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers must be a whole number of at least 0, got '2'"),
        ({"num_hidden_layers": 2.5}, "must be a whole number"),
        ({"num_hidden_layers": True}, "must be a whole number"),
        ({"num_hidden_layers": -1}, "must be a whole number of at least 0, got -1"),
        ({"num_hidden_layers": 10**400}, "must be a whole number"),
        ({"num_hidden_layers": 100_000}, "layers must be between 1 and 4096"),
        ({"num_attention_heads": 0, "head_dim": None}, "hidden_size 64 is not a multiple of num_attention_heads 0"),
        ({"vocab_size": 301}, "has 300 rows, but 'llama.vocab_size' says 301"),
        ({"intermediate_size": 97}, "the metadata calls for"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number"),
        ({"rms_norm_eps": -1.0}, "rms_eps must be at least 0"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings must be true or false"),
        ({"tie_word_embeddings": False}, "tensor 'lm_head.weight' is missing"),
        ({"rope_scaling": 5}, "rope_scaling must be an object"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor is missing"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "rope_scaling.factor must be above 0"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": -1.0}}, "rope_scaling.low_freq_factor must be above 0, got -1.0"),
    ],
)
def test_a_configuration_that_lies_is_refused_with_the_rule(tmp_path: Path, model: TinyModel, fields: Any, words: str) -> None:
    assert words in refusal(tiny_folder(model, tmp_path / "f", **fields), ModelFileError)


def test_what_no_logit_depends_on_is_let_pass(tmp_path: Path, model: TinyModel) -> None:
    fields = {"use_cache": True, "attention_dropout": 0.1, "rope_scaling": None, "rope_interleaved": False, "is_llama_config": True}
    folder = tiny_folder(model, tmp_path / "f", **fields)
    config = json.loads((folder / "config.json").read_text()) | {"rope_scaling": None, "some_later_field": None}
    (folder / "config.json").write_text(json.dumps(config))
    open_model(resolve(folder)).close()


NO_OBJECT = ["", "[]", "{", '{"a": 1, "a": 2}', '{"a": Infinity}', "[" * 100_000, "\xff", " " * (1 << 21)]


@pytest.mark.parametrize("text", NO_OBJECT, ids=range(len(NO_OBJECT)))
def test_a_configuration_that_is_no_object_is_refused(tmp_path: Path, model: TinyModel, text: str) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    (folder / "config.json").write_text(text, encoding="latin-1")
    assert "config.json" in refusal(folder, ModelFileError)


def test_old_and_new_words_for_the_rotation_mean_the_same(tmp_path: Path, model: TinyModel) -> None:
    old = tiny_folder(model, tmp_path / "old", rope_theta=5000.0, rope_scaling=LLAMA3)
    new = tiny_folder(model, tmp_path / "new", rope_theta=None, rope_parameters=LLAMA3 | {"rope_theta": 5000.0})
    with HFFolder(old) as one, HFFolder(new) as two:
        rotation = {key: one.metadata.get(key) for key in one.metadata if ".rope." in key}
        assert rotation == {key: two.metadata.get(key) for key in two.metadata if ".rope." in key}
    assert rotation == {
        "llama.rope.dimension_count": SPEC.head_dim,
        "llama.rope.freq_base": 5000.0,
        "llama.rope.scaling.type": "llama3",
        "llama.rope.scaling.factor": 8.0,
        "llama.rope.scaling.low_freq_factor": 1.0,
        "llama.rope.scaling.high_freq_factor": 4.0,
        "llama.rope.scaling.original_context_length": 64,
    }


# --- tensors -----------------------------------------------------------------------------------------------------------------------


def with_tensors(folder: Path, model: TinyModel, change: dict[str, Stored | None], **config: Any) -> Path:
    tensors = {name: tensor for name, tensor in (tiny_tensors(model) | change).items() if tensor is not None}
    return write_folder(folder, model.huggingface_config() | config, tensors)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"model.norm.weight": None}, ModelFileError, "tensor 'output_norm.weight' is missing"),
        ({"model.layers.0.mlp.extra.weight": ("F32", (1,), bytes(4))}, UnsupportedModelError, "mlp.extra.weight' is none that"),
        ({"model.layers.00.mlp.up_proj.weight": ("F32", (1,), bytes(4))}, UnsupportedModelError, "layers.00"),
        ({"model.layers.0.self_attn.q_proj.bias": ("F32", (64,), bytes(256))}, UnsupportedModelError, "a bias"),
        ({"model.layers.0.mlp.up_proj.weight": ("I8", (96, 64), bytes(96 * 64))}, UnsupportedModelError, "has type I8; supported: F32"),
        ({"model.norm.weight": ("F64", (64,), bytes(512))}, UnsupportedModelError, "has type F64; supported: F32"),
        ({"model.norm.weight": ("F32", (63,), bytes(252))}, ModelFileError, "has shape [63]"),
        ({"model.embed_tokens.weight": ("F32", (300,), bytes(1200))}, ModelError, "token_embd.weight"),
        ({"blk.0.attn_q.weight": ("F32", (1,), bytes(4))}, ModelFileError, "are both GGUF's 'blk.0.attn_q.weight'"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused(tmp_path: Path, model: TinyModel, change: Any, kind: type[ModelError], words: str) -> None:
    assert words in refusal(with_tensors(tmp_path / "f", model, change), kind)


def test_tables_and_the_second_copy_of_a_tied_head_are_left_out(tmp_path: Path, model: TinyModel) -> None:
    more: dict[str, Stored | None] = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (8,), bytes(32)),
        "lm_head.weight": ("F32", (300, 64), bytes(300 * 64 * 4)),
    }
    with open_model(resolve(with_tensors(tmp_path / "f", model, more))) as opened:
        assert opened.config.tied_head
        assert set(opened.tensors.names()) == set(model.tensors)


# --- which folder ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_a_folder_of_pickles_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(UnsupportedModelError, match=rf"Python pickles \({name}\), which can run code when loaded"):
        resolve(tmp_path)


def test_an_adapter_is_refused_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(UnsupportedModelError, match=r"holds an adapter \(adapter_config.json\), which changes another model"):
        HFFolder(tmp_path)


def test_pickles_beside_safetensors_are_not_looked_at(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    before = resolve(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert resolve(folder) == before


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ([], ModelNotFoundError, "must hold exactly one .gguf file, or config.json and .safetensors files"),
        (["model.safetensors"], ModelNotFoundError, "must hold exactly one .gguf file, or config.json and .safetensors files"),
        (["config.json"], ModelFileError, "must hold model.safetensors or model.safetensors.index.json; .safetensors files there: none"),
        (["config.json", "adapter_model.safetensors"], ModelFileError, ".safetensors files there: adapter_model.safetensors"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, files: list[str], kind: type[ModelError], words: str) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(kind) as caught:
        resolve(tmp_path)
    assert words in str(caught.value)


def test_a_folder_is_called_by_its_name_however_it_is_reached(tmp_path: Path, model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    assert [resolve(name).name for name in (folder, "..", "../.")] == ["f"] * 3


def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path, model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_folder(model, tmp_path / "f")

    def refused(self: Path) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(ModelFileError, match="f: cannot be read: Permission denied"):
        resolve(folder)


def test_a_gguf_file_in_the_folder_is_the_model(tmp_path: Path, model: TinyModel) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    model.write_gguf(folder / "tiny.gguf")
    assert resolve(folder).path == folder / "tiny.gguf"


# --- beside the weights ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        ({}, {}),
        ({"tokenizer_config.json": {"chat_template": "A"}}, {"tokenizer.chat_template": "A"}),
        ({"tokenizer_config.json": {"chat_template": "A"}, "chat_template.jinja": "B"}, {"tokenizer.chat_template": "B"}),
        ({"tokenizer_config.json": {"bos_token": "<s>"}}, {}),
        (
            {"tokenizer_config.json": {"chat_template": [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "C"}]}},
            {"tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "C"},
        ),
        (
            {"generation_config.json": {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1}},
            {f"general.sampling.{name}": value for name, value in {"temp": 0.6, "top_p": 0.9, "top_k": 20, "penalty_repeat": 1.1}.items()},
        ),
        ({"generation_config.json": {"temperature": 0.6}}, {"general.sampling.temp": 0.0}),
    ],
)
def test_template_and_sampling_stand_under_ggufs_keys(tmp_path: Path, model: TinyModel, beside: Any, expected: dict[str, Any]) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    for name, content in beside.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with HFFolder(folder) as file:
        found = {key: file.metadata.get(key) for key in file.metadata if key.startswith(("tokenizer.", "general.sampling."))}
    assert found == expected


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("tokenizer_config.json", '{"chat_template": 5}', "chat_template must be a text"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "default"}]}', "chat_template must be a text"),
        ("tokenizer_config.json", "[]", "must hold a JSON object"),
        ("chat_template.jinja", "x" * (1 << 21), "must be at most 1,048,576 bytes"),
        ("generation_config.json", '{"do_sample": true, "top_p": "high"}', "top_p must be a number"),
    ],
)
def test_files_beside_the_weights_that_lie_are_refused(tmp_path: Path, model: TinyModel, name: str, text: str, words: str) -> None:
    folder = tiny_folder(model, tmp_path / "f")
    (folder / name).write_text(text)
    assert words in refusal(folder, ModelFileError)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(st.data())
def test_no_changed_byte_raises_anything_but_a_model_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tiny_folder(TinyModel(SPEC), tmp_path_factory.mktemp("changed"), shards=2, rope_scaling=LLAMA3)
    (folder / "tokenizer_config.json").write_text('{"chat_template": [{"name": "default", "template": "x"}]}')
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.5}')
    names = sorted(path.name for path in folder.iterdir())
    path = folder / data.draw(st.sampled_from(names))
    raw = bytearray(path.read_bytes())
    end = min(len(raw), 4096)  # beyond lie weights, whose bytes are what they are
    for at in data.draw(st.lists(st.integers(0, end - 1), min_size=1, max_size=4)):
        raw[at] = data.draw(st.one_of(st.sampled_from(b'0123456789[]{},:"-.e '), st.integers(0, 255)))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(raw))))
    path.write_bytes(raw[:cut])
    with contextlib.suppress(ModelError):
        describe(resolve(folder))
    with contextlib.suppress(ModelError), open_model(resolve(folder)) as opened:
        opened.schedule()
