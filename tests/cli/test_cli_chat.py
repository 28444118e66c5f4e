"""``swiftsure run --chat``, from a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest
from cli_runner import Run, clean_environment, start


class Terminal:
    """A chat on a pseudo terminal: what it shows, and keys for it."""

    def __init__(self, *arguments: str | Path) -> None:
        self._parent, child = pty.openpty()
        environment = clean_environment(TERM="dumb", COLUMNS="80")
        self.process: Popen[bytes] = start(*arguments, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True)
        os.close(child)
        self.shown = ""

    def type(self, keys: str) -> None:
        os.write(self._parent, keys.encode())

    def wait_for(self, pattern: str, seconds: float = 60) -> None:
        """Reads until what is shown after the last match matches ``pattern``; what was read up to there is forgotten."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.shown)):
            ready, _, _ = select.select([self._parent], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{pattern!r} did not appear in {self.shown!r}"
            self.shown += os.read(self._parent, 65536).decode(errors="replace")
        self.shown = self.shown[match.end() :]

    def shows_within(self, seconds: float) -> bool:
        """Whether there is something new to read."""
        return bool(select.select([self._parent], [], [], seconds)[0])

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._parent)


@pytest.fixture
def chat(endless: Path) -> Iterator[Terminal]:
    terminal = Terminal("run", endless, "--chat", "--logit-bias", "2=-100", "--max-tokens", "90000")
    yield terminal
    terminal.close()


def test_lines_from_a_pipe_are_answered_with_the_history_before_them(tiny: Path) -> None:
    process = start("run", tiny, "--chat", "--max-tokens", "8", "--mode", "exact", stdin=PIPE)
    out, errors = process.communicate(b"hello\nand again\n/new\n/what\nhello\n", timeout=60)
    assert process.returncode == 0
    assert "items=3/3" in errors.decode()
    assert len(out.decode(errors="replace")) > 0


def test_the_answer_after_a_new_start_is_the_first_answer_again(tiny: Path) -> None:
    def answers(lines: bytes) -> bytes:
        return start("run", tiny, "--chat", "--max-tokens", "8", "--mode", "exact", stdin=PIPE).communicate(lines, timeout=60)[0]

    once = answers(b"hello\n")
    assert answers(b"hello\n/new\nhello\n") == once + once


def test_a_message_that_does_not_fit_is_taken_back_and_the_chat_goes_on(tiny: Path) -> None:
    process = start("run", tiny, "--chat", "--max-tokens", "4", "--context", "64", stdin=PIPE)
    out, errors = process.communicate(b"x" * 400 + b"\nhi\n", timeout=60)
    assert process.returncode == 0
    assert out
    assert "error: the prompt has" in errors.decode()
    assert "items=1/2" in errors.decode()


@pytest.mark.parametrize("how", ["strict", "surrogateescape"])  # as locales have it for standard input
def test_a_message_that_is_not_utf8_is_refused_and_the_chat_goes_on(tiny: Path, how: str) -> None:
    process = start("run", tiny, "--chat", "--max-tokens", "4", stdin=PIPE, env=clean_environment(PYTHONIOENCODING=f"utf-8:{how}"))
    _, errors = process.communicate(b"a\xff\nhi\n", timeout=60)
    assert process.returncode == 0
    assert "error: the message is not UTF-8" in errors.decode()
    assert "items=1/1" in errors.decode()


def test_ctrl_c_stops_the_answer_and_the_chat_goes_on_until_the_end_of_input(chat: Terminal) -> None:
    for _ in range(2):
        chat.wait_for("> ")
        chat.type("tell me a story\n")
        chat.wait_for(r"story\r\n[^>]")
        os.killpg(chat.process.pid, signal.SIGINT)
        chat.wait_for(r"\[stopped\]")
    chat.wait_for("> ")
    chat.type("\x04")
    chat.wait_for(r"EXIT mode=default status=ok items=2/2")
    assert chat.process.wait(timeout=60) == 0


def test_ctrl_c_at_the_prompt_ends_the_chat(chat: Terminal) -> None:
    chat.wait_for("> ")
    for last in (False, False, True):  # a signal between readline's prompt and its wait for keys stays pending in Python: press again
        os.killpg(chat.process.pid, signal.SIGINT)
        if chat.shows_within(10) or last:
            break
    chat.wait_for(r"EXIT mode=default status=ok items=0/0")
    assert chat.process.wait(timeout=60) == 0


def test_sigterm_ends_the_chat_in_the_middle_of_an_answer(chat: Terminal) -> None:
    chat.wait_for("> ")
    chat.type("tell me a story\n")
    chat.wait_for(r"story\r\n[^>]")
    chat.process.send_signal(signal.SIGTERM)
    chat.wait_for("EXIT mode=default status=failed")
    assert chat.process.wait(timeout=60) == 1


def test_a_chat_takes_no_prompt_from_elsewhere(swiftsure: Run, tiny: Path) -> None:
    assert swiftsure("run", tiny, "--chat", "--json").code == 2
