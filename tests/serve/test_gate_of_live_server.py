"""``swiftsure gate`` beside a live server, which tells what runs and what audits found at ``/metrics``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from serve.conftest import RunningServer, running_server
from swiftsure.cli import main
from swiftsure.serve.engine_process import client as engine_client
from swiftsure.serve.settings import AuditSettings, ServeSettings

FAULTY = (sys.executable, str(Path(__file__).with_name("faulty_engine.py")))
CONTRACT = """
kind = "exact"
owner = "someone"
[exact]
outputs = ["text", "finish_reason"]
[activation]
required = {required}
{activation}
[recovery]
when = ["not_active", "breach", "metric"]
[[recovery.metric]]
name = "swiftsure_audit_mismatch_total"
at_most = 0
"""


class Desk:
    """Where a release manager verifies once, and the gate looks at the running server again and again."""

    def __init__(self, folder: Path, server: RunningServer) -> None:
        self.folder, self.url = folder, server.url
        self.log = folder / "gate.jsonl"
        (folder / "prompts.jsonl").write_text('{"prompt": "one two three", "max_tokens": 2}\n')

    def contract(self, name: str, *, activation: bool) -> Path:
        path = self.folder / f"{name}.toml"
        probe = f'url = "{self.url}/metrics"\nmetric = \'swiftsure_mode_active{{mode="exact"}}\'' if activation else ""
        path.write_text(CONTRACT.format(required=str(activation).lower(), activation=probe))
        return path

    def verify(self, contract: Path) -> int:
        side = f"url:{self.url}/v1"
        where = ["--prompts", str(self.folder / "prompts.jsonl"), "--report", str(self.folder / contract.stem)]
        return main(["verify", "--baseline", side, "--candidate", side, "--contract", str(contract), *where])

    def gate(self, contract: Path) -> int:
        told = ["--on-fail", "default", "--log", str(self.log), "--who", "release manager"]
        return main(["gate", str(self.folder / contract.stem), "--contract", str(contract), "--metrics", f"{self.url}/metrics", *told])

    def metric(self, line: str) -> None:
        """Waits until the server says so: audits run only while nobody else needs the machine."""
        ends = time.monotonic() + 300
        while time.monotonic() < ends:
            if line in httpx.get(f"{self.url}/metrics").text:
                return
            time.sleep(0.02)
        told = [told for told in httpx.get(f"{self.url}/metrics").text.splitlines() if "audit" in told or "passes" in told]
        raise AssertionError(f"the server never said {line!r}: {told}")


@pytest.mark.alone
def test_an_active_and_audited_mode_goes_on_until_an_audit_differs_and_the_server_is_back_in_default(
    tiny_settings: Callable[..., ServeSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_client, "PROGRAM", FAULTY)
    monkeypatch.setenv("WRONG_FROM_PASS", "30")  # what is verified before is right
    audit = AuditSettings(records=tmp_path / "audits", share=1.0, on_fail="default")
    with running_server(tiny_settings(audit=audit)) as server:
        desk = Desk(tmp_path, server)
        strict, limits = desk.contract("strict", activation=True), desk.contract("limits", activation=False)
        ask = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "max_tokens": 4}
        assert httpx.post(f"{server.url}/v1/chat/completions", json=ask).status_code == 200
        desk.metric("swiftsure_audited_total 1.0")
        assert [desk.verify(contract) for contract in (strict, limits)] == [0, 0]
        assert [desk.gate(contract) for contract in (strict, limits)] == [0, 0]
        assert "FALLBACK" not in capsys.readouterr().err

        for seed in range(6):  # enough passes to reach the wrong one
            more = {**ask, "max_tokens": 80, "temperature": 1.5, "seed": seed, "ignore_eos": True}
            httpx.post(f"{server.url}/v1/chat/completions", json=more)  # refused while the server goes back
        desk.metric('mode="default"')
        capsys.readouterr()
        assert [desk.gate(contract) for contract in (strict, limits)] == [3, 1]
        said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("FALLBACK ")]
    assert 'to=default reason=not_active:_metric_swiftsure_mode_active{mode="exact"}_is_missing' in said[0]
    assert "to=default reason=metric_swiftsure_audit_mismatch_total_is_" in said[1]
    lines = [json.loads(line) for line in desk.log.read_text().splitlines()]
    assert [(line["verdict"], line["action"], line["to"]) for line in lines] == [
        ("PASS", "go on", None), ("PASS", "go on", None), ("NOT_ACTIVE", "fallback", "default"), ("FAIL", "fallback", "default"),
    ]  # fmt: skip
    assert {line["who"] for line in lines} == {"release manager"}
    assert all(line["time"] for line in lines)


def test_a_server_that_is_gone_is_no_pass(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('kind = "exact"\nowner = "someone"\n')
    assert main(["gate", str(tmp_path), "--contract", str(tmp_path / "c.toml"), "--metrics", "http://127.0.0.1:9/metrics"]) == 2
