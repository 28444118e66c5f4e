"""Settings of a server: every rule is stated with the value that breaks it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from swiftsure.errors import UsageError
from swiftsure.serve.settings import LaneLimits, ModelSettings, Prices, ServeSettings, read_keys

MODEL = ModelSettings(name="m", source="m.gguf", mode="exact")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"models": ()}, "at least one model"),
        ({"models": (MODEL, MODEL)}, "two models are served under the name 'm'"),
        ({"port": 70_000}, "between 0 and 65535, got 70000"),
        ({"host": "0.0.0.0"}, "0.0.0.0 can be reached from other machines"),
        ({"host": "server.example"}, "can be reached from other machines"),
        ({"deadline_s": 0}, "deadline_s must be a number of at least 0, got 0"),
        ({"deadline_s": float("nan")}, "deadline_s"),
        ({"drain_s": -1}, "drain_s"),
        ({"max_body_bytes": 10}, "max_body_bytes must be a number of at least 1024, got 10"),
    ],
)
def test_a_setting_that_breaks_a_rule_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ServeSettings(**{"models": (MODEL,), **fields})


def test_other_machines_may_come_in_with_keys_or_when_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("team 0123456789abcdef\n")
    keys = read_keys(tmp_path / "keys")
    for fields in ({"keys": keys}, {"open_to_all": True}):
        assert ServeSettings(models=(MODEL,), host="0.0.0.0", **fields).host == "0.0.0.0"
    for host in ("127.0.0.1", "::1", "localhost"):
        assert ServeSettings(models=(MODEL,), host=host).host == host


def test_limits_and_prices_have_their_ranges() -> None:
    with pytest.raises(UsageError, match="the limit of requests must be at least 1, got 0"):
        LaneLimits(requests=0, tokens=1)
    with pytest.raises(UsageError, match="a price must be at least 0, got output=-1"):
        Prices(output=-1)
    prices = Prices(input=1.0, output=10.0, multiple=6.0)
    assert prices.cost(prompt_tokens=1000, output_tokens=100, tier="standard") == pytest.approx(0.002)
    assert prices.cost(prompt_tokens=1000, output_tokens=100, tier="priority") == pytest.approx(0.012)


def test_keys_are_read_with_their_tiers_and_kept_as_digests(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# who may come in\n\nbatch secret-of-batch-1 standard\nteam secret-of-team-22\n")
    batch, team = read_keys(tmp_path / "keys")
    assert (batch.name, batch.sha256, batch.tiers) == ("batch", hashlib.sha256(b"secret-of-batch-1").digest(), {"standard"})
    assert (team.name, team.tiers) == ("team", {"standard", "priority"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no key"),
        ("alone\n", "line 1: a key is NAME KEY"),
        ("short 1234\n", "at least 16 characters, got 4"),
        ("a 0123456789abcdef gold\n", "tiers are standard, priority, got gold"),
        ("a 0123456789abcdef\na 0123456789abcdefg\n", "line 2: two keys bear the name 'a'"),
        (b"\xff\xfe", "they are not UTF-8"),
        (None, "No such file"),
    ],
)
def test_a_file_of_keys_that_breaks_a_rule_is_refused(tmp_path: Path, text: str | bytes | None, words: str) -> None:
    path = tmp_path / "keys"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=words) as refused:
        read_keys(path)
    assert "0123456789abcdef" not in str(refused.value)
