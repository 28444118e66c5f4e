"""What a run over many inputs says of them, as JSON."""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hostile_files.opening import STAGES
from hostile_files.workers import MEMORY_FREE_BYTES, MEMORY_PER_FILE_BYTE, REFUSED, Limits, Result
from swiftsure.records.machine import read_machine
from swiftsure.records.run_record import utc_now

SCHEMA = "swiftsure.hostile_files/1"
_SHOWN = 5


class Report:
    """Counts results as they come; keeps none but the faulty, the slowest and the hungriest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._created, self._began = utc_now(), time.monotonic()
        self._outcomes: Counter[str] = Counter()
        self._stages: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._models: dict[str, Counter[str]] = defaultdict(Counter)
        self._damage: dict[str, Counter[str]] = defaultdict(Counter)
        self._slowest: list[tuple[float, int, Result]] = []
        self._hungriest: list[tuple[float, int, Result]] = []
        self._faults: list[Result] = []

    def add(self, result: Result) -> None:
        self._outcomes[result.outcome] += 1
        self._stages[result.stage] += 1
        self._errors[result.error or "none"] += 1
        model, *damage = result.name.split(" + ")
        self._models[model][result.outcome] += 1
        for kind in set(damage):
            self._damage[kind][result.outcome] += 1
        _keep(self._slowest, result.cpu_s, result)
        if result.outcome == REFUSED:  # what runs takes what it calls for
            _keep(self._hungriest, result.excess_bytes, result)
        if result.faulty:
            self._faults.append(result)

    def facts(self, *, first: int, command: str) -> dict[str, Any]:
        """``first`` is the number of the first input. Counts by outcome stand per model that inputs were made from and per kind of damage;
        an input with several kinds counts for each."""
        return {
            "schema": SCHEMA,
            "created": self._created,
            "command": command,
            "machine": asdict(read_machine()),
            "limits": {
                "cpu_s": self._limits.cpu_s,
                "memory": f"{MEMORY_PER_FILE_BYTE} x the file + {MEMORY_FREE_BYTES} bytes" if self._limits.memory else None,
            },
            "inputs": sum(self._outcomes.values()),
            "first": first,
            "seconds": round(time.monotonic() - self._began, 1),
            "outcomes": dict(self._outcomes),
            "stages": {stage: self._stages[stage] for stage in ("start", *STAGES) if self._stages[stage]},
            "errors": dict(sorted(self._errors.items())),
            "models": {model: dict(self._models[model]) for model in sorted(self._models)},
            "damage": {kind: dict(self._damage[kind]) for kind in sorted(self._damage)},
            "largest_excess_bytes": max((int(excess) for excess, _, _ in self._hungriest), default=0),
            "hungriest_refused": _shown(self._hungriest),
            "slowest": _shown(self._slowest),
            "faults": [{"number": f.number, "name": f.name, "outcome": f.outcome, "sentence": f.sentence[:2000]} for f in self._faults],
        }


def _keep(heap: list[tuple[float, int, Result]], value: float, result: Result) -> None:
    """The largest few; numbers are unique, so that results are never compared."""
    heapq.heappush(heap, (value, result.number, result))
    if len(heap) > _SHOWN:
        heapq.heappop(heap)


def _shown(heap: Sequence[tuple[float, int, Result]]) -> list[dict[str, Any]]:
    fields = ("number", "name", "outcome", "stage", "cpu_s", "growth_bytes", "file_bytes")
    return [
        {field: getattr(result, field) for field in fields} | {"sentence": result.sentence[:200]} for _, _, result in sorted(heap)[::-1]
    ]
