"""What levers did, counted where it happened, beside the occasions on which they could have done it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from swiftsure.engine.scheduler import Step


@dataclass(slots=True)
class SpeculationEvidence:
    occasions: int = 0  # decode passes of a sequence in which a source had a continuation
    declined: int = 0  # of those, where verifying none was the best choice by measured cost and acceptance, or no row was left
    drafted: int = 0  # draft rows that passes ran
    accepted: int = 0  # draft tokens that were the sampled ones
    passes: int = 0  # decode passes of a sequence, with a draft or without
    by_source: dict[str, list[int]] = field(default_factory=dict)  # the last two, by source

    def count(self, source: str, *, declined: int, drafted: int, accepted: int) -> None:
        """One occasion: the source's draft was declined, or so many of its tokens were verified and right."""
        self.occasions += 1
        self.declined += declined
        self.drafted += drafted
        self.accepted += accepted
        mine = self.by_source.setdefault(source, [0, 0])
        mine[0] += drafted
        mine[1] += accepted


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
class PackingEvidence:
    occasions: int = 0  # passes
    matmuls: int = 0  # matrices packed so that passes multiplied


@dataclass(slots=True)
class SmallKVEvidence:
    occasions: int = 0  # passes
    layers: int = 0  # layers whose keys and values passes stored so


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
    row_integers: PackingEvidence = field(default_factory=PackingEvidence)
    int8_kv: SmallKVEvidence = field(default_factory=SmallKVEvidence)
    passes: PassCounts = field(default_factory=PassCounts)

    def count_numeric(self, lever: str, uses: int) -> None:
        """One pass with so many matrices or layers that a numeric lever applies to."""
        counts = getattr(self, lever)
        counts.occasions += 1
        if isinstance(counts, SmallKVEvidence):
            counts.layers += uses
        else:
            counts.matmuls += uses

    def of(self, lever: str) -> dict[str, int]:
        """The counters of one lever, occasions first; those of a source of drafts are called ``lookup_drafted`` and so on."""
        counts: dict[str, Any] = asdict(getattr(self, lever))
        for source, (drafted, accepted) in counts.pop("by_source", {}).items():
            counts |= {f"{source}_drafted": drafted, f"{source}_accepted": accepted}
        return counts


def count_pass(evidence: Evidence, step: Step, *, requests: int, decoding: bool, full: bool, levers: Collection[str]) -> None:
    """Counts what a pass is and what it could have been.

    requests: how many are there, running or waiting. decoding: one of them was decoding. full: no row or block was left for another.
    """
    passes, batching, chunked = evidence.passes, evidence.batching, evidence.chunked_prefill
    rows = step.rows
    prompt_rows = sum(w.rows for w in step.work if w.rows > 1 or not w.sample)
    passes.passes += 1
    passes.rows += rows
    passes.most_rows = max(passes.most_rows, rows)
    passes.prompt_rows += prompt_rows
    if "batching" in levers and requests > 1:
        shared = len(step.work) > 1
        batching.occasions += 1
        batching.no_room += full and not shared
        batching.shared_passes += shared
        batching.requests += len(step.work) if shared else 0
        batching.most_requests = max(batching.most_requests, len(step.work))
    if "chunked_prefill" in levers and prompt_rows and decoding:
        mixed = any(w.rows == 1 and w.sample for w in step.work)
        chunked.occasions += 1
        chunked.mixed_passes += mixed
        chunked.prompt_rows += prompt_rows if mixed else 0
