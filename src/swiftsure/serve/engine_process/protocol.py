"""Messages between the server and an engine: frames of JSON over a socket pair. No pickle, no code.

A frame is its length (four bytes, little-endian) and so many bytes of UTF-8 JSON: one object with ``kind``.

To the engine
    ``load``     keywords of :func:`swiftsure.load`, and what the process adds to its niceness; always the first
    ``submit``   ``id`` and a job
    ``cancel``   ``id``; its outcome still comes
    ``weigh``    ``id``, ``prompt_ids``, ``token_ids`` and, for each of these, ``wanted`` ids: what the model makes of an answer that exists
    ``stop``     what runs is cancelled, and the process ends

From the engine
    ``ready``    facts: the load is done
    ``refused``  ``error``, ``message``, ``exit_code``: the load failed; the process ends
    ``progress`` ``items``: of each job that moved in a pass ``[id, text, token ids, logprobs, outcome or null]``
    ``failed``   ``id``, ``error``, ``message``: this job, or weighing, alone ended in an error
    ``weighed``  ``id``, ``rows``: of each token log probabilities of the wanted ids, and the likeliest id
    ``snapshot`` the engine's queues and counters, some ten times a second while it runs
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.request import TokenLogprob
from swiftsure.engine.sampling import SamplingParams
from swiftsure.serve.jobs import EngineFacts, Job, Outcome

HEADER = struct.Struct("<I")
MAX_FRAME = 256 * 2**20  # a length beyond it is no message of ours


def frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return HEADER.pack(len(body)) + body


def body_length(header: bytes) -> int:
    """Raises ValueError for a length that no message has."""
    (length,) = HEADER.unpack(header)
    if length > MAX_FRAME:
        raise ValueError(f"a frame of {length} bytes exceeds {MAX_FRAME}")
    return int(length)


def message_of(body: bytes) -> dict[str, Any]:
    message = json.loads(body)
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise ValueError("a message must be an object with a kind")
    return message


def job_to_wire(job: Job) -> dict[str, Any]:
    sampling = asdict(job.sampling)
    sampling["logit_bias"] = list(job.sampling.logit_bias.items())
    return {
        "prompt_ids": list(job.prompt_ids),
        "sampling": sampling,
        "choice": job.choice,
        "tier": job.tier,
        "grammar": None if job.grammar is None else asdict(job.grammar),
        "deadline_s": job.deadline_s,
        "keep_best": job.keep_best,
    }


def job_from_wire(wire: Mapping[str, Any]) -> Job:
    """Raises UsageError for values that break a rule of sampling or of grammars."""
    sampling = dict(wire["sampling"])
    sampling["logit_bias"] = dict(sampling["logit_bias"])
    return Job(
        prompt_ids=tuple(wire["prompt_ids"]),
        sampling=SamplingParams(**sampling),
        choice=wire["choice"],
        tier=wire["tier"],
        grammar=grammar_from_wire(wire),
        deadline_s=wire["deadline_s"],
        keep_best=wire["keep_best"],
    )


def grammar_from_wire(wire: Mapping[str, Any]) -> Grammar | None:
    """Of a job. Raises UsageError."""
    return None if wire["grammar"] is None else Grammar(**wire["grammar"])


def logprob_to_wire(entry: TokenLogprob, *, most: int) -> list[Any]:
    """With at most so many alternatives: more were kept for an audit."""
    return [entry.token_id, entry.logprob, [list(pair) for pair in entry.top[:most]]]


def logprob_from_wire(wire: list[Any]) -> TokenLogprob:
    token_id, logprob, top = wire
    return TokenLogprob(token_id=token_id, logprob=logprob, top=tuple((int(i), float(value)) for i, value in top))


def facts_from_wire(wire: Mapping[str, Any]) -> EngineFacts:
    return EngineFacts(**{**wire, "notes": tuple(wire["notes"])})


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    return asdict(outcome)


def outcome_from_wire(wire: Mapping[str, Any]) -> Outcome:
    return Outcome(**wire)
