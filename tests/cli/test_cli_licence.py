"""Licences on the command line: named before a first download, and asked about where there is somebody to ask."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Run

from local_server import LocalServer, serving, use_alone

GEMMA = "gemma-3-270m"
TERMS = "https://ai.google.dev/gemma/terms"


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    """An empty cache, and an index that has nothing: what is fetched ends with its answer."""
    monkeypatch.delenv("SWIFTSURE_ACCEPT_LICENCE", raising=False)
    monkeypatch.setattr("swiftsure.models.download.find_spec", lambda name: None)
    with serving() as state:
        use_alone(monkeypatch, state, tmp_path / "home")
        yield state


class Keys(io.StringIO):
    """What a user types on a terminal."""

    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    monkeypatch.setattr(sys, "stdin", Keys(keys))
    monkeypatch.setattr(type(sys.stderr), "isatty", lambda self: True)


COMMANDS = (
    ["run", GEMMA, "-p", "hello"],
    ["run", "-p", "hello", "--mode", "exact", "--draft", GEMMA],
    ["check", GEMMA],
    ["prove", GEMMA],
    ["profile", GEMMA],
    ["quantize", GEMMA, "out.gguf", "--type", "Q8_0"],
    ["models", "pull", GEMMA],
    ["models", "pull", "--force", GEMMA],
    ["models", "info", GEMMA],
    ["verify", "tasks", "-m", GEMMA],
    ["verify", "advise", GEMMA, "--preserve", "bits"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_where_nobody_can_be_asked_the_ways_to_accept_are_named(
    swiftsure: Run, server: LocalServer, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = swiftsure(*command)
    assert result.code == 2
    error = result.line("error: ")
    assert TERMS in error
    assert "--accept-licence" in error
    assert "SWIFTSURE_ACCEPT_LICENCE=1" in error
    assert server.log == []


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_option_accepts_and_the_fetch_begins(
    swiftsure: Run, server: LocalServer, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = swiftsure(*command, "--accept-licence")
    assert f"licence of {GEMMA}: Gemma Terms of Use, {TERMS}" in result.err.splitlines()
    assert result.code == 2
    assert "cannot fetch" in result.line("error: ")
    assert (tmp_path / "home" / "licences" / f"{GEMMA}.json").exists()


def test_verify_asks_before_it_starts_its_processes(swiftsure: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert swiftsure("verify", "init", "exact", "-o", "exact.toml").code == 0
    (tmp_path / "prompts.txt").write_text("hello\n")
    sides = ("--baseline", "mode:default", "--candidate", "mode:exact", "--contract", "exact.toml", "--prompts", "prompts.txt")
    result = swiftsure("verify", *sides, "-m", GEMMA)
    assert result.code == 2
    assert TERMS in result.line("error: ")


def test_on_a_terminal_the_terms_are_shown_and_yes_goes_on(swiftsure: Run, server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    at_a_terminal(monkeypatch, "what?\nYes\n")
    result = swiftsure("models", "pull", GEMMA)
    shown = result.err.splitlines()
    assert shown[0] == f"{GEMMA} comes under the Gemma Terms of Use: {TERMS}"
    assert "prohibited use policy" in shown[1]
    assert result.err.count("Do you accept them? [yes/no]") == 2, "asked again until the answer is one"
    assert server.log
    at_a_terminal(monkeypatch, "")
    assert "Do you accept" not in swiftsure("models", "pull", GEMMA).err, "asked once"


@pytest.mark.parametrize("keys", ["no\n", "N\n", ""], ids=["no", "N", "end of input"])
def test_on_a_terminal_no_ends_the_command(swiftsure: Run, server: LocalServer, monkeypatch: pytest.MonkeyPatch, keys: str) -> None:
    at_a_terminal(monkeypatch, keys)
    result = swiftsure("run", GEMMA, "-p", "hello")
    assert result.code == 2
    assert re.search(r"error: .*Gemma Terms of Use.*'gemma-3-270m' was not fetched", result.err)
    assert server.log == []


def test_other_licences_are_a_line(swiftsure: Run) -> None:
    result = swiftsure("models", "pull")
    assert result.line("licence of ") == (
        "licence of smollm2-135m-instruct: Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0"
    )


def test_the_list_names_the_terms(swiftsure: Run) -> None:
    import json

    terms = {entry["name"]: entry["terms"] for entry in json.loads(swiftsure("models", "list", "--json").out)}
    assert terms[GEMMA] == TERMS
