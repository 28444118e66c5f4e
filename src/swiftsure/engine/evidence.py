"""What levers did, counted where it happened, beside the occasions on which they could have done it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class SpeculationEvidence:
    occasions: int = 0  # decode passes of a sequence in which the drafter had a continuation
    declined: int = 0  # of those, where verifying none was the best choice by measured cost and acceptance, or no row was left
    drafted: int = 0  # draft rows that passes ran
    accepted: int = 0  # draft tokens that were the sampled ones


@dataclass(slots=True)
class PrefixCacheEvidence:
    occasions: int = 0  # prompts whose first block an earlier request of this load computed
    evicted: int = 0  # of those, where the block had been given up for lack of room
    lookups: int = 0
    hits: int = 0
    tokens_reused: int = 0


@dataclass(slots=True)
class BatchingEvidence:
    occasions: int = 0  # passes while more than one request was there
    no_room: int = 0  # of those, where the others had to wait for blocks or rows
    shared_passes: int = 0  # passes with rows of more than one request
    requests: int = 0  # summed over the shared passes
    most_requests: int = 0


@dataclass(slots=True)
class ChunkedPrefillEvidence:
    occasions: int = 0  # passes while a request decoded and prompt rows were due
    mixed_passes: int = 0  # passes with decode rows and prompt rows
    prompt_rows: int = 0  # prompt rows in those


@dataclass(slots=True)
class PassCounts:
    """Every pass, whatever the mode."""

    passes: int = 0
    rows: int = 0
    most_rows: int = 0
    prompt_rows: int = 0
    preemptions: int = 0


@dataclass(slots=True)
class Evidence:
    speculation: SpeculationEvidence = field(default_factory=SpeculationEvidence)
    prefix_cache: PrefixCacheEvidence = field(default_factory=PrefixCacheEvidence)
    batching: BatchingEvidence = field(default_factory=BatchingEvidence)
    chunked_prefill: ChunkedPrefillEvidence = field(default_factory=ChunkedPrefillEvidence)
    passes: PassCounts = field(default_factory=PassCounts)

    def of(self, lever: str) -> dict[str, int]:
        """The counters of one lever, occasions first."""
        counts: dict[str, Any] = asdict(getattr(self, lever))
        return counts
