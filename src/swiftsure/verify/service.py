"""End to end from one phase: Amdahl's law (1967). A forward pass 4.1x faster is no service 4.1x faster."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from swiftsure.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """``most`` is the end-to-end speed-up that no speed of the forward phase exceeds; None where nothing else takes time."""

    forward_s: float
    other_s: float
    total_s: float
    speedup: float
    after_s: float
    end_to_end: float
    most: float | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def service(*, forward_s: float, total_s: float, speedup: float) -> Service:
    """``forward_s`` of ``total_s`` become ``speedup`` times faster. Raises UsageError for what cannot be."""
    for name, value in (("total", total_s), ("speedup", speedup)):
        if not 0 < value < math.inf:
            raise UsageError(f"{name} must be a number above 0, got {value}")
    if not 0 <= forward_s <= total_s:
        raise UsageError(f"forward must be at least 0 and at most the total of {total_s:g} s, got {forward_s:g} s")
    other_s = total_s - forward_s
    after_s = forward_s / speedup + other_s
    return Service(
        forward_s=forward_s,
        other_s=other_s,
        total_s=total_s,
        speedup=speedup,
        after_s=after_s,
        end_to_end=total_s / after_s,
        most=total_s / other_s if other_s > 0 else None,
    )


def recorded_phases(path: Path) -> dict[str, float]:
    """Seconds by phase of a run record (``run --record``, ``prove``, ``verify``). Raises UsageError for a file without measured phases."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    phases = facts.get("phases_s") if isinstance(facts, Mapping) else None
    if not isinstance(phases, Mapping) or not phases:
        raise UsageError(f"{path} holds no measured phases: a run record has them in phases_s")
    for name, value in phases.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise UsageError(f"{path}: phase {name} must be seconds of at least 0, got {value!r}")
    return {str(name).removesuffix("_s"): float(value) for name, value in phases.items()}


def service_of_record(path: Path, phase: str, speedup: float) -> Service:
    """The same from a run record: ``phase`` becomes ``speedup`` times faster. Raises UsageError for a phase that is not there."""
    phases = recorded_phases(path)
    if phase not in phases:
        raise UsageError(f"{path} has no phase {phase!r}; it has {', '.join(phases)}")
    return service(forward_s=phases[phase], total_s=math.fsum(phases.values()), speedup=speedup)
