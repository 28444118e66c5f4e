"""Drafts named at load: outputs are default's to the bit, whatever speculates; a draft that does not fit is refused with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes import StillCost

import swiftsure
from edited_gguf import edited
from swiftsure.engine.speculation import DraftPolicy, StepCost
from swiftsure.errors import CapacityError, ModelFileError, NotActiveError, UsageError
from swiftsure.models.cache import hash_file
from tiny_heads import head_file
from tiny_models import TinyModel, TinySpec

SPEC = TinySpec(seed=3, context=320, hidden=64)
PROMPTS = ["the cat sat on the mat", [7, 8, 9, 7, 8, 9, 7, 8], "a" * 90, "x"]
SAMPLED = [
    {"temperature": 0.0},
    {"temperature": 0.9, "seed": 11, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
    {"temperature": 0.5, "seed": 5, "repetition_penalty": 1.2, "logit_bias": {40: 2.0}},
]
KINDS = ("same", "smaller", "stranger", "head")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The target, the same weights in eight bits, a smaller and an unrelated model of its vocabulary, and a random head for it."""
    folder = tmp_path_factory.mktemp("models")
    target = TinyModel(SPEC).write_gguf(folder / "target.gguf")
    return {
        "target": target,
        "same": TinyModel(TinySpec(seed=3, context=320, hidden=64, type="Q8_0")).write_gguf(folder / "same.gguf"),
        "smaller": TinyModel(TinySpec(seed=4, context=64, hidden=32, layers=1, heads=2, kv_heads=1)).write_gguf(folder / "smaller.gguf"),
        "stranger": TinyModel(TinySpec(seed=9, context=640, hidden=96, type="F16")).write_gguf(folder / "stranger.gguf"),
        "head": head_file(folder / "head.gguf", target_sha256=hash_file(target)),
    }


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafting costs nothing and rows next to nothing, so that these small models speculate at all."""
    monkeypatch.setattr(DraftPolicy, "step_cost", lambda self, source, *, first: 0.0)
    monkeypatch.setattr(StepCost, "relative", lambda self, rows: 1.0 + 0.01 * rows)
    monkeypatch.setattr(StepCost, "further", lambda self, rows, count: [1.0 + 0.01 * r for r in range(rows, rows + count + 1)])


def recorded(llm: swiftsure.LLM, **values: Any) -> list[tuple[Any, ...]]:
    rows: list[list[tuple[int, bytes]]] = [[] for _ in PROMPTS]
    callbacks = [lambda position, row, seen=seen: seen.append((position, row.tobytes())) for seen in rows]
    results = llm.generate(list(PROMPTS), on_logits=callbacks, max_tokens=50, ignore_eos=True, **values)  # type: ignore[arg-type]  # of several types
    return [(r.token_ids, r.text, r.finish_reason, seen) for r, seen in zip(results, rows, strict=True)]


@pytest.mark.parametrize("sampled", SAMPLED, ids=["greedy", "nucleus", "penalties"])
def test_every_draft_gives_the_bits_of_default(files: dict[str, Path], sampled: dict[str, Any], eager: None) -> None:
    with swiftsure.load(files["target"], mode="default", isa="portable", threads=1) as llm:
        expected = recorded(llm, **sampled)
        per_token = llm.memory.kv_bytes_per_token
    for kind in KINDS:
        for without, blocks in ((), None), (("batching",), None), ((), 14):
            own = 0 if blocks is None else per_token
            with swiftsure.load(files["target"], mode="exact", threads=2, without=without, draft=files[kind]) as llm:
                assert llm.draft is not None
                if blocks is not None:
                    limit = blocks * 32 * (own + llm.draft.kv_bytes_per_token)
                    llm.close()
                    llm = swiftsure.load(files["target"], mode="exact", threads=2, draft=files[kind], kv_memory=limit, context=320)
                assert recorded(llm, **sampled) == expected
                llm.clear_caches()
                assert recorded(llm, **sampled) == expected
                counts = llm.activation.lever_states[0].counts
                assert counts["head_drafted" if kind == "head" else "model_drafted"] > 0, kind
                assert llm.activation.status == "ok"
                llm.close()


@pytest.mark.parametrize("sampled", SAMPLED[:2], ids=["greedy", "nucleus"])
def test_a_model_that_drafts_for_itself_is_right(files: dict[str, Path], sampled: dict[str, Any], eager: None) -> None:
    with swiftsure.load(files["target"], mode="exact", draft=files["target"]) as llm:
        recorded(llm, **sampled)
        counts = llm.activation.lever_states[0].counts
    assert counts["model_drafted"] > 40
    assert counts["model_accepted"] == counts["model_drafted"]


def test_cancelled_and_streamed_requests_leave_others_alone(files: dict[str, Path], eager: None) -> None:
    with swiftsure.load(files["target"], mode="default") as llm:
        expected = llm.generate("the cat", max_tokens=60, ignore_eos=True).token_ids
    for kind in KINDS:
        with swiftsure.load(files["target"], mode="exact", draft=files[kind]) as llm:
            with llm.stream("other words that follow", max_tokens=60, ignore_eos=True) as stream:
                next(iter(stream))
            assert llm.generate("the cat", max_tokens=60, ignore_eos=True).token_ids == expected


def test_answers_reach_the_end_of_the_context(files: dict[str, Path], eager: None) -> None:
    for mode, kind in (("default", None), *(("exact", kind) for kind in KINDS)):
        with swiftsure.load(files["target"], mode=mode, context=64, draft=files[kind] if kind else None) as llm:
            result = llm.generate([5, 6, 7], max_tokens=61, ignore_eos=True)
            assert len(result.token_ids) == 61
            if kind is None:
                expected = result.token_ids
            assert result.token_ids == expected


def test_active_line_check_and_memory_name_the_draft(files: dict[str, Path]) -> None:
    for kind in ("smaller", "head"):
        checked = swiftsure.check(files["target"], "exact", draft=files[kind])
        with swiftsure.load(files["target"], mode="exact", draft=files[kind]) as llm:
            word = "head" if kind == "head" else "model"
            assert f" draft={word}:{kind} draft_weights=sha256:{hash_file(files[kind])}" in llm.activation.active_line()
            assert checked.activation is not None
            assert checked.activation.draft == llm.draft
            assert checked.memory == llm.memory or checked.memory.kv_blocks == llm.memory.kv_blocks  # type: ignore[union-attr]  # active, so planned
            assert llm.memory.draft_weight_bytes > 0
            assert (llm.memory.draft_kv_bytes > 0) == (kind != "head")
            assert llm.activation.to_dict()["draft"]["sha256"] == hash_file(files[kind])


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (TinySpec(vocab=301), "it has 301 tokens, the other 300"),
        (TinySpec(vocab=299), "it has 299 tokens, the other 300"),
    ],
)
def test_draft_model_of_another_size_of_vocabulary_is_refused(files: dict[str, Path], tmp_path: Path, spec: TinySpec, reason: str) -> None:
    other = TinyModel(spec).write_gguf(tmp_path / "other.gguf")
    with pytest.raises(NotActiveError, match=reason):
        swiftsure.load(files["target"], mode="exact", draft=other)
    checked = swiftsure.check(files["target"], "exact", draft=other)
    assert not checked.active
    assert checked.reason is not None
    assert reason in checked.reason


def test_draft_model_of_other_tokens_is_refused_with_the_first_of_them(files: dict[str, Path], tmp_path: Path) -> None:
    from swiftsure.models.gguf import GGUFFile

    with GGUFFile(files["target"]) as file:
        tokens = file.metadata.strings("tokenizer.ggml.tokens").tolist()
    tokens[77], tokens[78] = tokens[78], tokens[77]
    other = edited(files["smaller"], tmp_path / "other.gguf", keys={"tokenizer.ggml.tokens": tokens})
    with pytest.raises(NotActiveError, match="token 77 is"):
        swiftsure.load(files["target"], mode="exact", draft=other)


def test_draft_head_of_another_model_is_refused_with_both_digests(files: dict[str, Path]) -> None:
    with pytest.raises(NotActiveError, match=f"made for the model with sha256:{hash_file(files['target'])}, and this one is sha256:"):
        swiftsure.load(files["same"], mode="exact", draft=files["head"])


def test_draft_head_whose_sizes_do_not_fit_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    narrow = TinyModel(TinySpec(hidden=32, heads=2, kv_heads=1)).write_gguf(tmp_path / "narrow.gguf")
    with pytest.raises(NotActiveError, match="hidden width is 64, and the model's 32"):
        swiftsure.load(narrow, mode="exact", draft=head_file(tmp_path / "a.gguf", target_sha256=hash_file(narrow)))
    ids = np.array([1, 2, 300], np.int32)
    far = edited(files["head"], tmp_path / "far.gguf", tensors={"shortlist": ids})  # type: ignore[dict-item]  # any array
    with pytest.raises(NotActiveError, match="shortlist names token 300, and the model has 300"):
        swiftsure.load(files["target"], mode="exact", draft=far)


def test_damaged_draft_is_a_damaged_model_file(files: dict[str, Path], tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(files["head"].read_bytes()[:-200])
    with pytest.raises(ModelFileError, match=r"cut\.gguf"):
        swiftsure.load(files["target"], mode="exact", draft=cut)


@pytest.mark.parametrize(("mode", "without"), [("default", ()), ("exact", ("speculation",))])
def test_draft_where_nothing_speculates_is_a_usage_error(files: dict[str, Path], mode: str, without: tuple[str, ...]) -> None:
    for call in (swiftsure.load, swiftsure.check):
        with pytest.raises(UsageError, match="a draft serves the lever speculation"):
            call(files["target"], mode=mode, without=without, draft=files["head"])
    with swiftsure.load(files["target"], mode=mode, without=without, draft="none") as llm:
        assert llm.draft is None


def test_draft_model_that_does_not_fit_into_memory_is_refused_with_the_numbers(files: dict[str, Path]) -> None:
    with swiftsure.load(files["target"], mode="exact") as llm:
        limit = 320 * llm.memory.kv_bytes_per_token
    with pytest.raises(CapacityError, match="room for"):
        swiftsure.load(files["target"], mode="exact", context=320, kv_memory=limit, draft=files["stranger"])


def test_a_dear_draft_model_is_not_asked(files: dict[str, Path]) -> None:
    """No mercy from the clock: a draft model as large as the model costs a pass a token."""
    with swiftsure.load(files["target"], mode="exact", draft=files["target"]) as llm:
        policy = llm._engine.drafting.policy
        policy.cost = StillCost({1: 0.001, 16: 0.0012})
        policy.time_source("model", 0.004)
        llm.generate([250, 3, 17], max_tokens=60, ignore_eos=True)
        assert llm.activation.lever_states[0].counts.get("model_drafted", 0) == 0
