"""What levers did, counted where it happened, beside the occasions on which they could have done it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from swiftsure.engine.scheduler import Step, Tier


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
    no_room: int = 0  # of those, where the others had to wait for blocks, rows or a place
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
    tokens: int = 0  # generated


@dataclass(slots=True)
class TierCounts:
    requests: int = 0  # that ran a first row
    passes: int = 0  # with rows of the tier
    rows: int = 0
    waited_s: float = 0.0  # from being queued to the first row, summed
    longest_wait_s: float = 0.0


@dataclass(slots=True)
class TierEvidence:
    """What priority requests took from standard ones, and what these kept."""

    standard: TierCounts = field(default_factory=TierCounts)
    priority: TierCounts = field(default_factory=TierCounts)
    rides_granted: int = 0  # standard requests with rows in a pass with priority rows, summed over such passes
    rides_declined: int = 0  # without, because the pass would have taken longer than the slack allows
    standard_held_s: float = 0.0  # passes with priority rows and none of the standard requests that were there
    longest_hold_s: float = 0.0  # such passes in a row
    hold_s: float = 0.0  # the present row of them


@dataclass(slots=True)
class Evidence:
    speculation: SpeculationEvidence = field(default_factory=SpeculationEvidence)
    prefix_cache: PrefixCacheEvidence = field(default_factory=PrefixCacheEvidence)
    batching: BatchingEvidence = field(default_factory=BatchingEvidence)
    chunked_prefill: ChunkedPrefillEvidence = field(default_factory=ChunkedPrefillEvidence)
    row_integers: PackingEvidence = field(default_factory=PackingEvidence)
    int8_kv: SmallKVEvidence = field(default_factory=SmallKVEvidence)
    passes: PassCounts = field(default_factory=PassCounts)
    tiers: TierEvidence = field(default_factory=TierEvidence)

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

    def of_tiers(self) -> dict[str, float]:
        """The counters of the tiers, each tier's called ``standard_rows`` and so on."""
        counts: dict[str, Any] = asdict(self.tiers)
        del counts["hold_s"]
        mine = {f"{tier}_{name}": value for tier in get_args(Tier) for name, value in counts.pop(tier).items()}
        return mine | counts


def count_tiers(evidence: TierEvidence, step: Step, rows: int, seconds: float, *, standard_there: bool) -> tuple[int, int]:
    """Counts whose ``rows`` a pass ran, in ``seconds``; returns the rows of standard and of priority requests.

    standard_there: a standard request was running or waiting.
    """
    if step.work[0].tier == "standard":  # priority requests come first
        evidence.standard.passes += 1
        evidence.standard.rows += rows
        evidence.hold_s = 0.0
        return rows, 0
    priority = sum(w.rows + w.draft for w in step.work if w.tier == "priority")
    standard = rows - priority
    for counts, of_tier in ((evidence.standard, standard), (evidence.priority, priority)):
        if of_tier:
            counts.passes += 1
            counts.rows += of_tier
    evidence.rides_declined += step.declined
    if priority and standard:
        evidence.rides_granted += sum(w.tier == "standard" for w in step.work)
    if priority and standard_there and not standard:
        evidence.standard_held_s += seconds
        evidence.hold_s += seconds
        evidence.longest_hold_s = max(evidence.longest_hold_s, evidence.hold_s)
    else:
        evidence.hold_s = 0.0
    return standard, priority


def count_start(evidence: TierEvidence, tier: Tier, waited_s: float) -> None:
    """A request runs its first row."""
    counts = evidence.priority if tier == "priority" else evidence.standard
    counts.requests += 1
    counts.waited_s += waited_s
    counts.longest_wait_s = max(counts.longest_wait_s, waited_s)


def count_pass(evidence: Evidence, step: Step, *, requests: int, decoding: bool, full: bool, levers: Collection[str]) -> None:
    """Counts what a pass is and what it could have been.

    requests: how many are there, running or waiting. decoding: one of them was decoding. full: no row or block was left for another, or
    the pass was in a hurry.
    """
    passes, batching, chunked = evidence.passes, evidence.batching, evidence.chunked_prefill
    rows = step.rows
    prompt_rows = sum([w.rows for w in step.work if w.rows > 1 or not w.sample])
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
