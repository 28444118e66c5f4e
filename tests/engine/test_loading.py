"""load and check on small model files, through the compiled back end."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import swiftsure
from swiftsure.errors import (
    CapacityError,
    ContextLengthError,
    ModelNotFoundError,
    NotActiveError,
    TemplateError,
    UnsupportedModelError,
    UsageError,
)
from tiny_models import TinyModel, TinySpec

MESSAGES = [{"role": "user", "content": "the cat and the hat and the cat and the hat"}]
PROMPTS = ["the cat sat on the mat", MESSAGES, [7, 8, 9, 7, 8, 9, 7, 8], "a" * 90, "a" * 80 + "b", "x"]
SAMPLED = [
    {"temperature": 0.0},
    {"temperature": 0.9, "seed": 11, "top_k": 40, "top_p": 0.95, "min_p": 0.01},
    {"temperature": 0.4, "seed": 5, "repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.2, "logit_bias": {40: 2.0}},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return TinyModel(TinySpec(seed=3, context=320)).write_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


def recorded(llm, prompts, **values):
    """Tokens, text and the bytes of every reported row, for each prompt."""
    rows = [[] for _ in prompts]
    results = llm.generate(
        prompts, on_logits=[lambda position, row, seen=seen: seen.append((position, row.tobytes())) for seen in rows], **values
    )
    return [(r.token_ids, r.text, r.finish_reason, seen) for r, seen in zip(results, rows, strict=True)]


@pytest.mark.parametrize("sampled", SAMPLED, ids=["greedy", "nucleus", "penalties"])
def test_exact_has_the_bits_of_default_with_every_lever_at_work(tiny, sampled):
    values = {"max_tokens": 60, "ignore_eos": True, **sampled}
    with swiftsure.load(tiny, mode="default", isa="portable", threads=1) as llm:
        expected = recorded(llm, PROMPTS, **values)
    for without, kv_memory in ((), None), (("batching",), None), ((), 12 * 32 * llm.memory.kv_bytes_per_token):
        with swiftsure.load(tiny, mode="exact", threads=2, without=without, kv_memory=kv_memory) as llm:
            assert recorded(llm, PROMPTS, **values) == expected
            assert recorded(llm, PROMPTS[::-1], **values) == expected[::-1], "now with a warm prefix cache"
            run = llm.activation
            states = {state.name: state for state in run.lever_states}
            assert run.status == "ok"
            assert states["prefix_cache"].counts["hits"] > 0
            if not without:
                assert states["batching"].counts["shared_passes"] > 0


def test_logits_of_exact_and_default_are_the_same_bits(tiny):
    ids = np.arange(100) % 250
    with swiftsure.load(tiny) as default, swiftsure.load(tiny, mode="exact") as exact:
        exact.generate(ids.tolist(), max_tokens=30)
        assert exact.logits(ids).tobytes() == default.logits(ids).tobytes()


def test_default_runs_no_lever_and_says_so(tiny):
    with swiftsure.load(tiny) as llm:
        llm.generate("hello", max_tokens=3)
        assert (llm.mode, llm.activation.levers, llm.activation.lever_lines()) == ("default", (), [])
        assert {"resolve_s", "plan_s", "pack_s", "tokenizer_s"} <= set(llm.load_phases)


def test_context_limit_is_kept_to(tiny):
    with swiftsure.load(tiny, context=64) as llm:
        assert (llm.context, llm.memory.kv_blocks) == (64, 2)
        assert len(llm.generate([5] * 60, max_tokens=50, ignore_eos=True).token_ids) == 4
        with pytest.raises(ContextLengthError, match="the prompt has 64 tokens; the context of 64"):
            llm.generate([5] * 64)


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({"mode": "turbo"}, UsageError, "unknown mode 'turbo'"),
        ({"mode": "big"}, NotActiveError, "mode big is not active"),
        ({"isa": "amx"}, NotActiveError, "amx"),
        ({"isa": "sse9"}, UsageError, "sse9"),
        ({"threads": 0}, UsageError, "threads must be an integer from 1 to 256 or 'auto', got 0"),
        ({"threads": 1.5}, UsageError, "got 1.5"),
        ({"context": 999}, UsageError, "context must be at most the model's 320, got 999"),
        ({"kv_memory": 1}, CapacityError, "a context of 256 tokens needs"),
        ({"kv_memory": "lots"}, UsageError, "memory size"),
        ({"without": ["speculation"]}, UsageError, "mode default has no lever 'speculation'"),
        ({"mode": "exact", "without": "warp"}, UsageError, "mode exact has no lever 'warp'"),
    ],
)
@pytest.mark.usefixtures("without_amx")
def test_what_load_cannot_give_is_refused(tiny, choices, error, message):
    with pytest.raises(error, match=message):
        swiftsure.load(tiny, **choices)


def test_missing_model_is_refused():
    with pytest.raises(ModelNotFoundError):
        swiftsure.load("/nowhere/at/all.gguf")


def test_lever_whose_requirement_is_unmet_is_not_active(tiny):
    with pytest.raises(NotActiveError, match="lever prefix_cache cannot engage: key-value blocks must be at least 2, got 1; leave it off"):
        swiftsure.load(tiny, mode="exact", context=32)
    with swiftsure.load(tiny, mode="exact", context=32, without=["prefix_cache", "batching"]) as llm:
        assert llm.activation.levers == ("speculation", "chunked_prefill")
        assert "levers_off=prefix_cache,batching" in llm.activation.active_line()


def test_variable_names_the_mode(tiny, monkeypatch):
    monkeypatch.setenv("SWIFTSURE_MODE", "exact")
    with swiftsure.load(tiny) as llm:
        assert llm.mode == "exact"
    with pytest.raises(UsageError, match="disagree"):
        swiftsure.load(tiny, mode="default")


def test_template_that_refuses_reaches_the_caller(tiny):
    with swiftsure.load(tiny) as llm, pytest.raises((TemplateError, UsageError)):
        llm.generate([{"role": "user", "content": 5}])


def test_check_resolves_without_packing(tiny):
    result = swiftsure.check(tiny, "exact", threads=1)
    assert result.active
    assert result.to_dict()["threads"]["decided_by"] == "request"
    assert result.reason is None
    assert result.activation.levers == ("speculation", "prefix_cache", "batching", "chunked_prefill")
    assert result.memory.context == 320
    assert [cost.name for cost in result.schedule][:3] == ["embed", "rms_norm", "matmul"]
    assert result.bytes_per_token == sum(cost.weight_bytes for cost in result.schedule)
    with swiftsure.load(tiny, mode="exact", threads=1) as llm:
        assert llm.activation.active_line() == result.activation.active_line(), "check foretells what load then says"
        assert llm.memory.kv_bytes == llm.backend.kv_bytes


@pytest.mark.parametrize(
    ("mode", "choices", "reason"),
    [
        ("big", {}, "not part of this release"),
        ("exact", {"isa": "amx"}, "amx"),
        ("default", {"context": 300, "kv_memory": 1}, "needs"),
        ("exact", {"context": 32}, "lever prefix_cache cannot engage"),
    ],
)
@pytest.mark.usefixtures("without_amx")
def test_check_answers_not_active_with_the_reason(tiny, mode, choices, reason):
    result = swiftsure.check(tiny, mode, **choices)
    assert not result.active
    assert reason in result.reason
    assert result.pins["sha256"] == result.to_dict()["pins"]["sha256"]
    assert result.to_dict()["activation"] is None


def test_import_is_lazy_and_every_public_name_resolves():
    code = (
        "import sys, swiftsure; heavy = {'numpy', 'tokenizers', 'jinja2', 'httpx', 'typer', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy; [getattr(swiftsure, name) for name in swiftsure.__all__]; assert 'tokenizers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        swiftsure.lode  # noqa: B018


@pytest.mark.model
def test_pinned_model_generates_the_same_tokens_in_both_modes(smollm2_path):
    values = {"max_tokens": 48, "ignore_eos": True}
    prompts = [
        [{"role": "user", "content": "Count from one to twenty, then count again from one to twenty."}],
        [{"role": "user", "content": 'List three fruits as JSON: ["apple", "pear", "plum"]. Repeat the JSON twice.'}],
    ]
    found = []
    for mode in ("default", "exact"):
        with swiftsure.load(smollm2_path, mode=mode, context=512) as llm:
            found.append(recorded(llm, prompts, **values))
    assert found[0] == found[1]
    assert llm.activation.lever_states[0].counts["accepted"] > 0


@pytest.mark.parametrize("verb", [swiftsure.load, swiftsure.check])
def test_what_no_kernel_computes_is_known_before_weights_are_packed(verb, tmp_path):
    path = TinyModel(TinySpec(type="F32", heads=2, kv_heads=1, head_dim=24)).write_gguf(tmp_path / "odd.gguf")
    with pytest.raises(UnsupportedModelError, match="head_dim must be a multiple of 16 from 16 to 256, got 24"):
        verb(path)


def test_log_probabilities_run_on_the_instruction_set_of_the_model(tiny, monkeypatch):
    from swiftsure.kernels import sampling

    seen = []
    core = sampling._core

    class Spy:
        log_probs = staticmethod(lambda isa, *rest: seen.append(isa) or core.log_probs(isa, *rest))
        top_log_probs = staticmethod(lambda isa, *rest: seen.append(isa) or core.top_log_probs(isa, *rest))

    with swiftsure.load(tiny, isa="portable", threads=1) as llm:
        monkeypatch.setattr(sampling, "_core", Spy)
        monkeypatch.setattr(Spy, "Sampler", core.Sampler, raising=False)
        llm.generate([1, 2], max_tokens=2, logprobs=1, ignore_eos=True)
    assert seen == ["portable"] * 4
