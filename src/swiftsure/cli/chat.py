"""A chat in the terminal. Ctrl-C stops an answer; at the prompt it ends the chat, as Ctrl-D does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from swiftsure.cli.console import note
from swiftsure.cli.report import stats_line
from swiftsure.cli.session import Tally, Work
from swiftsure.errors import ContextLengthError, TemplateError
from swiftsure.signals import Terminated

if TYPE_CHECKING:
    from swiftsure import LLM, SamplingParams

_HELP = "/new starts over, /exit or Ctrl-D ends, Ctrl-C stops an answer"


def chat_work(system: str | None, sampling: SamplingParams, *, stats: bool, template_variables: Mapping[str, Any] | None = None) -> Work:
    """A work that reads messages until the end of input and answers each with the whole history before it."""
    opening = [{"role": "system", "content": system}] if system is not None else []

    def work(llm: LLM, tally: Tally) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() line editing
        note(_HELP)
        history = list(opening)
        while (text := _next_message()) is not None:
            if text == "/new":
                history = list(opening)
                note("a new conversation")
            elif text.startswith("/"):
                note(_HELP)
            elif not _is_unicode(text):
                note("error: the message is not UTF-8")
            elif text:
                tally.total += 1
                tally.done += _turn(llm, history, text, sampling, stats=stats, template_variables=template_variables)

    return work


def _next_message() -> str | None:
    """The next line that the user typed, stripped; None at the end of the chat."""
    try:
        text = input("> " if sys.stdin.isatty() else "").strip()
    except Terminated:
        raise
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None
    return None if text == "/exit" else text


def _is_unicode(text: str) -> bool:
    """False where the terminal or the pipe sent bytes that its encoding has no character for."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _turn(
    llm: LLM,
    history: list[dict[str, str]],
    text: str,
    sampling: SamplingParams,
    *,
    stats: bool,
    template_variables: Mapping[str, Any] | None,
) -> bool:
    """Answers one message and adds both to ``history``; a stopped answer stays in it as far as it got.

    Returns whether the turn was answered; a message that does not fit is taken back and the chat goes on.
    """
    history.append({"role": "user", "content": text})
    try:
        stream = llm.stream(list(history), sampling=sampling, template_variables=template_variables)
    except (ContextLengthError, TemplateError) as error:
        history.pop()
        note(f"error: {error}")
        return False
    pieces: list[str] = []
    with stream:
        try:
            for piece in stream:
                pieces.append(piece)
                print(piece, end="", flush=True)
        except Terminated:
            raise
        except KeyboardInterrupt:
            print(" [stopped]", end="")
        print(flush=True)
        history.append({"role": "assistant", "content": "".join(pieces)})
        if stats:
            note(stats_line(llm, stream.generation))
    return True
