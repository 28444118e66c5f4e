"""The seam between what is compared and how it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Status: TypeAlias = Literal["ran", "refused", "out_of_memory", "timed_out", "failed"]
Output: TypeAlias = NDArray[np.generic] | str | Mapping[str, Any] | Sequence[Any]
"""A tensor, a text, or what JSON holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input. ``size`` orders inputs (tokens, residues, bytes: ``unit`` of the contract); ``cluster`` names what belongs together
    (one document, one target), so that its items do not count as independent."""

    id: str
    size: float | None = None
    cluster: str | None = None
    path: Path | None = None  # of a command's input
    request: Mapping[str, Any] = field(default_factory=dict)  # of a language model: messages or prompt, max_tokens, sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """``unknown``: nothing in the contract says how to tell. ``evidence`` is the line, match or metric that told."""

    state: Literal["active", "not_active", "unknown"]
    evidence: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One case, answered once. ``phases_s`` sums to ``wall_s`` where phases are known; ``reason`` is set unless the status is ``ran``.

    ``activation``: what this one run said of itself, for subjects that only a run can tell it of; None where nothing was said.
    ``logs`` are files that ``close`` removes; ``notes`` say what a reader of the figures must know.
    """

    case: Case
    status: Status
    outputs: Mapping[str, Output] = field(default_factory=dict)
    wall_s: float | None = None
    phases_s: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    reason: str | None = None
    activation: Activation | None = None
    logs: Mapping[str, Path] = field(default_factory=dict)  # stdout, stderr
    notes: tuple[str, ...] = ()


class Subject(Protocol):
    """A baseline or a candidate. ``run`` never raises for what a case does to it: that is a trial's status."""

    spec: str  # as the user wrote it: mode:fast, url:http://a/v1, file:x.gguf, cmd:...

    def start(self) -> Activation: ...

    def run(self, case: Case) -> Trial: ...

    def pins(self) -> Mapping[str, Any]: ...

    def close(self) -> None: ...
