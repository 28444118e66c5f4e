"""What README.md shows is true: its commands, its Python, its links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_first_block_shows_exactly_the_two_commands_that_ci_runs() -> None:
    commands = [
        subprocess.run([sys.executable, ROOT / ".ci" / "readme_command", n], capture_output=True, text=True, check=True).stdout.strip()
        for n in ("1", "2")
    ]
    assert commands == ["pip install . && swiftsure prove", "pip install '.[test]' && pytest"]


def test_every_command_of_the_use_section_parses() -> None:
    import shlex

    import typer.main

    from swiftsure.cli.app import app

    lines = [line for block in blocks("") for line in block.splitlines() if line.startswith("swiftsure ")]
    assert len(lines) >= 4
    for line in lines:
        arguments = shlex.split(line, comments=True)[1:]
        group = typer.main.get_command(app)
        while hasattr(group, "commands") and arguments and arguments[0] in group.commands:
            group = group.commands[arguments.pop(0)]
        group.make_context("swiftsure", arguments)


@pytest.mark.model
def test_the_python_of_the_readme_runs(smollm2_path: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "ACTIVE mode=exact" in done.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_figures_are_those_of_the_committed_results() -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "generate_figures.py", "--check"], check=True)
