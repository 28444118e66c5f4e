"""Chat templates: messages to the text a model was trained on.

A template is a program that came with the weights, so it is run like one. Jinja's sandbox keeps it from the machine, but not from looping
or allocating for ever: a single expression can keep C code busy beyond the reach of any exception raised into a thread. So a template
whose digest is not among the reviewed ones runs in a child process with an address-space limit, and is ended when its processor time is
over. The child is started at the first render and kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from swiftsure.errors import TemplateError, UsageError, quotable
from swiftsure.models import template_worker
from swiftsure.models.control_marks import ControlTokens, Marks, Span, marked, spells_control_token, texts_of
from swiftsure.models.conversation import Conversation, Message, conversation
from swiftsure.models.template_process import Child, ChildLostError
from swiftsure.models.template_worker import RenderError

__all__ = ["ChatTemplate", "Message", "Span", "TemplateAbilities", "template_name"]

TIME_LIMIT_S = 2.0  # processor time of one rendering
_KEY = "tokenizer.chat_template"
DEFAULT, TOOL_USE = "default", "tool_use"

# SHA-256 of templates that were read and do work linear in their input; these run in this process.
_REVIEWED = frozenset(
    ("872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",)  # SmolLM2-Instruct
)


# What every rendering is given, or the vocabulary names: no switches for a user.
_GIVEN = {
    "messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now", "bos_token", "eos_token", "unk_token",
    "pad_token",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateAbilities:
    """What a template does with more than turns of user and assistant. ``switches``: the variables that it reads (``enable_thinking``)."""

    system: bool  # a system message ends up in the prompt
    tools: bool
    documents: bool
    switches: tuple[str, ...]


class ChatTemplate:
    """A model's template, or its templates by name, with the variables the vocabulary gives them (``bos_token``, ``eos_token``).

    Safe to share between threads, which take turns.
    """

    def __init__(
        self, source: str | Mapping[str, str], *, variables: Mapping[str, str] | None = None, time_limit_s: float = TIME_LIMIT_S
    ) -> None:
        """``source``: one template, or several by name: ``tool_use`` serves conversations with tools, ``default`` the others."""
        self.sources = {DEFAULT: source} if isinstance(source, str) else dict(source)
        self._variables = dict(variables or {})
        self._time_limit_s = time_limit_s
        self._child: Child | None = None
        self._reads: dict[str, frozenset[str]] = {}
        self._takes_parts: dict[str, bool] = {}
        self._lock = threading.Lock()

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template_variables: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The prompt, as the transformers library's ``apply_chat_template`` writes it.

        Raises UsageError for malformed arguments and for those the template does not read, TemplateError, in the template's own words, when
        it refuses them.
        """
        chat = conversation(messages, tools=tools, documents=documents, template_variables=template_variables)
        source, chat = self._prepared(chat)
        return self._render(source, chat, add_generation_prompt, _now())

    def render_guarded(self, chat: Conversation, control: ControlTokens, *, add_generation_prompt: bool = True) -> tuple[str, list[Span]]:
        """The prompt, and the character ranges in it that must not become control tokens, since they were spelled out by a user.

        Raises as :meth:`render`, and TemplateError when the template rearranges what holds a control token so that it cannot be told apart.
        """
        source, chat = self._prepared(chat)
        now = _now()
        text = self._render(source, chat, add_generation_prompt, now)
        everything = [chat.messages, chat.tools, chat.documents, chat.variables]
        marks = Marks.absent_from(source, *texts_of(everything))
        for edges in (True, False):
            with_marks = marked(chat, control, marks, edges=edges)
            if with_marks == chat:
                return text, []
            try:
                found, spans = marks.read(self._render(source, with_marks, add_generation_prompt, now))
            except TemplateError:
                continue
            if found == text:
                return text, spans
        raise TemplateError(
            f"{spells_control_token(chat, control)} spells out a special token, and this template rearranges its inputs so that "
            "they cannot be told apart"
        )

    def abilities(self) -> TemplateAbilities:
        """Found by asking the template. Raises TemplateError when it cannot even be read."""
        source = self._source_for(Conversation(messages=[]))
        read = set(self._ask({"source": source})["reads"])
        word = "swiftsure-probe"
        chat = Conversation(messages=[{"role": "system", "content": word}, {"role": "user", "content": "x"}])
        try:
            system = word in self._render(*self._prepared(chat), True, _now())
        except TemplateError:
            system = False
        return TemplateAbilities(
            system=system,
            tools="tools" in read or TOOL_USE in self.sources,
            documents="documents" in read,
            switches=tuple(quotable(name) for name in sorted(read - _GIVEN)),
        )

    def close(self) -> None:
        """Ends the child process, if there is one. Safe to call twice; a later render starts another."""
        with self._lock:
            if self._child is not None:
                self._child.stop()
                self._child = None

    # --- which template, and what it takes --------------------------------------------------------------------------------

    def _prepared(self, chat: Conversation) -> tuple[str, Conversation]:
        """The template for this conversation, and the conversation in the form that it reads."""
        source = self._source_for(chat)
        if chat.tools is not None or chat.documents is not None or chat.variables:
            self._check_read(source, chat)
        if not any(isinstance(message.get("content"), list) for message in chat.messages) or self._reads_parts(source):
            return source, chat
        # A template that only knows texts would write a list out as Python does. As other servers do, it gets one text.
        joined = [
            {**message, "content": "\n".join(part["text"] for part in message["content"])}
            if isinstance(message.get("content"), list)
            else message
            for message in chat.messages
        ]
        return source, replace(chat, messages=joined)

    def _source_for(self, chat: Conversation) -> str:
        if chat.tools is not None and TOOL_USE in self.sources:
            return self.sources[TOOL_USE]
        if DEFAULT not in self.sources:
            raise TemplateError(f"the model has no default chat template, only {', '.join(sorted(self.sources))}")
        return self.sources[DEFAULT]

    def _check_read(self, source: str, chat: Conversation) -> None:
        """Raises UsageError for what would be passed in and never looked at."""
        read = self._reads.get(source)
        if read is None:
            read = self._reads[source] = frozenset(self._ask({"source": source})["reads"])
        for name, given in (("tools", chat.tools), ("documents", chat.documents)):
            if given is not None and name not in read:
                raise UsageError(f"the model's chat template reads no {name}, got {len(given)}")
        for name in chat.variables:
            if name not in read:
                known = sorted(read - {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"})
                raise UsageError(quotable(f"the model's chat template reads no variable {name}; it reads {', '.join(known) or 'none'}"))

    def _reads_parts(self, source: str) -> bool:
        """Whether a content that is a list of one text is written as that text."""
        known = self._takes_parts.get(source)
        if known is None:
            word = "swiftsure"
            as_parts = Conversation(messages=[{"role": "user", "content": [{"type": "text", "text": word}]}])
            as_text = Conversation(messages=[{"role": "user", "content": word}])
            now = _now()
            try:
                known = self._render(source, as_parts, True, now) == self._render(source, as_text, True, now)
            except TemplateError:
                known = False
            self._takes_parts[source] = known
        return known

    # --- rendering --------------------------------------------------------------------------------------------------------

    def _render(self, source: str, chat: Conversation, add_generation_prompt: bool, now: str) -> str:
        context: dict[str, Any] = {
            **self._variables,
            **chat.variables,
            "messages": chat.messages,
            "tools": chat.tools,
            "documents": chat.documents,
            "add_generation_prompt": add_generation_prompt,
        }
        return str(self._ask({"source": source, "context": context, "now": now})["text"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the worker answers, in this process for templates that were reviewed. Raises TemplateError."""
        try:
            if hashlib.sha256(request["source"].encode(errors="replace")).hexdigest() in _REVIEWED:
                return template_worker.answer(request)
            with self._lock:
                return self._ask_child(request)
        except RenderError as error:
            raise TemplateError(f"the chat template refused or failed: {error}") from None

    def _ask_child(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._child is None:
            self._child = Child()
        try:
            return self._child.ask(request, self._time_limit_s)
        except ChildLostError as error:
            self._child.stop()
            self._child = None
            raise RenderError(str(error)) from None
        except RenderError:
            raise
        except BaseException:  # interrupted: the answer to this request must not be read as the next one's
            self._child.stop()
            self._child = None
            raise


def template_name(key: str) -> str | None:
    """The name of the template that a GGUF file holds under ``key``; None: the key holds no template."""
    if key == _KEY:
        return DEFAULT
    return key.removeprefix(f"{_KEY}.") if key.startswith(f"{_KEY}.") else None


def _now() -> str:
    return datetime.now().isoformat()
