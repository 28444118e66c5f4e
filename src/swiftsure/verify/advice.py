"""Which mode suits what must be preserved and what limits the run. Modes are no ladder: each keeps another promise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from swiftsure.errors import UsageError
from swiftsure.verify.service import service

Preserve: TypeAlias = Literal["bits", "task", "size"]
Limit: TypeAlias = Literal["forward", "other", "memory"]
PRESERVES: tuple[Preserve, ...] = get_args(Preserve)
LIMITS: tuple[Limit, ...] = get_args(Limit)
LEAST_SHARE = 0.3
"""Below this share of the whole time, no speed of the forward pass makes the whole 1.43x faster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """``mode``: what to verify; None where no mode helps. ``reasons`` one sentence each."""

    mode: str | None
    reasons: tuple[str, ...]


def advise(preserve: str, limit: str | None = None, phases_s: Mapping[str, float] | None = None, forward: str = "decode") -> Advice:
    """``phases_s``: measured phases of a run, which then say what limits it; ``forward``: the phase that modes make faster.

    Raises UsageError for a word that is not known and a phase that is not there.
    """
    if preserve not in PRESERVES:
        raise UsageError(f"--preserve must be one of {', '.join(PRESERVES)}, got {preserve!r}")
    if limit is not None and limit not in LIMITS:
        raise UsageError(f"--limit must be one of {', '.join(LIMITS)}, got {limit!r}")
    reasons = []
    if phases_s is not None:
        measured, words = _measured_limit(phases_s, forward)
        reasons.append(words)
        if limit is None:
            limit = measured
        elif limit != measured and limit != "memory":
            reasons.append(f"--limit says {limit}, the record says {measured}: the record counts")
            limit = measured
    mode, why = _mode(preserve, limit)
    return Advice(mode=mode, reasons=(*reasons, *why))


def _measured_limit(phases_s: Mapping[str, float], forward: str) -> tuple[Limit, str]:
    if forward not in phases_s:
        raise UsageError(f"the record has no phase {forward!r}; it has {', '.join(phases_s)}")
    total = math.fsum(phases_s.values())
    if total <= 0:
        raise UsageError("the record's phases take no time at all")
    found = service(forward_s=phases_s[forward], total_s=total, speedup=4.1)
    share = found.forward_s / total
    words = f"{forward} is {share:.0%} of {total:.4g} s: made 4.1x faster, the whole becomes {found.end_to_end:.2f}x faster"
    return ("forward" if share >= LEAST_SHARE else "other"), words


def _mode(preserve: str, limit: str | None) -> tuple[str | None, tuple[str, ...]]:
    if limit == "other" and preserve != "size":
        return None, ("what limits the run lies outside the forward pass (CPU, input or output): no mode changes that, so hold off",)
    if preserve == "size":
        reasons = ["big: larger inputs run within a memory limit; whether they are accurate is measured separately, size by size"]
        if limit == "other":
            reasons.append("what lies outside the forward pass stays as slow as it is")
        return "big", tuple(reasons)
    if preserve == "bits":
        reasons = ["exact: the bits of default, sooner; verified to the bit, no task needs to be measured"]
        if limit == "memory":
            reasons.append("exact does not use less memory than default; only big is made for that, and it does not keep the bits")
        return "exact", tuple(reasons)
    reasons = ["fast: numeric differences within tolerances that you declare, and your task measured on the same items"]
    if limit == "memory":
        reasons.append("fast may use more memory than default: limit it in the contract ([memory] most_ratio)")
    return "fast", tuple(reasons)
