"""Folders that transformers itself saved, read here and there: every model type, in shards, in each type of weights."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from our_rows import rows_of_model

import swiftsure
from hf_folders import tokenizer_files
from swiftsure.errors import NotActiveError
from swiftsure.models.hf_families import FAMILIES
from swiftsure.verify.upstream.agreement import run_transformers
from tiny_vocabulary import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_level_vocabulary

pytestmark = pytest.mark.upstream

TEXT = "A tide gauge tells the harbour how high the water stands, twelve times an hour. " * 2
TOKENS, VOCAB = 400, 300  # beyond one span of attention and beyond scaled and windowed contexts
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
NEAR = {"rope_type": "default", "rope_theta": 5000.0}

GEMMA3 = {
    "head_dim": 32,
    "query_pre_attn_scalar": 48,
    "sliding_window": 60,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model type, what its configuration says beyond the widths, and how it is saved."""

    model_type: str
    config_class: str
    config: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    shard_bytes: str | int = "100KB"


CASES = {
    "llama": Case(model_type="llama", config_class="LlamaConfig"),
    "llama, tied, bfloat16, one file": Case(
        model_type="llama", config_class="LlamaConfig", config={"tie_word_embeddings": True}, dtype="bfloat16", shard_bytes="1GB"
    ),
    "llama 3, float16": Case(
        model_type="llama", config_class="LlamaConfig", config={"head_dim": 32, "rope_parameters": LLAMA3}, dtype="float16"
    ),
    "llama, linear": Case(model_type="llama", config_class="LlamaConfig", config={"rope_parameters": LINEAR}),
    "qwen2": Case(model_type="qwen2", config_class="Qwen2Config"),
    "qwen2, tied, bfloat16": Case(model_type="qwen2", config_class="Qwen2Config", config={"tie_word_embeddings": True}, dtype="bfloat16"),
    "mistral": Case(model_type="mistral", config_class="MistralConfig", config={"sliding_window": 100}),
    "mistral without a window, bfloat16": Case(
        model_type="mistral", config_class="MistralConfig", config={"sliding_window": None}, dtype="bfloat16"
    ),
    "gemma 3": Case(model_type="gemma3_text", config_class="Gemma3TextConfig", config=GEMMA3),
    "gemma 3, bfloat16, global layers scaled": Case(
        model_type="gemma3_text",
        config_class="Gemma3TextConfig",
        config=GEMMA3 | {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": NEAR}},
        dtype="bfloat16",
    ),
    "qwen3, bfloat16": Case(model_type="qwen3", config_class="Qwen3Config", config={"head_dim": 32}, dtype="bfloat16"),
}
WIDTHS = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
}  # fmt: skip


def test_every_model_type_is_among_the_folders_compared() -> None:
    assert {case.model_type for case in CASES.values()} == set(FAMILIES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> dict[str, Path]:
    """One folder a case. Skips the tests, with the reason, where transformers is not installed."""
    place = tmp_path_factory.mktemp("folders")
    made = {name: place / str(index) for index, name in enumerate(CASES)}
    jobs = [
        {
            "folder": str(made[name]),
            "class": FAMILIES[case.model_type].causal_class,
            "config_class": case.config_class,
            "config": WIDTHS | case.config,
            "dtype": case.dtype,
            "shard_bytes": case.shard_bytes,
        }
        for name, case in CASES.items()
    ]
    (place / "jobs.json").write_text(json.dumps(jobs))
    command = [warm_python, "-I", str(Path(__file__).with_name("write_folder.py")), str(place / "jobs.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 4:
        pytest.skip(f"{done.stderr.strip()} in {warm_python}")
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("name", CASES)
def test_a_saved_folder_gives_the_logits_of_transformers(
    name: str, folders: dict[str, Path], tmp_path: Path, warm_python: str, figures: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path))
    folder = folders[name]
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    assert (len(files) > 2) == (CASES[name].shard_bytes == "100KB")
    tokens = np.random.default_rng(0).integers(0, VOCAB, TOKENS).astype(np.int32)
    try:
        with run_transformers(folder, prompts=[tokens[:1]], forced=[[*tokens[1:], 0]], threads=1, python=warm_python) as run:
            theirs = np.array(run.items[0].rows())
    except NotActiveError as error:
        pytest.skip(str(error))
    ours = rows_of_model(folder, tokens)
    largest, spread = float(np.max(np.abs(ours - theirs))), float(theirs.std())
    figures.append(f"upstream, folder ({name}): largest logit difference {largest / spread:.3%} of the standard deviation of logits")
    assert ours.shape == theirs.shape
    assert largest <= 0.005 * spread


NEW = 48


@pytest.fixture(scope="module")
def continued(folders: dict[str, Path], warm_python: str) -> dict[str, Any]:
    """What transformers' ``generate`` makes of a text, by folder, which gets a tokenizer first."""
    for folder in folders.values():
        for name, text in tokenizer_files(*byte_level_vocabulary(VOCAB), SPECIAL_TOKENS, CHAT_TEMPLATE).items():
            (folder / name).write_text(text)
    command = [warm_python, "-I", str(Path(__file__).with_name("write_greedy.py"))]
    done = subprocess.run(
        [*command, *map(json.dumps, ([*map(str, folders.values())], TEXT, NEW, list(range(len(SPECIAL_TOKENS)))))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("mode", ["default", "exact"])
@pytest.mark.parametrize("name", CASES)
def test_greedy_tokens_of_a_saved_folder_are_those_of_generate(
    name: str,
    mode: str,
    folders: dict[str, Path],
    continued: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may part only where the two best logits of transformers lie closer than twice the difference that is allowed of one; in the run
    that this was written with all were the same. No token may end the text, which random weights soon do."""
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path))
    theirs = continued[str(folders[name])]
    with swiftsure.load(folders[name], mode=mode, threads=1, cache=False) as llm:
        [result] = llm.generate([TEXT], max_tokens=NEW, logit_bias=dict.fromkeys(range(len(SPECIAL_TOKENS)), -100.0))
    assert list(result.prompt_ids) == theirs["prompt"]
    assert len(result.token_ids) == len(theirs["ids"]) == NEW
    same = next((at for at, (a, b) in enumerate(zip(result.token_ids, theirs["ids"], strict=True)) if a != b), NEW)
    assert same == NEW or theirs["margins"][same] < 0.01
