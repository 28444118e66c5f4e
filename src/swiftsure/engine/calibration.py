"""What passes of so many rows cost here, remembered between starts, so that a warm start measures nothing.

One small file a key under ``calibration/`` of the cache folder. A record is a first guess that running corrects, so it may be a day old at
most, and one that was taken beside busy neighbours is not kept. Measurements that take no time worth a file are not kept either.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from swiftsure.models import cache

MOST_AGE_S = 86_400.0
LEAST_S = 0.02
_QUIET_CPUS = 0.5  # what others may keep busy while costs are measured that later starts rely on


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationKey:
    """What the time of a pass depends on."""

    weights_sha256: str
    variant: str  # how the weights are packed
    version: str  # of Swiftsure: other kernels cost otherwise
    numerics: str
    levers: str  # those that are on, joined: some change the work of a row
    isa: str
    threads: int
    processor: str

    @property
    def path(self) -> Path:
        text = json.dumps(asdict(self), sort_keys=True)
        return cache.home() / "calibration" / (hashlib.sha256(text.encode()).hexdigest()[:40] + ".json")


def known_costs(key: CalibrationKey) -> dict[int, float] | None:
    """Seconds of a pass by rows, as an earlier start measured them; None when there is no sound and fresh record."""
    try:
        record = json.loads(key.path.read_text(encoding="utf-8"))
        if record["key"] != asdict(key) or not 0 <= time.time() - record["time"] < MOST_AGE_S:
            return None
        costs = {int(rows): float(seconds) for rows, seconds in record["seconds_by_rows"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # absent or damaged: measured anew
    return costs if costs and all(math.isfinite(seconds) and seconds > 0 for seconds in costs.values()) else None


def keep_costs(key: CalibrationKey, costs: Mapping[int, float], *, took_s: float, others_busy_cpus: float | None) -> None:
    """Keeps a measurement that took ``took_s``. Best effort: what cannot be written is measured again."""
    if took_s < LEAST_S or (others_busy_cpus or 0.0) > _QUIET_CPUS:
        return
    record = {"key": asdict(key), "time": time.time(), "seconds_by_rows": {str(rows): seconds for rows, seconds in costs.items()}}
    with contextlib.suppress(OSError):
        cache.write_whole(key.path, json.dumps(record))
