"""What a load can say of itself while it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """``finished`` of ``total`` exchanges have ended, ``failed`` of them with an error; ``output_tokens`` are of the finished ones."""

    elapsed_s: float
    total: int
    finished: int
    failed: int
    in_flight: int
    output_tokens: int
