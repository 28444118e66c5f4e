"""What the server asks of an engine, and what comes back. All interfaces translate between their wire format and these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.request import TokenLogprob
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier

TIERS: tuple[Tier, ...] = ("standard", "priority")

JobEnd: TypeAlias = Literal["stop", "length", "cancelled", "deadline"]
"""``stop``: an end token, a stop string or a complete grammar. ``length``: max_tokens or the context's edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One answer to one prompt, checked: the prompt fits the context and every id is in the vocabulary.

    sampling: resolved, a drawn seed included, so that the job can be repeated with the same tokens. choice: keys the noise beside the seed,
    so that one prompt has several answers. grammar: what the text must conform to. deadline_s: from submission, waiting included.
    keep_best: of each row so many of the likeliest tokens are kept for the outcome, for audits. id: this side's name for it, in audits.
    """

    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    choice: int = 0
    tier: Tier = "standard"
    grammar: Grammar | None = None
    deadline_s: float | None = None
    keep_best: int = 0
    id: str = field(default_factory=lambda: uuid4().hex)

    @property
    def tokens(self) -> int:
        """The most tokens that it can come to, prompt included."""
        return len(self.prompt_ids) + self.sampling.max_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What came since the chunk before. ``text`` holds whole characters only and may be empty while a stop string may be under way;
    ``logprobs`` has one entry a token where they were asked for."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended.

    stop_string: the one that ended the text, if one did. cached_tokens: of the prompt, read from the prefix cache. timing: seconds by phase
    (engine/request.Timing). levers: this request's own evidence. digest: of the chain of its logits
    (engine/token_chain.py). digest_trace: four bytes of the chain's state after each token, in hexadecimal. best: token ids and log
    probabilities of each row, as many as the job has in ``keep_best``.
    """

    finish_reason: JobEnd
    stop_string: str | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    tier: Tier
    timing: Mapping[str, float | int | None]
    levers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    digest: str | None = None
    digest_trace: str = ""
    best: Sequence[tuple[Sequence[int], Sequence[float]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine process says of itself once it is ready.

    activation: ``Activation.to_dict()``. active_line: the ACTIVE line of the run. notes: what a user should know of how it was loaded.
    """

    activation: Mapping[str, Any]
    active_line: str
    context: int
    vocab_size: int
    model: str
    weights_sha256: str
    mode: str
    numerics: str
    isa: str
    threads: int
    notes: tuple[str, ...] = ()
    load_s: float = 0.0

    @property
    def fingerprint(self) -> str:
        """``system_fingerprint``: what the logits are a function of beside the tokens."""
        return f"sw-{self.numerics}-{self.weights_sha256[:12]}"
