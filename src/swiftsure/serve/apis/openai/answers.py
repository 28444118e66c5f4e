"""Several answers as one: submitted together, read as they come, ended together; and what a response says of them."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from time import time
from typing import Any, Protocol

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.scheduler import Tier
from swiftsure.serve.apis.errors import openai_body
from swiftsure.serve.apis.openai.body import Asked
from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.jobs import Chunk, Outcome
from swiftsure.serve.problems import DeadlineError, RefusedError, UnavailableError, problem_of
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices

SILENCE_S = 10.0  # less than what proxies end a connection after
SILENT = ": still at work\n\n"
DONE = "data: [DONE]\n\n"
_TIER_NAMES: Mapping[Tier, str] = {"standard": "default", "priority": "priority"}


class Answers:
    """Answers to one request. ``cancel`` ends all of them."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.each = tuple(answers)

    def cancel(self) -> None:
        for answer in self.each:
            answer.cancel()

    async def whole(self) -> list[tuple[Chunk, Outcome]]:
        """Raises what ended any of them, and ends the others then."""
        try:
            results = await asyncio.gather(*(answer.finish() for answer in self.each))
        finally:
            self.cancel()
        return [(chunk, sound(outcome)) for chunk, outcome in results]

    async def chunks(self) -> AsyncIterator[tuple[int, Chunk | None] | None]:
        """``(index, chunk)`` as they come, ``(index, None)`` when an answer is over, None after a silence. Raises what ended one."""
        readers = [aiter(answer) for answer in self.each]
        coming = {asyncio.ensure_future(_next(reader)): i for i, reader in enumerate(readers)}
        try:
            while coming:
                done, _ = await asyncio.wait(coming, timeout=SILENCE_S, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    yield None
                for task in sorted(done, key=lambda one: coming[one]):
                    i = coming.pop(task)
                    chunk = task.result()
                    if chunk is not None:
                        coming[asyncio.ensure_future(_next(readers[i]))] = i
                    yield i, chunk
        finally:
            self.cancel()
            for task in coming:
                task.cancel()
            await asyncio.gather(*coming, return_exceptions=True)


async def _next(chunks: AsyncIterator[Chunk]) -> Chunk | None:
    try:
        return await anext(chunks)
    except StopAsyncIteration:  # a task cannot raise it
        return None


def submit(model: ServedModel, prompts: Sequence[Sequence[int]], asked: Asked, grammar: Grammar | None = None) -> Answers:
    """``n`` answers to each prompt, in order; all or none. An answer's noise depends on its place among those to its prompt alone."""
    count, most = len(prompts) * asked.n, model.lanes[asked.tier].limits.requests
    if count > most:
        raise RefusedError(f"n: the {asked.tier} tier takes at most {most} answers at a time, got a request for {count}", param="n")
    sampling = asked.sampling.resolved()
    answers: list[Answer] = []
    try:
        for ids in prompts:
            for choice in range(asked.n):
                answers.append(model.submit(ids, sampling, tier=asked.tier, choice=choice, grammar=grammar, deadline_s=asked.deadline_s))
    except BaseException:
        Answers(answers).cancel()
        raise
    return Answers(answers)


def sound(outcome: Outcome | None) -> Outcome:
    """Raises DeadlineError and UnavailableError for an answer that is no whole one."""
    assert outcome is not None, "an answer ends with an outcome or an error"
    if outcome.finish_reason == "deadline":
        raise DeadlineError(f"the request's time was over after {outcome.output_tokens} tokens of its answer")
    if outcome.finish_reason == "cancelled":
        raise UnavailableError("the answer was ended by the server")
    return outcome


# --- what a response says -------------------------------------------------------------------------------------------------


def head(kind: str, prefix: str, model: ServedModel, tier: Tier, response_id: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{response_id}",
        "object": kind,
        "created": int(time()),
        "model": model.name,
        "system_fingerprint": model.facts.fingerprint,
        "service_tier": _TIER_NAMES[tier],
    }


def usage(outcomes: Sequence[Outcome], n: int, prices: Prices) -> dict[str, Any]:
    """A prompt counts once, however many answers it has."""
    firsts = outcomes[::n]
    prompt, output = sum(outcome.prompt_tokens for outcome in firsts), sum(outcome.output_tokens for outcome in outcomes)
    told: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": sum(outcome.cached_tokens for outcome in firsts)},
    }
    if prices.input or prices.output:
        told["cost"] = prices.cost(prompt_tokens=prompt, output_tokens=output, tier=outcomes[0].tier)
    return told


def proof(model: ServedModel, answers: Sequence[Answer]) -> dict[str, Any]:
    """What the answers are functions of, values that were used included, and each one's digest and times."""
    job = answers[0].job
    sampling = {name: getattr(job.sampling, name) for name in job.sampling.__slots__}
    told: dict[str, Any] = {
        "mode": model.facts.mode,
        "numerics": model.facts.numerics,
        "tier": job.tier,
        "seed": job.sampling.seed,
        "sampling": {**sampling, "logit_bias": {str(token): bias for token, bias in job.sampling.logit_bias.items()}},
    }
    each = [
        {"digest": outcome.digest, "stop_string": outcome.stop_string, "timing": dict(outcome.timing)}
        for answer in answers
        if (outcome := answer.outcome) is not None
    ]
    if len(each) == 1:
        return told | each[0]
    return told | {"answers": [{"index": i, **one} for i, one in enumerate(each)]}


# --- events ---------------------------------------------------------------------------------------------------------------


def event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, separators=(',', ':'))}\n\n"


def error_event(error: Exception) -> str:
    """What went wrong after the status was sent. No [DONE] follows: the answer is not whole."""
    problem = problem_of(error)
    if problem.kind == "internal":
        traceback.print_exception(error, file=sys.stderr)
    return event(openai_body(problem))


class ChoiceWriter(Protocol):
    """One answer's choices in the wire format of an endpoint: any number for a chunk; in the end the one with the finish reason is last."""

    def feed(self, chunk: Chunk) -> list[dict[str, Any]]: ...

    def finish(self, outcome: Outcome) -> list[dict[str, Any]]: ...


async def streamed(
    model: ServedModel, asked: Asked, answers: Answers, writers: Sequence[ChoiceWriter], common: Mapping[str, Any], prices: Prices
) -> AsyncIterator[str]:
    """The pieces of all answers as they come, each answer's finish, the usage where it was asked for, [DONE]."""
    more = usage_to_come(asked)
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


def usage_to_come(asked: Asked) -> dict[str, Any]:
    """Of every event before the one that holds the usage."""
    return {"usage": None} if asked.include_usage else {}
