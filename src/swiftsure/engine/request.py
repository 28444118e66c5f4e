"""A request, what the engine knows of it while it runs, and what comes back."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from swiftsure.engine.constraints.grammar import Grammar
from swiftsure.engine.drafting.source import Draft
from swiftsure.engine.kv_blocks import BlockTable
from swiftsure.engine.sampling import SamplingParams
from swiftsure.engine.scheduler import Tier
from swiftsure.engine.speculation import Acceptance
from swiftsure.engine.text import TextAssembler
from swiftsure.engine.token_chain import TokenChain
from swiftsure.errors import UsageError

FinishReason: TypeAlias = Literal["stop", "length", "cancelled"]
LogitsCallback: TypeAlias = Callable[[int, NDArray[np.float32]], None]
"""``(position, row)``: ``row`` is the raw logits ``(vocab,)`` computed at ``position``, the last token of the prefix that they follow, so
the first call has position ``len(prompt) - 1``. Called once per generated token, in order. The row is a view, valid during the call.
It may cancel, but not generate: the pass it is called from is not over."""
MAX_CHOICES = 2**31


class TokenSampler(Protocol):
    """What the engine needs of ``kernels.Sampler``."""

    def accept(self, logits: NDArray[np.float32], draft: NDArray[np.int32], /) -> NDArray[np.int32]: ...


class Drawing(TypedDict):
    """Keyword arguments of ``kernels.Sampler`` and ``kernels.DraftSampler``."""

    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    choice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt with its sampling values, checked against model and context already."""

    prompt_ids: NDArray[np.int32]  # (prompt tokens,), at least one
    sampling: SamplingParams
    choice: int = 0  # keys the noise of sampling beside the seed, so that one prompt can have several answers
    tier: Tier = "standard"
    on_logits: LogitsCallback | None = None
    digest: bool = False  # whether the chain of its logits is kept
    grammar: Grammar | None = None  # what its text conforms to
    arrived_s: float = 0.0  # perf_counter when the caller asked
    tokenize_s: float = 0.0

    @property
    def drawing(self) -> Drawing:
        """What decides a token beside logits and penalties: for the sampler, and for drafts that are drawn alike."""
        params = self.sampling
        return {
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_k": params.top_k,
            "min_p": params.min_p,
            "seed": params.seed or 0,
            "choice": self.choice,
        }


