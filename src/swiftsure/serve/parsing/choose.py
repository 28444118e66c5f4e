"""Which parser an output gets: from the model's chat template, which shows the formats it was trained on, or by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from swiftsure.errors import UsageError
from swiftsure.models.chat_template import TOOL_USE, ChatTemplate
from swiftsure.serve.parsing.formats import GEMMA, HERMES, LLAMA3, MISTRAL, SMOLLM2, CallFormat
from swiftsure.serve.parsing.parser import OutputParser, ReasoningFormat
from swiftsure.serve.parsing.tools import NamedTool, Tool, read_tool_choice, read_tools

AUTO, NONE = "auto", "none"
QWEN3 = ReasoningFormat(name="qwen3")
DEEPSEEK_R1 = ReasoningFormat(name="deepseek_r1", always=True)

CALL_FORMATS: Mapping[str, CallFormat] = {
    "hermes": HERMES,
    "qwen": HERMES,
    "smollm2": SMOLLM2,
    "llama3_json": LLAMA3,
    "mistral": MISTRAL,
    "gemma": GEMMA,
}
REASONING_FORMATS: Mapping[str, ReasoningFormat] = {"qwen3": QWEN3, "deepseek_r1": DEEPSEEK_R1}

# What a template contains -> its format; the first line that fits counts.
_CALL_MARKS: tuple[tuple[str, CallFormat], ...] = (
    ("[TOOL_CALLS]", MISTRAL),
    ("<|python_tag|>", LLAMA3),
    ('"parameters": dictionary of argument name', LLAMA3),
    ("<tool_call>[", SMOLLM2),
    ("<tool_call>", HERMES),
    ("tool_code", GEMMA),
)
_REASONING_MARKS: tuple[tuple[str, ReasoningFormat], ...] = (
    ("<\uff5cAssistant\uff5c>", DEEPSEEK_R1),
    ("</think>", QWEN3),
)


def call_format_of(template: ChatTemplate | str | None) -> CallFormat | None:
    """The format in which a template writes calls; None: unknown."""
    return next((format_ for mark, format_ in _CALL_MARKS if mark in _source(template)), None)


def reasoning_format_of(template: ChatTemplate | str | None) -> ReasoningFormat | None:
    """The tags a template knows reasoning by; None: it knows of none."""
    source = _source(template)
    if "</think>" not in source and "<think>" not in source:
        return None
    return next((format_ for mark, format_ in _REASONING_MARKS if mark in source), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """By which formats a model's outputs are read: names from ``CALL_FORMATS`` and ``REASONING_FORMATS``, ``none``, or ``auto``: what its
    template shows. Raises UsageError for names that do not exist."""

    calls: str = AUTO
    reasoning: str = AUTO

    def __post_init__(self) -> None:
        _named("tool-call format", self.calls, CALL_FORMATS, None)
        _named("reasoning format", self.reasoning, REASONING_FORMATS, None)

    def call_format(self, template: ChatTemplate | str | None) -> CallFormat | None:
        return _named("tool-call format", self.calls, CALL_FORMATS, call_format_of(template))

    def reasoning_format(self, template: ChatTemplate | str | None) -> ReasoningFormat | None:
        return _named("reasoning format", self.reasoning, REASONING_FORMATS, reasoning_format_of(template))

    def for_described_tools(self, template: ChatTemplate | str | None) -> tuple[CallFormat | None, str]:
        """Where only a text describes the tools, since the template reads none: its format of calls, and the name of the one that answers
        are read by."""
        known = self.call_format(template)
        return known, HERMES.name if known is None and self.calls == AUTO else self.calls


def parser_for(
    template: ChatTemplate | str | None,
    *,
    tools: Sequence[Tool | Mapping[str, Any]] | None = None,
    tool_choice: Any = None,
    prompt: str | None = None,
    calls: str = AUTO,
    reasoning: str = AUTO,
) -> OutputParser:
    """A parser for one output; each choice needs its own.

    template: the model's. tools, tool_choice: of the request, in OpenAI's or Anthropic's form. prompt: the rendered prompt, or its end: it
    says whether the output begins inside of reasoning. calls, reasoning: names from ``CALL_FORMATS`` and ``REASONING_FORMATS``, ``none``,
    or ``auto``: what the template shows. A forced choice needs a format: where none is known it is ``hermes``.

    Raises UsageError for malformed tools, a choice that they do not allow and names that do not exist.
    """
    known = read_tools(tools)
    choice = read_tool_choice(tool_choice, known)
    call_format = _named("tool-call format", calls, CALL_FORMATS, call_format_of(template))
    if call_format is None and (choice == "required" or isinstance(choice, NamedTool)):
        if calls == NONE:
            raise UsageError("a forced tool call needs a format of calls, and tool calls are not parsed here (none)")
        call_format = HERMES
    reasoning_format = _named("reasoning format", reasoning, REASONING_FORMATS, reasoning_format_of(template))
    begins_inside = False
    if reasoning_format is not None:
        begins_inside = reasoning_format.always if prompt is None else prompt.rstrip().endswith(reasoning_format.open)
    return OutputParser(calls=call_format, tools=known, tool_choice=choice, reasoning=reasoning_format, reasoning_open=begins_inside)


_Format = TypeVar("_Format")


def _named(what: str, name: str, known: Mapping[str, _Format], derived: _Format | None) -> _Format | None:
    if name == AUTO:
        return derived
    if name != NONE and name not in known:
        raise UsageError(f"{what} must be {AUTO}, {NONE}, {', '.join(known)}, got {name!r}")
    return known.get(name)


def _source(template: ChatTemplate | str | None) -> str:
    if isinstance(template, ChatTemplate):
        return template.sources.get(TOOL_USE) or "\n".join(template.sources.values())
    return template or ""
