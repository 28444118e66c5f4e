"""Chat completions: messages in, a message and its chunks out."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.inputs import ChatFields
from swiftsure.engine.request import TokenLogprob
from swiftsure.errors import UsageError
from swiftsure.models.conversation import conversation
from swiftsure.serve.apis.openai.answers import (
    Answers,
    event,
    head,
    proof,
    streamed,
    usage,
    usage_to_come,
)
from swiftsure.serve.apis.openai.body import Asked
from swiftsure.serve.apis.openai.logprobs import chat_logprobs
from swiftsure.serve.jobs import Chunk, Outcome
from swiftsure.serve.parsing import (
    CallArguments,
    CallEnd,
    CallStart,
    Event,
    OutputParser,
    Reasoning,
    Text,
    grammar_for,
    parser_for,
    read_tool_choice,
    read_tools,
    with_calls_spelled,
    with_tools_described,
)
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices

_HINTS = ("cache_control", "prompt_cache_breakpoint")  # of a part: prefixes are cached without them
_PROMPT_TAIL = 64  # tokens: enough to see whether the template began with reasoning


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """A conversation's token ids, what reads an answer to it (each answer needs a parser of its own), and what answers conform to."""

    ids: tuple[int, ...]
    parser: Callable[[], OutputParser]
    grammar: Grammar | None


async def encode(model: ServedModel, asked: Asked) -> ChatPrompt:
    """Raises RefusedError with the field, TemplateError and ContextLengthError."""
    values = asked.values
    if "messages" not in values:
        raise RefusedError("messages must be given", param="messages", code="missing_required_parameter")
    messages = _messages(values["messages"])
    with _about("tools"):
        tools = read_tools(values.get("tools") or None)
    with _about("tool_choice"):
        choice = read_tool_choice(values.get("tool_choice"), tools)
    offered = tools if choice != "none" else ()
    chat: ChatFields = {"template_variables": values.get("chat_template_kwargs"), "documents": values.get("documents")}
    template, formats = model.model.chat_template, model.settings.formats
    calls = formats.calls
    with _about("messages"):
        if not offered:
            ids = await model.encode(messages, **chat)
        else:
            try:
                with_tools: ChatFields = {**chat, "tools": [tool.for_template() for tool in offered]}
                ids = await model.encode(messages, **with_tools)
            except UsageError:  # the template reads no tools; any other fault is met again
                known, calls = formats.for_described_tools(template)
                spelled = [with_calls_spelled(message, known) for message in conversation(messages).messages]
                ids = await model.encode(with_tools_described(spelled, offered, known), **chat)
    tail = b"".join(map(model.token_bytes, ids[-_PROMPT_TAIL:])).decode("utf-8", "replace")
    parser = partial(parser_for, template, tools=offered, tool_choice=choice, prompt=tail, calls=calls, reasoning=formats.reasoning)
    return ChatPrompt(ids=ids, parser=parser, grammar=_grammar(values, parser()))


def _grammar(values: Mapping[str, Any], parser: OutputParser) -> Grammar | None:
    """What only the engine can find wrong with it comes as the answer's error."""
    parallel = values.get("parallel_tool_calls", True)
    if not parallel and parser.tool_choice == "auto" and parser.tools:
        raise RefusedError(
            "parallel_tool_calls: false is not supported with tool_choice auto: nothing stops the model after one call",
            param="parallel_tool_calls",
            code="unsupported_parameter",
        )
    with _about("response_format" if "response_format" in values else "tools"):
        return grammar_for(parser, response_format=values.get("response_format"), parallel=parallel)


@contextmanager
def _about(param: str) -> Iterator[None]:
    """Names the field in what is raised about it."""
    try:
        yield
    except UsageError as error:
        message = str(error)
        if "chat template reads no variable" in message or message.startswith(("template_variables", "a template variable")):
            param = "chat_template_kwargs"
        elif message.startswith("document") or "reads no documents" in message:
            param = "documents"
        raise RefusedError(message, param=param) from None


def _messages(messages: list[Any]) -> list[Any]:
    """``developer``, OpenAI's newer word, as the ``system`` that templates know; hints about caches left out."""
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise RefusedError("messages must be a list of at least one object with role and content", param="messages")
    out = []
    for message in messages:
        changed = dict(message)
        if changed.get("role") == "developer":
            changed["role"] = "system"
        if isinstance(changed.get("content"), list):
            changed["content"] = [
                {key: value for key, value in part.items() if key not in _HINTS} if isinstance(part, dict) else part
                for part in changed["content"]
            ]
        out.append(changed)
    return out