def check_fields(*, on_logits: object, choice: object, tier: object, digest: object) -> None:
    """What a caller passes in for a :class:`Request`. Raises UsageError with the rule and the value."""
    if on_logits is not None and not callable(on_logits):
        raise UsageError(f"on_logits must be callable with (position, row), got {on_logits!r}")
    if isinstance(choice, bool) or not isinstance(choice, int) or not 0 <= choice < MAX_CHOICES:
        raise UsageError(f"choice must be an integer from 0 to {MAX_CHOICES - 1}, got {choice!r}")
    if tier not in get_args(Tier):
        raise UsageError(f"tier must be {' or '.join(get_args(Tier))}, got {tier!r}")
    if not isinstance(digest, bool):
        raise UsageError(f"digest must be True or False, got {digest!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """The log probability of a generated token under the raw logits, and the best alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, log probability), best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where the time of one request went, in seconds.

    Phases follow each other: tokenize, queue (until its first row is run), prefill (until the first token), decode (until the last one,
    without detokenize), detokenize. ``ttft_s`` and ``total_s`` count from the call.
    """

    tokenize_s: float
    queue_s: float
    prefill_s: float
    decode_s: float
    detokenize_s: float
    ttft_s: float | None  # None: no token came
    total_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def decode_tokens_per_s(self) -> float | None:
        """(output tokens - 1) / decode_s: the first token belongs to prefill. None with fewer than two tokens."""
        return (self.output_tokens - 1) / self.decode_s if self.output_tokens > 1 and self.decode_s > 0 else None

    def to_dict(self) -> dict[str, float | int | None]:
        return {name: getattr(self, name) for name in (*self.__slots__, "decode_tokens_per_s")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What one request produced.

    token_ids are all sampled tokens, with the end-of-turn token or the tokens of a stop string where one ended the text.
    sampling holds the values that were used, a drawn seed included. levers is the evidence of this request alone. digest is that of the
    chain of logits behind token_ids (:mod:`swiftsure.engine.token_chain`), where it was asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    finish_reason: FinishReason
    sampling: SamplingParams
    timing: Timing
    logprobs: tuple[TokenLogprob, ...] | None = None
    levers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    digest: str | None = None

    def __str__(self) -> str:
        return self.text


class State(enum.Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """The running state of one request. Only the engine changes it.

    Whoever drives passes reads ``finished``, ``finish_reason`` and ``error``, fetches new text with ``take_pieces``, finds the tokens so
    far in ``token_ids`` and the whole result in ``generation()``; setting ``cancel_requested`` ends the request before the next pass.
    """

    key: int
    request: Request
    ids: NDArray[np.int32]  # (most tokens it can reach,): prompt, output, then room for a draft
    length: int  # tokens known
    sampler: TokenSampler
    assembler: TextAssembler
    chain: TokenChain | None = None  # as far as token_ids; a preempted request keeps it
    state: State = State.WAITING
    computed: int = 0  # leading tokens whose keys and values are in the cache
    slot: int = -1  # row of the runner's block table; only while running
    table: BlockTable = field(default_factory=BlockTable)
    draft: Draft | None = None  # continuation that a source offers for the next pass
    draft_source: str = ""
    draft_length: int = 0  # how much of it the next pass verifies
    draft_declined: bool = False  # verifying none of it was chosen
    acceptance: dict[str, Acceptance] = field(default_factory=dict)  # by source of drafts
    cancel_requested: bool = False
    queued_s: float = field(default_factory=perf_counter)
    finish_reason: FinishReason | None = None
    error: Exception | None = None
    pieces: list[str] = field(default_factory=list)  # text not yet fetched by a stream
    logprobs: list[TokenLogprob] = field(default_factory=list)
    scheduled_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0
    finished_s: float = 0.0
    detokenize_s: float = 0.0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt_ids)

    @property
    def output_length(self) -> int:
        return self.length - self.prompt_length

    @property
    def token_ids(self) -> list[int]:
        """The tokens generated so far."""
        ids: list[int] = self.ids[self.prompt_length : self.length].tolist()
        return ids

    @property
    def finished(self) -> bool:
        return self.state is State.FINISHED

    def count(self, lever: str, **amounts: int) -> None:
        """Adds to this request's own evidence."""
        counts = self.counts.setdefault(lever, {})
        for name, amount in amounts.items():
            counts[name] = counts.get(name, 0) + amount

    def restart(self) -> None:
        """Back to the queue: nothing is computed any more, and the draft is asked for anew."""
        self.computed, self.draft, self.draft_length = 0, None, 0
        self.state = State.WAITING

    def take_pieces(self) -> list[str]:
        pieces, self.pieces = self.pieces, []
        return pieces

    def generation(self) -> Generation:
        """The result so far (finish reason ``cancelled``), or in the end."""
        request = self.request
        return Generation(
            text=self.assembler.text,
            token_ids=tuple(self.token_ids),
            prompt_ids=tuple(request.prompt_ids.tolist()),
            finish_reason=self.finish_reason or "cancelled",
            sampling=request.sampling,
            timing=self._timing(self.finished_s or perf_counter()),
            logprobs=None if request.sampling.logprobs is None else tuple(self.logprobs),
            levers={name: dict(counts) for name, counts in self.counts.items()},
            digest=None if self.chain is None else self.chain.digest,
        )

    def _timing(self, now_s: float) -> Timing:
        request, first = self.request, self.first_token_s
        scheduled = self.scheduled_s or now_s
        asked = request.arrived_s
        return Timing(
            tokenize_s=request.tokenize_s,
            queue_s=max(0.0, scheduled - asked - request.tokenize_s),
            prefill_s=(first or now_s) - scheduled,
            decode_s=max(0.0, self.last_token_s - first - self.detokenize_s) if first else 0.0,
            detokenize_s=self.detokenize_s,
            ttft_s=first - asked if first else None,
            total_s=now_s - asked,
            prompt_tokens=self.prompt_length,
            output_tokens=self.output_length,
        )


def as_ids(ids: Any) -> NDArray[np.int32]:
    """A private, contiguous int32 copy that nobody can write to."""
    array = np.array(ids, dtype=np.int32)
    array.setflags(write=False)
    return array
