"""What a hostile completion may try, and that it gets nowhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from swiftsure.verify.tasks.sandbox import run_program


def test_a_program_that_ends_well_passes_and_one_that_raises_says_why() -> None:
    assert run_program("import math, json, re\nassert math.gcd(4, 6) == 2").passed
    failed = run_program("assert 1 == 2, 'wrong sum'")
    assert (failed.passed, failed.reason) == (False, "AssertionError: wrong sum")


def test_text_that_is_no_program_fails_with_the_reason() -> None:
    assert "SyntaxError" in str(run_program("def f(:").reason)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("socket", "import socket; socket.create_connection(('127.0.0.1', 9))"),
        ("process", "import subprocess; subprocess.run(['true'])"),
        ("shell", "import os; assert os.system('true') == 1"),
        ("fork", "import os; os.fork()"),
        ("foreign code", "import ctypes; ctypes.CDLL(None)"),
        ("signal", "import os; os.kill(os.getppid(), 9)"),
        ("limits", "import resource; resource.setrlimit(resource.RLIMIT_CPU, (99, 99))"),
    ],
)
def test_what_reaches_outside_is_refused(name: str, source: str) -> None:
    outcome = run_program(source)
    assert not outcome.passed, name
    assert "not allowed here" in str(outcome.reason) or "Error" in str(outcome.reason)


def test_a_loop_without_end_is_ended() -> None:
    outcome = run_program("while True: pass", timeout_s=1.0)
    assert outcome.reason == "did not end within 1 s"


def test_memory_beyond_the_limit_is_refused() -> None:
    assert "MemoryError" in str(run_program("x = bytearray(4 * 1024**3)").reason)


def test_files_are_written_in_its_folder_alone_which_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "planted"
    tmp_path.chmod(0o777)
    assert run_program("open('mine', 'w').write('x'); assert open('mine').read() == 'x'").passed
    assert "not allowed here" in str(run_program(f"open({str(target)!r}, 'w')").reason)
    assert not run_program(f"import os; os.open({str(target)!r}, os.O_CREAT | os.O_WRONLY)").passed
    assert not target.exists()
    told = run_program("import os; open('mine', 'w'); raise ValueError(os.getcwd())").reason
    assert told is not None
    own = re.search(r"/\S*swiftsure-sandbox-\w+", told)
    assert own is not None, told
    assert not Path(own[0]).exists()


def test_a_file_larger_than_the_limit_ends_the_program() -> None:
    assert not run_program("f = open('big', 'wb')\nfor _ in range(64): f.write(bytes(1 << 20)); f.flush()").passed


def test_output_without_end_does_not_fill_memory_or_hang() -> None:
    assert not run_program("while True: print('x' * 1000)", timeout_s=5.0).passed


def test_the_environment_of_this_process_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWIFTSURE_TEST_SECRET", "x")
    assert run_program("import os; assert 'SWIFTSURE_TEST_SECRET' not in os.environ").passed
    assert os.environ["SWIFTSURE_TEST_SECRET"] == "x"