async def whole(model: ServedModel, asked: Asked, prompt: ChatPrompt, answers: Answers, response_id: str, prices: Prices) -> dict[str, Any]:
    results = await answers.whole()
    choices = []
    for i, (chunk, outcome) in enumerate(results):
        parser = prompt.parser()
        found = [*parser.feed(chunk.text), *parser.finish()]
        message: dict[str, Any] = {"role": "assistant", "content": _joined(found, Text), "refusal": None}
        if made := [one for one in found if isinstance(one, CallEnd)]:
            message["content"] = message["content"] or None
            message["tool_calls"] = [
                {"id": _call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in made
            ]
        if reasoning := _joined(found, Reasoning):
            message["reasoning_content"] = reasoning
        choice: dict[str, Any] = {
            "index": i,
            "message": message,
            "logprobs": _logprobs(model, asked, chunk.logprobs),
            "finish_reason": _finish_reason(outcome, called=bool(made)),
        }
        if asked.return_token_ids:
            choice["token_ids"] = list(chunk.token_ids)
        choices.append(choice)
    response = {**head("chat.completion", "chatcmpl", model, asked.tier, response_id), "choices": choices}
    if asked.return_token_ids:
        response["prompt_token_ids"] = list(prompt.ids)
    outcomes = [outcome for _, outcome in results]
    return {**response, "usage": usage(outcomes, asked.n, prices), "swiftsure": proof(model, answers.each)}


def _joined(found: Sequence[Event], kind: type[Text] | type[Reasoning]) -> str:
    return "".join(one.text for one in found if isinstance(one, kind))


def _call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def _finish_reason(outcome: Outcome, *, called: bool) -> str:
    return "tool_calls" if called and outcome.finish_reason == "stop" else outcome.finish_reason


def _logprobs(model: ServedModel, asked: Asked, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
    return None if asked.sampling.logprobs is None else {"content": chat_logprobs(model, entries), "refusal": None}


class _ChoiceWriter:
    """Chunks of one choice. What came without text of its own waits for the next piece of text, or for the end."""

    def __init__(self, index: int, model: ServedModel, asked: Asked, parser: OutputParser) -> None:
        self._index = index
        self._model = model
        self._asked = asked
        self._parser = parser
        self._logprobs: list[TokenLogprob] = []
        self._tokens: list[int] = []
        self._called = False

    def begin(self) -> dict[str, Any]:
        return {"index": self._index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def feed(self, chunk: Chunk) -> list[dict[str, Any]]:
        self._logprobs += chunk.logprobs
        self._tokens += chunk.token_ids
        return self._written(self._parser.feed(chunk.text))

    def finish(self, outcome: Outcome) -> list[dict[str, Any]]:
        rest = self._written(self._parser.finish())
        return [*rest, self._choice({}, _finish_reason(outcome, called=self._called))]

    def _written(self, found: Sequence[Event]) -> list[dict[str, Any]]:
        self._called = self._called or any(isinstance(one, CallStart) for one in found)
        return [self._choice(delta) for one in found if (delta := _delta(one))]

    def _choice(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        logprobs = _logprobs(self._model, self._asked, self._logprobs) if self._logprobs else None
        choice: dict[str, Any] = {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        if self._asked.return_token_ids:
            choice["token_ids"] = self._tokens
        self._logprobs, self._tokens = [], []
        return choice


def _delta(found: Event) -> dict[str, Any] | None:
    match found:
        case Text(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStart(index, name):
            call = {"index": index, "id": _call_id(), "type": "function", "function": {"name": name, "arguments": ""}}
            return {"tool_calls": [call]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
        case CallEnd():
            return None


async def events(
    model: ServedModel, asked: Asked, prompt: ChatPrompt, answers: Answers, response_id: str, prices: Prices
) -> AsyncIterator[str]:
    """The roles, the pieces of all answers as they come, each answer's finish, the usage where it was asked for, [DONE]."""
    common = head("chat.completion.chunk", "chatcmpl", model, asked.tier, response_id)
    more = usage_to_come(asked)
    writers = [_ChoiceWriter(i, model, asked, prompt.parser()) for i in range(len(answers.each))]
    for i, writer in enumerate(writers):
        first = {"prompt_token_ids": list(prompt.ids)} if asked.return_token_ids and i == 0 else {}
        yield event({**common, "choices": [writer.begin()], **more, **first})
    async for text in streamed(model, asked, answers, writers, common, prices):
        yield text
