"""A round of ``swiftsure bench`` on this project's own server."""

from __future__ import annotations

from pathlib import Path

import pytest

from serve.conftest import RunningServer
from swiftsure.bench.protocol.store import read_bench
from swiftsure.cli import main


@pytest.mark.parametrize(("path", "interface"), [("", "chat"), ("/v1/completions", "completions"), ("/v1/messages", "anthropic")])
def test_each_interface_of_the_server_is_found_and_measured(server: RunningServer, tmp_path: Path, path: str, interface: str) -> None:
    small = ("--quick", "--repeats", "1", "--max-tokens", "8", "--users", "1", "--context", "1000")
    code = main(["bench", f"{server.url}{path}", *small, "--round", str(tmp_path)])
    bench = read_bench(tmp_path)
    assert code == 0
    assert bench.head["target"]["interface"] == interface
    assert bench.head["target"]["window"] == 4096
    measured = [exchange for exchange in bench.exchanges if not exchange.trial.warm_up]
    assert [exchange.error for exchange in measured] == [None] * 9
    assert {exchange.output_tokens for exchange in measured} == {8}
    long = [exchange.usage.prompt_tokens for exchange in measured if exchange.trial.row == "context" and exchange.usage]
    assert all(tokens is not None and 900 < tokens < 2500 for tokens in long)
