"""Small random models of all shapes against ``LlamaForCausalLM`` on the same weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from our_rows import rows_of_weights

from swiftsure.errors import NotActiveError
from swiftsure.kernels import reference as ref
from swiftsure.verify.upstream.agreement import measure_upstream, run_transformers
from tiny_models import TinyModel, TinySpec

pytestmark = pytest.mark.upstream

TOKENS = 300  # more than one attention span

SPECS = {
    "untied, heads wider than the hidden size": TinySpec(seed=1, heads=4, head_dim=32, hidden=96, tied=False, rope_theta=500.0),
    "one key-value head, half-split rope": TinySpec(seed=2, heads=2, kv_heads=1, head_dim=64, type="Q8_0", rope_style="halves"),
    "mixed types": TinySpec(
        seed=3, layers=3, kv_heads=4, hidden=128, type="Q4_0", types={"embed": "F16", "ffn_down": "BF16", "attn_q": "F32"}
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_random_model_agrees_with_transformers(name: str, tmp_path: Path, warm_python: str, figures: list[str]) -> None:
    model = TinyModel(SPECS[name])
    tokens = np.random.default_rng(0).integers(0, model.spec.vocab, TOKENS).astype(np.int32)
    folder = model.write_huggingface(tmp_path)
    try:
        with run_transformers(folder, prompts=[tokens[:1]], forced=[[*tokens[1:], 0]], threads=1, python=warm_python) as run:
            theirs = np.array(run.items[0].rows())
    except NotActiveError as error:
        pytest.skip(str(error))
    ours = rows_of_weights(model.schedule, model.source(), tokens)
    largest, spread = float(np.max(np.abs(ours - theirs))), float(theirs.std())
    figures.append(f"upstream, random model ({name}): largest logit difference {largest:.2g}, standard deviation of logits {spread:.2g}")
    assert ours.shape == theirs.shape
    assert largest <= 0.03 * spread  # random weights amplify rounding more than trained ones; a wrong operation gives about 1
    assert ref.relative_l2(ours, theirs) <= 2e-3


def test_a_gguf_file_that_transformers_reads_itself_is_measured(tmp_path: Path, warm_python: str) -> None:
    model = TinyModel(TinySpec(seed=4, vocab=300))
    path = model.write_gguf(tmp_path / "tiny.gguf")
    prompts = [list(range(5, 25)), [7, 8, 9]]
    try:
        result = measure_upstream(path, prompts, 8, 1, python=warm_python)
    except NotActiveError as error:
        pytest.skip(str(error))
    assert result.versions["transformers"]
    assert result.agreement.rows == 16
    assert result.agreement.decided_differing == 0
    assert result.decode_tokens_per_s > 0
