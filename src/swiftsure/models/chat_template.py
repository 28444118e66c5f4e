"""Chat templates: messages to the text a model was trained on.

A template is a program that came with the weights, so it is run like one. Jinja's sandbox keeps it from the machine, but not from looping
or allocating for ever: a single expression can keep C code busy beyond the reach of any exception raised into a thread. So a template
whose digest is not among the reviewed ones runs in a child process with an address-space limit, and is killed when its time is over. The
child is started at the first render and kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from swiftsure.errors import TemplateError, UsageError
from swiftsure.models import template_worker
from swiftsure.models.template_worker import MAX_OUTPUT_CHARACTERS, RenderError

TIME_LIMIT_S = 2.0
_START_LIMIT_S = 30.0  # of the child itself, on a machine that is busy
_ANSWER_LIMIT_BYTES = 8 * MAX_OUTPUT_CHARACTERS
_MESSAGE_KEYS = ("role", "content")
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")

# SHA-256 of templates that were read and do work linear in their input; these run in this process.
_REVIEWED = frozenset(
    ("872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",)  # SmolLM2-Instruct
)

Message = Mapping[str, str]
Span = tuple[int, int]


class ChatTemplate:
    """One template with the variables the vocabulary gives it (``bos_token``, ``eos_token``). Safe to share between threads."""

    def __init__(self, source: str, *, variables: Mapping[str, str] | None = None, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.source = source
        self._variables = dict(variables or {})
        self._time_limit_s = time_limit_s
        self._reviewed = hashlib.sha256(source.encode(errors="replace")).hexdigest() in _REVIEWED
        self._child: _Child | None = None
        self._lock = threading.Lock()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The prompt. Raises UsageError for malformed messages and TemplateError, in the template's own words, when it refuses them."""
        check_messages(messages)
        return self._render(messages, add_generation_prompt)

    def render_with_spans(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> tuple[str, list[Span] | None]:
        """The prompt, and the character ranges in it that are message contents: what must not turn into special tokens.

        Found by rendering once more with marks in place of the contents. None when the template does more with contents than place and
        trim them, so that no range can be named.
        """
        text = self.render(messages, add_generation_prompt=add_generation_prompt)
        nonce = secrets.token_hex(8)
        cores = [message["content"].strip() for message in messages]
        marks = [f"\ue000{nonce}.{i}\ue001" if core else "" for i, core in enumerate(cores)]
        # Outer white space stays, so that a template that trims its contents trims the marked ones alike.
        marked = [
            {**message, "content": message["content"].replace(core, mark, 1) if core else message["content"]}
            for message, core, mark in zip(messages, cores, marks, strict=True)
        ]
        try:
            pieces = re.split(f"\ue000{nonce}\\.([0-9]+)\ue001", self._render(marked, add_generation_prompt))
        except TemplateError:
            return text, None
        spans: list[Span] = []
        rebuilt = pieces[0]
        for index, literal in zip(pieces[1::2], pieces[2::2], strict=True):
            core = cores[int(index)]
            spans.append((len(rebuilt), len(rebuilt) + len(core)))
            rebuilt += core + literal
        placed = {int(index) for index in pieces[1::2]}
        everything_placed = all(i in placed or not core for i, core in enumerate(cores))
        return text, spans if rebuilt == text and everything_placed else None

    def close(self) -> None:
        """Ends the child process, if there is one. Safe to call twice; a later render starts another."""
        with self._lock:
            if self._child is not None:
                self._child.stop()
                self._child = None

    def _render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        context: dict[str, Any] = {
            **self._variables,
            "messages": [dict(message) for message in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            if self._reviewed:
                return template_worker.render(self.source, context)
            return self._render_in_child(context)
        except RenderError as error:
            raise TemplateError(f"the chat template refused or failed: {error}") from None

    def _render_in_child(self, context: dict[str, Any]) -> str:
        with self._lock:
            if self._child is None:
                self._child = _Child()
            try:
                return self._child.render(self.source, context, self._time_limit_s)
            except _ChildLostError as error:
                self._child.stop()
                self._child = None
                raise RenderError(str(error)) from None


class _ChildLostError(Exception):
    """The child was too slow, said too much or died; it is of no further use."""


class _Child:
    """A process that renders."""

    def __init__(self) -> None:
        # -S and -I keep the child from site files and the environment; it gets our import path instead.
        command = [sys.executable, "-I", "-S", template_worker.__file__]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError as error:
            raise RenderError(f"its process cannot be started: {error}") from None
        self.stop = weakref.finalize(self, _stop, self._process)
        self._ready = False

    def render(self, source: str, context: dict[str, Any], limit_s: float) -> str:
        """Raises RenderError for what the template says, _ChildLostError when the child must be given up."""
        if not self._ready:
            self._send([folder for folder in sys.path if folder])  # "" would let files of the current folder in
            if self._receive(_START_LIMIT_S, f"its process did not start within {_START_LIMIT_S:g} s") != b"ready":
                raise _ChildLostError("its process did not start")
            self._ready = True
        self._send({"source": source, "context": context})
        answer = json.loads(self._receive(limit_s, f"it ran longer than {limit_s:g} s and was stopped"))
        if "error" in answer:
            raise RenderError(answer["error"])
        return str(answer["text"])

    def _send(self, message: object) -> None:
        pipe = self._process.stdin
        if pipe is None:
            raise _ChildLostError("its process has no input")
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise _ChildLostError("its process died") from None

    def _receive(self, limit_s: float, too_late: str) -> bytes:
        """One line, without its end."""
        pipe = self._process.stdout
        if pipe is None:
            raise _ChildLostError("its process has no output")
        deadline = time.monotonic() + limit_s
        line = bytearray()
        while not line.endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise _ChildLostError(too_late)
            piece = os.read(pipe.fileno(), 1 << 16)
            if not piece:
                raise _ChildLostError("its process died, most likely of its memory limit")
            line += piece
            if len(line) > _ANSWER_LIMIT_BYTES:
                raise _ChildLostError("its output is too long")
        return bytes(line[:-1])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # unsent bytes for a process that is gone
                pipe.close()
    process.wait()


def check_messages(messages: Sequence[Message]) -> None:
    """Raises UsageError that says which message breaks which rule."""
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise UsageError(f"messages must be a list of at least one message, got {messages!r:.80}")
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise UsageError(f"message {i} must be a dict with the keys role and content, got {type(message).__name__}")
        for key in message:
            if key not in _MESSAGE_KEYS:
                raise UsageError(f"message {i} has the unknown key {key!r}; known: {', '.join(_MESSAGE_KEYS)}")
        for key in _MESSAGE_KEYS:
            if key not in message:
                raise UsageError(f"message {i} has no {key}")
            if not isinstance(message[key], str):
                raise UsageError(f"message {i}: {key} must be a string, got {type(message[key]).__name__}")
        if not _ROLE.fullmatch(message["role"]):
            raise UsageError(f"message {i}: role must be a word of letters, digits, '_' and '-', got {message['role']!r:.80}")
        try:
            message["content"].encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"message {i}: content holds a lone surrogate at character {error.start}") from None
