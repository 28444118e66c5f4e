"""Agreement with the upstream release is a contract of its own, judged like the others."""

from __future__ import annotations

import pytest

from swiftsure.verify.contracts.contract import load_contract, parse_contract
from swiftsure.verify.judging.upstream import judge_agreement
from swiftsure.verify.judging.verdict import decide
from verify.judging.trials import TODAY

CLOSE = {"absolute": 0.007, "kl_mean": 7e-8, "top1_agreement": 1.0}


def test_the_contract_that_prove_uses_limits_logits_divergence_and_best_tokens() -> None:
    contract = load_contract("upstream")
    assert (contract.kind, set(contract.limits.to_dict())) == ("upstream", set(CLOSE))
    assert contract.tasks == ()  # agreement is no task result, and needs none


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({}, "PASS", "within absolute, kl_mean, top1_agreement over 288 rows"),
        ({"absolute": 0.2}, "FAIL", "absolute 0.2 against a limit of 0.05"),
        ({"kl_mean": float("nan")}, "FAIL", "kl_mean nan"),
        ({"top1_agreement": 0.98}, "FAIL", "top1_agreement 0.98 against a limit of 0.99"),
    ],
)
def test_each_figure_is_held_to_its_limit(change: dict[str, float], kind: str, words: str) -> None:
    verdict = decide(judge_agreement(CLOSE | change, load_contract("upstream"), 288, TODAY))
    assert verdict.kind == kind
    assert verdict.reasons[0].startswith(words)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("owner = 'a'", "HOLD", "no tolerance is set: upstream.outputs.logits"),
        ("[upstream.outputs.logits]\nabsolute = 0.1", "HOLD", "nobody owns it"),
        (
            "owner = 'a'\nrecheck = 2026-12-02\n[upstream.outputs.logits]\nabsolute = 0.1",
            "HOLD",
            "its recheck date, 2026-12-02, has come",
        ),
        ("owner = 'a'\n[upstream.outputs.logits]\nkl_p99 = 1e-5", "INCONCLUSIVE", "nothing was measured for the limits kl_p99"),
    ],
)
def test_what_is_not_decided_or_not_measured_never_passes(text: str, kind: str, words: str) -> None:
    verdict = decide(judge_agreement(CLOSE, parse_contract(f"kind = 'upstream'\n{text}\n"), 288, TODAY))
    assert verdict.kind == kind
    assert verdict.reasons[0].startswith(words)
