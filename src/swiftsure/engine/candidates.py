"""What the scheduler is shown of the queues, and the order that these are in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence as SequenceOf

from swiftsure.engine.kv_blocks import BlockManager, PrefixMatch
from swiftsure.engine.request import Sequence
from swiftsure.engine.scheduler import Candidate, Limits


def precedence(seq: Sequence) -> tuple[bool, int]:
    """Orders a queue: priority requests first, then by arrival."""
    return seq.request.tier != "priority", seq.key


def is_standard(seq: Sequence) -> bool:
    return seq.request.tier != "priority"


def priority_count(queue: SequenceOf[Sequence]) -> int:
    """How many sequences of a queue in order of precedence are priority requests."""
    return bisect_left(queue, True, key=is_standard) if queue and queue[0].request.tier == "priority" else 0


def admissible(waiting: SequenceOf[Sequence], running: SequenceOf[Sequence], limits: Limits) -> list[Sequence]:
    """The waiting requests for whom their tier has a place."""
    if not waiting:
        return []
    line, active = priority_count(waiting), priority_count(running)
    priority = max(0, limits.priority_running - active)
    standard = max(0, limits.max_running - (len(running) - active))
    return [*waiting[: min(line, priority)], *waiting[line : line + standard]]


def running_candidates(running: SequenceOf[Sequence], blocks: BlockManager, *, owned: bool) -> list[Candidate]:
    """``owned``: preemption may come, so that it matters what it would give back."""
    return [
        Candidate(
            key=seq.key,
            length=seq.length,
            computed=seq.computed,
            blocks=len(seq.table.blocks),
            draft=seq.draft_length,
            owned=blocks.owned(seq.table) if owned else 0,
            tier=seq.request.tier,
        )
        for seq in running
    ]


def waiting_candidates(waiting: SequenceOf[Sequence], blocks: BlockManager) -> tuple[list[Candidate], dict[int, PrefixMatch]]:
    """With what the prefix cache would give each, by key."""
    candidates, matches = [], {}
    for seq in waiting:
        match = matches[seq.key] = blocks.match(seq.ids[: seq.length])
        held = len(match.blocks)
        candidates.append(
            Candidate(
                key=seq.key,
                length=seq.length,
                computed=held * blocks.block_size,
                blocks=held,
                idle=match.idle,
                tier=seq.request.tier,
            )
        )
    return candidates, matches
