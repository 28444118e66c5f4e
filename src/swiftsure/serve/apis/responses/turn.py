"""One response: from its request, over its events, to its record."""

from __future__ import annotations

import secrets
import sys
import traceback
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from time import time
from typing import Any, TypeAlias

from swiftsure.errors import quotable
from swiftsure.serve.apis.errors import openai_body
from swiftsure.serve.apis.responses.items import Item, chat_messages, read_input
from swiftsure.serve.apis.responses.objects import logprob, proof, response_object, usage
from swiftsure.serve.apis.responses.output import ItemWriter, WireEvent
from swiftsure.serve.apis.responses.prompt import encode
from swiftsure.serve.apis.responses.request import Asked, CreateResponse, read_body, sampling_of
from swiftsure.serve.apis.responses.store import Kept
from swiftsure.serve.apis.streaming import chunks_or_silence
from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.jobs import Outcome
from swiftsure.serve.problems import Problem, RefusedError, UnavailableError, problem_of
from swiftsure.serve.service import ServedModel, Service
from swiftsure.serve.settings import ApiKey, Prices

SILENCE_S = 10.0  # then a stream is kept alive; less than what proxies end a connection after

Find: TypeAlias = Callable[[str], Kept | None]
"""A response that may be continued, by its id."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """A response that was submitted. Its ``events`` are read once; then ``response`` is final, and ``problem`` says why it failed."""

    id: str
    body: CreateResponse
    asked: Asked
    model: ServedModel
    prices: Prices
    owner: str | None
    context: tuple[Item, ...]
    answer: Answer
    writer: ItemWriter
    created_at: int = field(default_factory=lambda: int(time()))
    response: dict[str, Any] | None = None
    problem: Problem | None = None
    steered: bool = False
    _reasoning_tokens: int = 0
    _number: int = 0

    def numbered(self, event: WireEvent) -> WireEvent:
        """The event as the next one of this response."""
        self._number += 1
        return {"type": event["type"], "sequence_number": self._number - 1, **event}

    @property
    def kept(self) -> Kept:
        assert self.response is not None, "it has ended"
        return Kept(response=self.response, context=self.context, owner=self.owner)

    def steer(self) -> None:
        """Ends the output at the next token, or where that would break a call in two, lets it end by itself."""
        self.steered = True
        self._stop_if_steered()

    def _stop_if_steered(self) -> None:
        if self.steered and self.writer.may_stop:
            self.answer.cancel()

    async def events(self) -> AsyncGenerator[WireEvent | None]:
        """In the interface's order, from response.created to response.completed, incomplete or failed; None: nothing came for a while."""
        async with self.answer:
            begun = self._object(status="in_progress", swiftsure=proof(self.model))
            yield self.numbered({"type": "response.created", "response": begun})
            yield self.numbered({"type": "response.in_progress", "response": begun})
            try:
                async for chunk in chunks_or_silence(self.answer, SILENCE_S):
                    if chunk is None:
                        yield None
                        continue
                    for event in self.writer.feed(chunk.text, [logprob(self.model, entry) for entry in chunk.logprobs]):
                        yield self.numbered(event)
                    self._reasoning_tokens += len(chunk.token_ids) if self.writer.reasoning else 0
                    self._stop_if_steered()
                outcome = self.answer.outcome
                assert outcome is not None, "an answer ends with an outcome or an error"
                status, reason = self._status(outcome)
                for event in self.writer.finish(status):
                    yield self.numbered(event)
                self.response = self._ended(outcome, status, reason)
                yield self.numbered({"type": f"response.{status}", "response": self.response})
            except Exception as error:
                self.problem = self.problem or problem_of(error)
                if self.problem.kind == "internal":
                    traceback.print_exception(error, file=sys.stderr)
                yield self.numbered({"type": "response.failed", "response": self._failed(self.problem)})

    def _status(self, outcome: Outcome) -> tuple[str, str | None]:
        """Raises for an answer that was ended before its time."""
        if outcome.finish_reason == "deadline":
            self.problem = Problem(status=504, kind="timeout", message="the request took longer than the server's deadline")
            raise UnavailableError(self.problem.message)
        if outcome.finish_reason == "cancelled":
            if self.steered:
                return "incomplete", "steered"
            raise UnavailableError("the answer was ended by the server")
        return ("incomplete", "max_output_tokens") if outcome.finish_reason == "length" else ("completed", None)

    def _object(self, **fields: Any) -> dict[str, Any]:
        return response_object(self.id, self.created_at, self.model, self.asked.echo, tier=self.answer.job.tier, **fields)

    def _ended(self, outcome: Outcome, status: str, reason: str | None) -> dict[str, Any]:
        return self._object(
            status=status,
            output=self.writer.output,
            usage=usage(outcome, self._reasoning_tokens, self.prices),
            completed_at=int(time()) if status == "completed" else None,
            incomplete_details=None if reason is None else {"reason": reason},
            swiftsure=proof(self.model, outcome),
        )

    def _failed(self, problem: Problem) -> dict[str, Any]:
        told = openai_body(problem)["error"]
        code = {"rate_limit": "rate_limit_exceeded", "invalid_request": "invalid_prompt"}.get(problem.kind, "server_error")
        return self._object(status="failed", output=self.writer.output, error={**told, "code": code}, swiftsure={})


async def begin(service: Service, body: CreateResponse, key: ApiKey | None, find: Find) -> Turn:
    """Checks a request, builds its prompt and submits it. Raises what :func:`~swiftsure.serve.problems.problem_of` knows."""
    asked = read_body(body)
    service.check_tier(key, asked.tier)
    context: tuple[Item, ...] = ()
    name = body.model
    if body.previous_response_id is not None:
        kept = find(body.previous_response_id)
        if kept is None:
            raise RefusedError(
                quotable(f"no response {body.previous_response_id!r:.80} is kept here: not stored, no longer, or not yet"),
                param="previous_response_id",
                code="previous_response_not_found",
            )
        context = kept.conversation
        name = name or kept.response["model"]
    model = service.model(name)
    context = (*context, *(read_input(body.input) if body.input is not None else ()))
    if not context:
        raise RefusedError("input must have at least 1 item, got none", param="input")
    ids, parser, grammar = await encode(model, chat_messages(body.instructions, context), asked)
    await model.check_grammar(grammar)
    sampling = sampling_of(body, asked, room=model.facts.context - len(ids))
    answer = model.submit(ids, sampling, tier=asked.tier, grammar=grammar)
    return Turn(
        id=f"resp_{secrets.token_hex(24)}",
        body=body,
        asked=asked,
        model=model,
        prices=service.settings.prices,
        owner=None if key is None else key.name,
        context=context,
        answer=answer,
        writer=ItemWriter(parser),
    )
