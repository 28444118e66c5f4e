"""The command tree: help, usage errors, import cost and documents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runner import Run

HEAVY = ("numpy", "tokenizers", "jinja2", "rich", "httpx", "huggingface_hub", "safetensors", "torch", "gguf", "swiftsure.kernels._core")
COMMANDS = (
    [],
    ["run"],
    ["prove"],
    ["check"],
    ["quantize"],
    ["models"],
    ["models", "list"],
    ["models", "pull"],
    ["models", "info"],
    ["models", "verify"],
)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_fits_eighty_columns_and_explains_every_option(swiftsure: Run, command: list[str]) -> None:
    result = swiftsure(*command, "--help")
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 80
    for option in re.findall(r"^  (?:-\w, )?(--[\w-]+)[^\n]*", result.out, re.MULTILINE):
        entry = re.search(rf"^  (?:-\w, )?{option}(?: [\w=\[\]]+)?\s+(\S.*)$", result.out, re.MULTILINE)
        assert entry is not None, f"{option} has no help"


def test_without_arguments_the_help_is_printed_and_the_exit_code_is_usage(swiftsure: Run) -> None:
    result = swiftsure()
    assert result.code == 2
    assert result.out.startswith("Usage: swiftsure")


def test_version_is_the_packages(swiftsure: Run) -> None:
    import swiftsure as package

    assert swiftsure("--version").out == f"swiftsure {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serf"], "No such command 'serf'"),
        (["models"], "Missing command"),
        (["run", "--temprature", "1"], "No such option: --temprature"),
        (["run", "--threads", "two"], "Invalid value for '--threads'"),
        (["run", "--mode"], "--mode"),
        (["check", "-m", ""], "a model's name must not be empty"),
        (["check", "-m", "~no-such-user/model.gguf"], "~no-such-user/model.gguf: no such user"),
        (["models", "pull", "--force", "some.gguf"], "are fetched again by force, got 'some.gguf'"),
        (["check", "one", "-m", "two"], "one model at a time: the argument says 'one', --model says 'two'"),
    ],
)
def test_a_usage_error_is_one_clear_line_and_exit_code_two(swiftsure: Run, arguments: list[str], message: str) -> None:
    result = swiftsure(*arguments)
    assert result.code == 2
    assert message in result.line("error: ")
    assert result.out == ""


@pytest.mark.parametrize("place", ["swiftsure.cli.app.run_command", "swiftsure.cli.framework.PlainCommand.parse_args"])
def test_ctrl_c_outside_a_command_is_one_line_too(swiftsure: Run, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    result = swiftsure("check")
    assert (result.code, result.err.strip()) == (1, "error: interrupted")


@pytest.mark.parametrize("statement", ["import swiftsure", "from swiftsure.cli import main; main(['--help'])"])
def test_importing_and_asking_for_help_load_nothing_heavy(statement: str) -> None:
    code = f"import sys; {statement}; print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_the_document_of_the_command_line_is_what_the_commands_print() -> None:
    subprocess.run([sys.executable, str(ROOT / "docs" / "generate_cli.py"), "--check"], check=True)
