"""What ``serve --audit`` takes, and how a server ends that found a difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import swiftsure.serve.run
from swiftsure.cli.serve import serve
from swiftsure.errors import ContractError, UsageError
from swiftsure.serve.run import Breach
from swiftsure.serve.settings import ServeSettings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Calls the command with a server that ends at once with the given breaches; returns its settings and its exit code."""
    monkeypatch.delenv("SWIFTSURE_MODE", raising=False)
    monkeypatch.setenv("SWIFTSURE_HOME", str(tmp_path))
    model = tmp_path / "m.gguf"
    model.touch()

    def call(*breaches: Breach, **options: Any) -> tuple[ServeSettings, int]:
        seen: list[ServeSettings] = []
        monkeypatch.setattr(swiftsure.serve.run, "run", lambda settings: seen.append(settings) or breaches)
        code = serve(model=str(model), **{"mode": "exact", **options})
        return seen[0], code

    return call


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("100%", 1.0), ("2.5%", 0.025)])
def test_a_share_is_a_fraction_or_a_percentage(started: Any, tmp_path: Path, text: str, share: float) -> None:
    settings, code = started(audit=text)
    assert code == 0
    assert settings.audit.share == pytest.approx(share)
    assert (settings.audit.on_fail, settings.audit.records) == ("stop", tmp_path / "audits")


def test_without_a_share_nothing_is_audited(started: Any) -> None:
    assert started()[0].audit is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"audit": "often"}, "--audit takes a share such as 1% or 0.01, got 'often'"),
        ({"audit": "0"}, "must be above 0 % and at most 100 %, got 0 %"),
        ({"audit": "120%"}, "at most 100 %, got 120 %"),
        ({"audit": "1%", "on_fail": "exact"}, "--on-fail takes default, got 'exact'"),
        ({"on_fail": "default"}, "--on-fail says what follows from an audit and needs --audit"),
        ({"audit": "1%", "allow_fallback": True}, "--allow-fallback needs --on-fail default"),
    ],
)
def test_what_makes_no_sense_is_refused(started: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        started(**options)


def test_a_server_that_an_audit_stopped_ends_with_1_and_one_that_fell_back_with_3(started: Any) -> None:
    with pytest.raises(ContractError, match="m: it differs"):
        started(Breach("m", "it differs", fell_back=False), audit="1%")
    fell_back = Breach("m", "it differs", fell_back=True)
    assert started(fell_back, audit="1%", on_fail="default")[1] == 3
    assert started(fell_back, audit="1%", on_fail="default", allow_fallback=True)[1] == 0
