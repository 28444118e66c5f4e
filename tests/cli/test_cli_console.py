"""Sizes, tables and the progress bar."""

from __future__ import annotations

import io
import sys

import pytest

from swiftsure.cli import console


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (999, "999 B"), (23760, "23.8 kB"), (98362432, "98.4 MB"), (2.5e9, "2.50 GB")])
def test_sizes_are_in_powers_of_a_thousand(size: float, text: str) -> None:
    assert console.size_text(size) == text


@pytest.mark.parametrize(("count", "text"), [(7, "7"), (1105920, "1.1 M"), (56623104, "56.6 M"), (3_000_000_000, "3.00 G")])
def test_counts_are_short(count: int, text: str) -> None:
    assert console.count_text(count) == text


def test_work_that_is_done_within_a_second_draws_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", FakeTerminal())
    with console.ProgressBar("loading") as progress:
        progress(1, 10)
        progress(10, 10)
    assert sys.stderr.getvalue() == ""


def test_longer_work_draws_a_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(console, "_QUIET_S", 0.0)
    for stream, drawn in ((FakeTerminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with console.ProgressBar("loading") as progress:
            progress(1_000_000, 10_000_000)
        assert ("loading" in stream.getvalue()) is drawn


def test_a_table_is_as_wide_as_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(["name", "size"], [["a", "10"], ["longer", "2"]], right=(1,))
    assert capsys.readouterr().out == "name    size\na         10\nlonger     2\n"
