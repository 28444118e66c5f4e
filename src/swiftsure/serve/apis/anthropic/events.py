"""An answer as the interface's server-sent events: https://platform.claude.com/docs/en/build-with-claude/streaming"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import AsyncIterator
from typing import Any

from swiftsure.serve.apis.anthropic.reply import BlockWriter, WireEvent, message, proof, stop_fields, usage
from swiftsure.serve.apis.errors import anthropic_body
from swiftsure.serve.apis.streaming import chunks_or_silence
from swiftsure.serve.engine_process.client import Answer
from swiftsure.serve.problems import problem_of
from swiftsure.serve.service import ServedModel
from swiftsure.serve.settings import Prices

PING_S = 10.0  # of silence; less than what proxies end a connection after


async def events(answer: Answer, writer: BlockWriter, model: ServedModel, message_id: str, prices: Prices) -> AsyncIterator[str]:
    """In order: message_start; of each block content_block_start, deltas, content_block_stop; message_delta; message_stop.

    A ping comes after the first block began and whenever nothing else came for a while. What goes wrong from here on comes as ``error``.
    """
    tier = answer.job.tier
    begun = {
        "input_tokens": len(answer.job.prompt_ids),
        "output_tokens": 0,
        "service_tier": tier,
        "speed": "fast" if tier == "priority" else "standard",
    }
    start = message(message_id, model, [], stop_reason=None, stop_sequence=None, usage=begun, swiftsure=proof(model))
    yield event({"type": "message_start", "message": start})
    pinged = False
    async with answer:
        try:
            async for chunk in chunks_or_silence(answer, PING_S):
                if chunk is None:
                    yield event({"type": "ping"})
                    continue
                for wire in writer.feed(chunk.text):
                    yield event(wire)
                    if not pinged:
                        pinged = True
                        yield event({"type": "ping"})
            for wire in writer.finish():
                yield event(wire)
            outcome = answer.outcome
            assert outcome is not None, "an answer ends with an outcome or an error"
            stop = stop_fields(model, outcome, called=writer.called)
            ended: dict[str, Any] = {"usage": usage(outcome, prices), "swiftsure": proof(model, outcome)}
            yield event({"type": "message_delta", "delta": stop, **ended})
            yield event({"type": "message_stop"})
        except Exception as error:
            problem = problem_of(error)
            if problem.kind == "internal":
                traceback.print_exception(error, file=sys.stderr)
            yield event(anthropic_body(problem))


def event(wire: WireEvent) -> str:
    return f"event: {wire['type']}\ndata: {json.dumps(wire, separators=(',', ':'))}\n\n"
