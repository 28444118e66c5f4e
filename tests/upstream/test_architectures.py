"""Every architecture against transformers in float32: the same small random weights, ours read from a GGUF file.

Positions go beyond the original context of scaled rotations and beyond one span of attention.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from our_rows import rows_of_model

from swiftsure.errors import NotActiveError
from swiftsure.kernels import reference as ref
from swiftsure.models.architectures import ARCHITECTURES
from swiftsure.verify.upstream.agreement import run_transformers
from tiny_architectures import ROPE_FACTORS
from tiny_files import huggingface_name
from tiny_models import TinyModel, TinySpec, spec_of_architecture

TOKENS = 600

SPECS = {
    "llama": spec_of_architecture("llama", seed=11, type="F32"),
    "llama, linear scaling": spec_of_architecture("llama", seed=12, type="F32", scaling="linear", scaling_factor=4.0),
    "llama 3, scaled by wavelength": spec_of_architecture("llama", seed=13, type="F32", scaling="llama3", head_dim=64, rope_theta=5e5),
    "qwen2": spec_of_architecture("qwen2", seed=14, type="F32", rope_theta=1e6),
    "qwen2, untied, BF16": spec_of_architecture("qwen2", seed=15, type="BF16", tied=False, heads=6, kv_heads=2, head_dim=16, hidden=96),
    "qwen3": spec_of_architecture("qwen3", seed=16, type="F32", rope_theta=1e6),
    "mistral": spec_of_architecture("llama", seed=18, type="F32", window=100),
    "mistral, window of spans": spec_of_architecture("llama", seed=19, type="BF16", window=256, heads=8, kv_heads=2, tied=False),
    "gemma3": spec_of_architecture("gemma3", seed=20, type="F32", layers=7, window=64, rope_theta=1e6, kv_heads=1),
    "gemma3, window past a span, F16": spec_of_architecture("gemma3", seed=21, type="F16", window=300, global_every=2, head_dim=32),
    "gemma3, global layers scaled": spec_of_architecture(
        "gemma3", seed=22, type="F32", layers=6, window=33, rope_theta=1e6, scaling="linear"
    ),
    "qwen3, heads wider than the hidden size, F16": spec_of_architecture("qwen3", seed=17, type="F16", head_dim=32, scaling="linear"),
}


def test_every_architecture_is_among_the_models_compared() -> None:
    assert {spec.architecture for spec in SPECS.values()} == set(ARCHITECTURES)


@pytest.mark.upstream
@pytest.mark.parametrize("name", SPECS)
def test_logits_agree_with_transformers(name: str, tmp_path: Path, warm_python: str, figures: list[str]) -> None:
    model = TinyModel(SPECS[name])
    tokens = np.random.default_rng(0).integers(0, model.spec.vocab, TOKENS).astype(np.int32)
    folder = model.write_huggingface(tmp_path / "folder")
    try:
        with run_transformers(folder, prompts=[tokens[:1]], forced=[[*tokens[1:], 0]], threads=1, python=warm_python) as run:
            theirs = np.array(run.items[0].rows())
    except NotActiveError as error:
        pytest.skip(str(error))
    ours = rows_of_model(model.write_gguf(tmp_path / "tiny.gguf"), tokens)
    largest, spread = float(np.max(np.abs(ours - theirs))), float(theirs.std())
    figures.append(
        f"upstream, architectures ({name}): largest logit difference {largest / spread:.3%} of the standard deviation, "
        f"relative L2 {ref.relative_l2(ours, theirs):.2g}"
    )
    assert ours.shape == theirs.shape
    assert largest <= 0.005 * spread


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tensors_of_the_tiny_models_are_named_as_the_converter_names_them(name: str) -> None:
    spec: TinySpec = spec_of_architecture(name, tied=False)
    arch = next(arch for arch, written in gguf.MODEL_ARCH_NAMES.items() if written == name)
    names = gguf.get_tensor_name_map(arch, spec.layers)
    for tensor in TinyModel(spec).tensors:
        if tensor != ROPE_FACTORS:
            assert names.get_name(huggingface_name(tensor, post_norms=spec.kind.post_norms), try_suffixes=(".weight", ".bias")) == tensor
