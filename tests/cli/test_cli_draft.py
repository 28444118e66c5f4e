"""``swiftsure run --draft MODEL``: the tokens of default whatever drafts, drafts that are counted, and refusals that say why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runner import Run

from edited_gguf import edited
from swiftsure.engine.speculation import DraftPolicy, StepCost
from swiftsure.models.cache import hash_file
from tiny_models import TinyModel, TinySpec

PROMPT = "the cat sat on the mat and the cat sat on the"
SAMPLED = ("--temperature", "0.9", "--seed", "3")


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafting costs nothing and rows next to nothing, so that models this small, or this busy, speculate at all."""
    monkeypatch.setattr(DraftPolicy, "step_cost", lambda self, source, *, first: 0.0)
    monkeypatch.setattr(StepCost, "relative", lambda self, rows: 1.0 + 0.01 * rows)
    monkeypatch.setattr(StepCost, "further", lambda self, rows, count: [1.0 + 0.01 * r for r in range(rows, rows + count + 1)])


@pytest.fixture(scope="module")
def drafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For the tiny model: the same weights in eight bits, and a random model of the same vocabulary."""
    folder = tmp_path_factory.mktemp("drafts")
    return {
        "quantized": TinyModel(TinySpec(seed=11, type="Q8_0")).write_gguf(folder / "quantized.gguf"),
        "random": TinyModel(TinySpec(seed=12, hidden=32, layers=1, heads=2, kv_heads=1)).write_gguf(folder / "random.gguf"),
    }


def tokens(swiftsure: Run, model: Path, *arguments: str | Path, count: int = 40) -> tuple[list[int], str]:
    """The token ids that came, and standard error."""
    result = swiftsure("run", model, "-p", PROMPT, "--max-tokens", str(count), "--json", *arguments)
    assert result.code == 0, result.err
    return json.loads(result.out)["token_ids"], result.err


def counts(err: str) -> dict[str, int]:
    (line,) = [line for line in err.splitlines() if line.startswith("LEVER name=speculation")]
    return {key: int(value) for key, _, value in (word.partition("=") for word in line.split()[3:])}


@pytest.mark.parametrize("sampling", [(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("kind", ["quantized", "random"])
def test_a_draft_model_drafts_and_leaves_every_token_alone(
    swiftsure: Run, tiny: Path, drafts: dict[str, Path], kind: str, sampling: tuple[str, ...], eager: None
) -> None:
    expected, _ = tokens(swiftsure, tiny, "--raw", *sampling)
    found, err = tokens(swiftsure, tiny, "--raw", *sampling, "--mode", "exact", "--draft", drafts[kind])
    assert found == expected
    assert f" draft=model:{kind} draft_weights=sha256:{hash_file(drafts[kind])}" in err.splitlines()[0]
    speculation = counts(err)
    assert speculation["model_drafted"] > 0
    if kind == "quantized":
        assert speculation["model_accepted"] > speculation["model_drafted"] / 2, "nearly the same model guesses nearly the same tokens"


def test_a_draft_of_another_vocabulary_is_refused_before_anything_runs(swiftsure: Run, tiny: Path, tmp_path: Path) -> None:
    other = TinyModel(TinySpec(vocab=301)).write_gguf(tmp_path / "other.gguf")
    result = swiftsure("run", tiny, "-p", PROMPT, "--mode", "exact", "--draft", other)
    assert result.code == 3
    assert result.out == ""
    assert "301" in result.line("NOT ACTIVE mode=exact")
    assert "Traceback" not in result.err


def test_a_draft_where_nothing_speculates_is_a_usage_error(swiftsure: Run, tiny: Path, drafts: dict[str, Path]) -> None:
    for mode in (("default",), ("exact", "--without", "speculation")):
        result = swiftsure("run", tiny, "-p", PROMPT, "--draft", drafts["random"], "--mode", *mode)
        assert result.code == 2
        assert "a draft serves the lever speculation" in " ".join(result.err.split())


LAYER = (
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
)  # fmt: skip


@pytest.fixture(scope="module")
def truncated(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 without the last two of its 30 layers."""
    gone = [f"blk.{layer}.{part}.weight" for layer in (28, 29) for part in LAYER]
    target = tmp_path_factory.mktemp("real") / "truncated.gguf"
    return edited(smollm2_path, target, keys={"llama.block_count": 28}, drop_tensors=gone)


@pytest.mark.model
@pytest.mark.parametrize("sampling", [(), SAMPLED], ids=["greedy", "sampled"])
def test_a_real_model_is_drafted_for_by_its_own_first_layers(
    swiftsure: Run, smollm2_path: Path, truncated: Path, sampling: tuple[str, ...], eager: None
) -> None:
    expected, _ = tokens(swiftsure, smollm2_path, *sampling, count=32)
    found, err = tokens(swiftsure, smollm2_path, *sampling, "--mode", "exact", "--draft", truncated, count=32)
    assert found == expected
    speculation = counts(err)
    assert 0 < speculation["model_accepted"] < speculation["model_drafted"], "right at times and wrong at times"
