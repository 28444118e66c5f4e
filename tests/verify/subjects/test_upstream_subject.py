"""``upstream:transformers`` on a tiny model's folder, with the library itself, and what is said where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from swiftsure.errors import NotActiveError, UsageError
from swiftsure.verify.contracts.contract import parse_contract
from swiftsure.verify.subjects import upstream
from swiftsure.verify.subjects.base import Case
from swiftsure.verify.subjects.mode import ModeOptions, ModeSubject
from swiftsure.verify.subjects.upstream import UpstreamOptions, UpstreamSubject
from swiftsure.verify.upstream.agreement import require_upstream
from swiftsure.verify.verify import VerifyOptions, verify

CONTRACT = parse_contract("""
kind = "upstream"
owner = "someone"
unit = "tokens"
[upstream.outputs.logits]
absolute = 0.05
kl_mean = 1e-5
top1_agreement = 0.9
""")
CASE = Case(id="text", size=20.0, request={"score": "the cat sat on the mat and the dog on the log", "tokens": 20})


@pytest.mark.model
@pytest.mark.upstream
def test_the_built_in_engine_is_held_to_the_release_itself(smollm2_path: Path) -> None:
    try:
        require_upstream()
    except NotActiveError as error:
        pytest.skip(str(error))
    subjects = (
        UpstreamSubject("transformers", UpstreamOptions(model=str(smollm2_path), threads=1)),
        ModeSubject("default", ModeOptions(model=str(smollm2_path))),
    )
    found = verify(CONTRACT, *subjects, [CASE], VerifyOptions())
    assert found.kind == "PASS", found.record["verdict"]
    figures = found.record["observations"][0]["figures"]["logits"]
    assert 0 < figures["absolute"] < 0.02  # other bits, the same model
    assert "transformers" in found.record["baseline"]["activation"]["evidence"]


def test_without_the_library_nothing_was_measured_and_that_is_said(monkeypatch: pytest.MonkeyPatch, tiny_path: Path) -> None:
    def missing() -> None:
        raise NotActiveError("upstream: NOT MEASURED (torch not installed)")

    monkeypatch.setattr(upstream, "require_upstream", missing)
    subjects = (
        UpstreamSubject("transformers", UpstreamOptions(model=str(tiny_path))),
        ModeSubject("default", ModeOptions(model=str(tiny_path))),
    )
    found = verify(CONTRACT, *subjects, [CASE], VerifyOptions())
    assert (found.kind, found.exit_code) == ("NOT_ACTIVE", 3)
    assert "upstream: NOT MEASURED (torch not installed)" in found.record["verdict"]["reasons"][0]


def test_another_library_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="the upstream library must be transformers, got 'vllm'"):
        UpstreamSubject("vllm", UpstreamOptions(model="m"))
