"""What an engine is doing at a moment, cheap enough to be asked ten times a second."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """Queues, blocks and the last pass now; everything below ``passes`` counts from the load on.

    standard_held_s: time of passes that ran priority rows while standard requests were there and had no row in them.
    """

    waiting_standard: int
    waiting_priority: int
    running_standard: int
    running_priority: int
    kv_blocks_free: int  # cached blocks that nobody holds included
    kv_blocks_total: int
    last_pass_rows_standard: int
    last_pass_rows_priority: int
    passes: int
    rows: int
    prompt_rows: int
    tokens: int  # generated
    preemptions: int
    prefix_lookups: int
    prefix_hits: int
    prefix_tokens_reused: int
    drafted: int
    accepted: int
    rides_granted: int
    rides_declined: int
    standard_held_s: float

    def to_dict(self) -> dict[str, float]:
        return asdict(self)
