"""Chat completions: messages in, a message and its chunks out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from swiftsure.engine.inputs import ChatFields
from swiftsure.engine.request import TokenLogprob
from swiftsure.errors import UsageError
from swiftsure.serve.apis.openai.answers import DONE, SILENT, Answers, error_event, event, head, proof, sound, usage
from swiftsure.serve.apis.openai.body import Asked
from swiftsure.serve.apis.openai.logprobs import chat_logprobs
from swiftsure.serve.jobs import Chunk, Outcome
from swiftsure.serve.parsing import Event, OutputParser, Reasoning, Text, parser_for
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices

_HINTS = ("cache_control", "prompt_cache_breakpoint")  # of a part: prefixes are cached without them
_PROMPT_TAIL = 64  # tokens: enough to see whether the template began with reasoning


async def encode(model: ServedModel, asked: Asked) -> tuple[int, ...]:
    """Token ids of the prompt. Raises RefusedError with the field, TemplateError and ContextLengthError."""
    if "messages" not in asked.values:
        raise RefusedError("messages must be given", param="messages", code="missing_required_parameter")
    chat: ChatFields = {"template_variables": asked.values.get("chat_template_kwargs"), "documents": asked.values.get("documents")}
    try:
        return await model.encode(_messages(asked.values["messages"]), **chat)
    except UsageError as error:
        named = "chat_template_kwargs" if "variable" in str(error) else "documents" if "documents" in str(error)[:60] else "messages"
        raise RefusedError(str(error), param=named) from None


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


def parsers(model: ServedModel, ids: Sequence[int], count: int) -> list[OutputParser]:
    """What tells reasoning from the answer in each of the outputs."""
    tail = b"".join(map(model.token_bytes, ids[-_PROMPT_TAIL:])).decode("utf-8", "replace")
    return [parser_for(model.model.chat_template, prompt=tail) for _ in range(count)]


async def whole(model: ServedModel, asked: Asked, ids: Sequence[int], answers: Answers, response_id: str, prices: Prices) -> dict[str, Any]:
    results = await answers.whole()
    choices = []
    for i, ((chunk, outcome), parser) in enumerate(zip(results, parsers(model, ids, len(results)), strict=True)):
        found = [*parser.feed(chunk.text), *parser.finish()]
        message: dict[str, Any] = {"role": "assistant", "content": _joined(found, Text), "refusal": None}
        if reasoning := _joined(found, Reasoning):
            message["reasoning_content"] = reasoning
        choice: dict[str, Any] = {
            "index": i,
            "message": message,
            "logprobs": _logprobs(model, asked, chunk.logprobs),
            "finish_reason": outcome.finish_reason,
        }
        if asked.return_token_ids:
            choice["token_ids"] = list(chunk.token_ids)
        choices.append(choice)
    response = {**head("chat.completion", "chatcmpl", model, asked.tier, response_id), "choices": choices}
    if asked.return_token_ids:
        response["prompt_token_ids"] = list(ids)
    outcomes = [outcome for _, outcome in results]
    return {**response, "usage": usage(outcomes, asked.n, prices), "swiftsure": proof(model, answers.each)}


def _joined(found: Sequence[Event], kind: type[Text] | type[Reasoning]) -> str:
    return "".join(one.text for one in found if isinstance(one, kind))


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

    def begin(self) -> dict[str, Any]:
        return {"index": self._index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}

    def feed(self, chunk: Chunk) -> list[dict[str, Any]]:
        self._logprobs += chunk.logprobs
        self._tokens += chunk.token_ids
        return [self._choice(_delta(one)) for one in self._parser.feed(chunk.text)]

    def finish(self, outcome: Outcome) -> list[dict[str, Any]]:
        rest = [self._choice(_delta(one)) for one in self._parser.finish()]
        return [*rest, self._choice({}, outcome.finish_reason)]

    def _choice(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        logprobs = _logprobs(self._model, self._asked, self._logprobs) if self._logprobs else None
        choice: dict[str, Any] = {"index": self._index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        if self._asked.return_token_ids:
            choice["token_ids"] = self._tokens
        self._logprobs, self._tokens = [], []
        return choice


def _delta(found: Event) -> dict[str, Any]:
    if isinstance(found, Reasoning):
        return {"reasoning_content": found.text}
    assert isinstance(found, Text), "without tools there are no calls"
    return {"content": found.text}


async def events(
    model: ServedModel, asked: Asked, ids: Sequence[int], answers: Answers, response_id: str, prices: Prices
) -> AsyncIterator[str]:
    """The roles, the pieces of all answers as they come, each answer's finish, the usage where it was asked for, [DONE]."""
    common = head("chat.completion.chunk", "chatcmpl", model, asked.tier, response_id)
    more: dict[str, Any] = {"usage": None} if asked.include_usage else {}
    writers = [_ChoiceWriter(i, model, asked, parser) for i, parser in enumerate(parsers(model, ids, len(answers.each)))]
    for i, writer in enumerate(writers):
        first = {"prompt_token_ids": list(ids)} if asked.return_token_ids and i == 0 else {}
        yield event({**common, "choices": [writer.begin()], **more, **first})
    try:
        async for item in answers.chunks():
            if item is None:
                yield SILENT
                continue
            i, chunk = item
            if chunk is not None:
                for choice in writers[i].feed(chunk):
                    yield event({**common, "choices": [choice], **more})
                continue
            *rest, last = writers[i].finish(sound(answers.each[i].outcome))
            for choice in rest:
                yield event({**common, "choices": [choice], **more})
            yield event({**common, "choices": [last], **more, "swiftsure": proof(model, [answers.each[i]])})
        if asked.include_usage:
            outcomes = [sound(answer.outcome) for answer in answers.each]
            yield event({**common, "choices": [], "usage": usage(outcomes, asked.n, prices)})
        yield DONE
    except Exception as error:
        yield error_event(error)
