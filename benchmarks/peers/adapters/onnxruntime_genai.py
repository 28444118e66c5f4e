"""ONNX Runtime GenAI: its own builder quantizes the float32 weights to 4 bits, for integer products with 8-bit activations."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.contract import Adapter, Contender, Environment, NotOfferedError, Place, RowComparison, compare_rows

ENVIRONMENT = Environment(
    requirements=(
        "onnxruntime-genai==0.18.0",
        "torch==2.13.0",
        "transformers==5.24.0",
        "onnx==1.23.2",
        "onnx-ir==1.1.0",
        "numpy==2.4.6",
    ),
    variables={"HF_HUB_OFFLINE": "1"},
    note="weights rounded a second time, to symmetric 4 bits in blocks of 32: not the file's weights, so its text differs",
)
CONTENDERS = (Contender(name="ONNX Runtime GenAI int4", variant="int4"),)


def prepare(place: Place) -> None:
    """Builds the model folder once. The builder wants a tokenizer it can save; ids need none, so it gets an empty one."""
    target = Path(place.cache) / "int4"
    if (target / "genai_config.json").is_file():
        return
    source, partial = Path(place.cache) / "source", Path(place.cache) / "int4.partial"
    for folder in (source, partial):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    config = json.loads((Path(place.folder) / "config.json").read_text())
    unused = config["vocab_size"] - 1  # generation goes on at end-of-text, so another token has to be named
    (source / "config.json").write_text(json.dumps(config | {"bos_token_id": unused, "eos_token_id": unused, "pad_token_id": unused}))
    (source / "model.safetensors").symlink_to(Path(place.folder) / "model.safetensors")
    words = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    (source / "tokenizer.json").write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": words, **empty}))
    (source / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    builder = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-p", "int4", "-e", "cpu", "-i", str(source), "-o", str(partial)]
    subprocess.run([*builder, "--extra_options", "int4_accuracy_level=4"], check=True, stdout=sys.stderr)
    partial.rename(target)


def open_adapter(variant: str) -> Adapter:
    return _OnnxRuntime()


class _OnnxRuntime:
    def load(self, place: Place, *, threads: int, context: int) -> Mapping[str, Any]:
        import onnxruntime_genai

        self._genai = onnxruntime_genai
        self._context = context
        config = onnxruntime_genai.Config(str(Path(place.cache) / "int4"))
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self._model = onnxruntime_genai.Model(config)
        return {"onnxruntime_genai": onnxruntime_genai.__version__, "settings": {"bits": 4, "accuracy_level": 4}}

    def _generator(self, length: int) -> Any:
        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(do_sample=False, max_length=length)
        return self._genai.Generator(self._model, params)

    def stream(self, ids: Sequence[int], max_tokens: int) -> Iterator[Sequence[int]]:
        generator = self._generator(min(len(ids) + max_tokens, self._context))
        generator.append_tokens(list(ids))
        for _ in range(max_tokens):
            generator.generate_next_token()
            yield [int(generator.get_next_tokens()[0])]

    def batch(self, prompts: Sequence[Sequence[int]], max_tokens: int) -> list[list[int]]:
        raise NotOfferedError("prompts of a batch must have one length")

    def rows(self, ids: Sequence[int]) -> RowComparison:
        import numpy as np

        generator = self._generator(len(ids) + 1)
        generator.append_tokens(list(ids))
        batch = np.array(generator.get_output("logits")[0], np.float32)
        single, generator = np.empty_like(batch), self._generator(len(ids) + 1)
        for position, token in enumerate(ids):
            generator.append_tokens([token])
            single[position] = generator.get_output("logits")[0, -1]
        return compare_rows(batch, single)
