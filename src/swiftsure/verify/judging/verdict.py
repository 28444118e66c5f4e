"""The kinds of verdict, and how findings make one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

VerdictKind: TypeAlias = Literal["PASS", "FAIL", "INCONCLUSIVE", "HOLD", "COMPARED_ONLY", "NOT_FINISHED", "NOT_ACTIVE"]

STRONGEST_FIRST: tuple[VerdictKind, ...] = ("NOT_ACTIVE", "FAIL", "NOT_FINISHED", "HOLD", "INCONCLUSIVE", "COMPARED_ONLY", "PASS")
"""What decides where findings of several kinds stand together. A breach stays a breach when a check did not end; a candidate that is not
active was not measured at all."""

MEANINGS: Mapping[VerdictKind, str] = {
    "PASS": "the promise of the contract holds on what was measured",
    "FAIL": "a limit or the promise itself is broken",
    "INCONCLUSIVE": "too little was measured to tell",
    "HOLD": "a decision has to be taken, or a condition met, before a result can count",
    "COMPARED_ONLY": "only outputs were compared; no task was measured",
    "NOT_FINISHED": "a check did not end",
    "NOT_ACTIVE": "what was to be measured did not run",
}

EXIT_CODES: Mapping[VerdictKind, int] = {kind: {"PASS": 0, "FAIL": 1}.get(kind, 3) for kind in STRONGEST_FIRST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found out. ``about``: contract, activation, exact, tolerance, task, size, time or memory."""

    verdict: VerdictKind
    about: str
    words: str
    items_needed: int | None = None  # about so many items in all would decide

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "about": self.about, "words": self.words, "items_needed": self.items_needed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``reasons``: the findings that made it, in words."""

    kind: VerdictKind
    reasons: tuple[str, ...]
    items_needed: int | None = None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "reasons": list(self.reasons),
            "items_needed": self.items_needed,
            "meaning": MEANINGS[self.kind],
            "exit_code": self.exit_code,
        }


def decide(findings: Iterable[Finding]) -> Verdict:
    """The strongest kind among the findings. None at all prove nothing."""
    found = list(findings)
    if not found:
        return Verdict(kind="NOT_FINISHED", reasons=("nothing was compared",))
    kind = next(kind for kind in STRONGEST_FIRST if any(finding.verdict == kind for finding in found))
    deciding = [finding for finding in found if finding.verdict == kind]
    needed = [finding.items_needed for finding in deciding if finding.items_needed is not None]
    return Verdict(kind=kind, reasons=tuple(dict.fromkeys(finding.words for finding in deciding)), items_needed=max(needed, default=None))
