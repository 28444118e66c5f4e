"""Completions: prompts in, texts and their chunks out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from swiftsure.errors import UsageError
from swiftsure.serve.apis.openai.answers import (
    Answers,
    head,
    proof,
    streamed,
    usage,
)
from swiftsure.serve.apis.openai.body import Asked
from swiftsure.serve.apis.openai.logprobs import LegacyLogprobs
from swiftsure.serve.jobs import Chunk, Outcome
from swiftsure.serve.problems import RefusedError
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices

MAX_PROMPTS = 2048  # OpenAI's


async def encode(model: ServedModel, asked: Asked) -> list[tuple[int, ...]]:
    """Token ids of each prompt. Raises RefusedError with the field, and ContextLengthError."""
    try:
        return [await model.encode(prompt) for prompt in _prompts(asked.values.get("prompt"))]
    except UsageError as error:
        raise RefusedError(str(error), param="prompt") from None


def _prompts(given: Any) -> list[Any]:
    if given is None:
        raise RefusedError("prompt must be given", param="prompt", code="missing_required_parameter")
    prompts = given if isinstance(given, list) and given and isinstance(given[0], str | list) else [given]
    if len(prompts) > MAX_PROMPTS:
        raise RefusedError(f"prompt must hold at most {MAX_PROMPTS} prompts, got {len(prompts)}", param="prompt")
    for prompt in prompts:
        if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(type(token) is int for token in prompt)):
            raise RefusedError("prompt must be a text, token ids, or a list of either", param="prompt")
    return prompts


class _TextWriter:
    """Pieces of one choice. What came without text waits for the next piece of text, or for the end."""

    def __init__(self, index: int, model: ServedModel, asked: Asked, ids: Sequence[int]) -> None:
        self._index = index
        self._asked = asked
        self._ids = ids
        self._echo = model.model.tokenizer.decode(ids, skip_special=False) if asked.values.get("echo") else ""
        self._lists = None if asked.sampling.logprobs is None else LegacyLogprobs(model, offset=len(self._echo))
        self._begun = False
        self._waiting = Chunk(text="", token_ids=())

    def feed(self, chunk: Chunk) -> list[dict[str, Any]]:
        self._take(chunk)
        return [self._choice(None)] if self._waiting.text else []

    def finish(self, outcome: Outcome) -> list[dict[str, Any]]:
        return [self._choice(outcome.finish_reason)]

    def whole(self, chunk: Chunk, finish_reason: str) -> dict[str, Any]:
        self._take(chunk)
        return self._choice(finish_reason)

    def _take(self, chunk: Chunk) -> None:
        before = self._waiting
        self._waiting = Chunk(
            text=before.text + chunk.text,
            token_ids=(*before.token_ids, *chunk.token_ids),
            logprobs=(*before.logprobs, *chunk.logprobs),
        )

    def _choice(self, finish_reason: str | None) -> dict[str, Any]:
        chunk, self._waiting = self._waiting, Chunk(text="", token_ids=())
        logprobs = self._lists.of(chunk.logprobs) if self._lists is not None else None
        choice: dict[str, Any] = {"index": self._index, "text": chunk.text, "logprobs": logprobs, "finish_reason": finish_reason}
        if self._asked.return_token_ids:
            choice["token_ids"] = list(chunk.token_ids)
        if not self._begun:
            self._begun = True
            choice["text"] = self._echo + chunk.text
            if self._asked.return_token_ids:
                choice["prompt_token_ids"] = list(self._ids)
        return choice


def _writers(model: ServedModel, asked: Asked, prompts: Sequence[Sequence[int]]) -> list[_TextWriter]:
    return [_TextWriter(i, model, asked, prompts[i // asked.n]) for i in range(len(prompts) * asked.n)]


async def whole(
    model: ServedModel, asked: Asked, prompts: Sequence[Sequence[int]], answers: Answers, response_id: str, prices: Prices
) -> dict[str, Any]:
    results = await answers.whole()
    writers = _writers(model, asked, prompts)
    return {
        **head("text_completion", "cmpl", model, asked.tier, response_id),
        "choices": [writer.whole(chunk, outcome.finish_reason) for (chunk, outcome), writer in zip(results, writers, strict=True)],
        "usage": usage([outcome for _, outcome in results], asked.n, prices),
        "swiftsure": proof(model, answers.each),
    }


async def events(
    model: ServedModel, asked: Asked, prompts: Sequence[Sequence[int]], answers: Answers, response_id: str, prices: Prices
) -> AsyncIterator[str]:
    common = head("text_completion", "cmpl", model, asked.tier, response_id)
    async for text in streamed(model, asked, answers, _writers(model, asked, prompts), common, prices):
        yield text
