"""How requests share passes: what a caller may set, checked."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields

from swiftsure.engine.backend import Backend
from swiftsure.engine.scheduler import Limits
from swiftsure.errors import UsageError

_USUAL_PRIORITY_RUNNING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """Limits of the queues. None of them changes an answer, only when it comes.

    max_running, priority_running: most requests of each tier that hold key-value blocks and share passes; further ones wait.
    priority_running is 4, or as many as priority_rows, unless given.
    priority_rows: most rows that priority requests decode in a pass, drafts included; at least one each. The rows of their prompts are not
    among them: those end where prefill_chunk_ms says, or alone with the pass.
    priority_slack: how much longer, as a share of its time, a pass with priority rows may take for the standard rows that ride along.
    prefill_chunk_ms: how much longer a pass that decodes may take for the prompt rows in it; drafts share it only within half of that time.

    Raises UsageError for values outside the ranges that the message states.
    """

    max_running: int = 16
    priority_running: int | None = None
    priority_rows: int = 16
    priority_slack: float = 0.1
    prefill_chunk_ms: float = 20.0

    def __post_init__(self) -> None:
        for name in ("max_running", "priority_running", "priority_rows"):
            value = getattr(self, name)
            if value is None and name == "priority_running":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{name} must be an integer of at least 1, got {value!r}")
        if self.priority_rows < self.priority_places:
            raise UsageError(f"priority_rows must be at least priority_running, {self.priority_running}, got {self.priority_rows}")
        if not _is_number(self.priority_slack) or not 0.0 <= self.priority_slack <= 10.0:
            raise UsageError(f"priority_slack must be a share from 0 to 10, got {self.priority_slack!r}")
        if not _is_number(self.prefill_chunk_ms) or not 1.0 <= self.prefill_chunk_ms <= 60_000.0:
            raise UsageError(f"prefill_chunk_ms must be from 1 to 60000 milliseconds, got {self.prefill_chunk_ms!r}")

    @property
    def priority_places(self) -> int:
        """``priority_running``, or what stands for it."""
        return self.priority_running if self.priority_running is not None else min(_USUAL_PRIORITY_RUNNING, self.priority_rows)

    def limits(self, backend: Backend, levers: Collection[str]) -> Limits:
        """What a pass of this back end may hold. Without batching one request of a tier runs, and no two share a pass."""
        batching = "batching" in levers
        most = min(backend.max_rows, backend.max_logit_rows)
        return Limits(
            max_rows=backend.max_rows,
            max_logit_rows=backend.max_logit_rows,
            block_size=backend.kv_block_size,
            max_running=min(self.max_running, most) if batching else 1,
            mixed_passes="chunked_prefill" in levers,
            priority_running=min(self.priority_places, most) if batching else 1,
            priority_rows=min(self.priority_rows, most),
            priority_slack=self.priority_slack if batching else None,
            prefill_chunk_s=self.prefill_chunk_ms / 1000.0,
        )

    def to_dict(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"priority_running": self.priority_places}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
