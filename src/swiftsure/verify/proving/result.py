"""What ``prove`` found out. The keys of ``to_json`` are stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from swiftsure.records.machine import MachineFacts
from swiftsure.records.run_record import RunRecord, write_json, write_text

if TYPE_CHECKING:
    from rich.console import Console

Verdict: TypeAlias = Literal["PROVED", "FAILED", "UNPROVED", "NOT_ACTIVE", "INCONCLUSIVE"]
"""PROVED: what was promised holds, levers with evidence. FAILED: something differs or broke. UNPROVED: equal, but a lever that had
occasions left no evidence. NOT_ACTIVE: it did not run, for the reason given. INCONCLUSIVE: nothing was compared, or tolerances hold and
no task was measured or decided."""

EXIT_STATUS: Mapping[Verdict, str] = {"PROVED": "ok", "FAILED": "failed", "UNPROVED": "unproved", "INCONCLUSIVE": "unproved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeResult:
    """One row of the table. Figures are ``None`` or empty where the mode did not run; ``speedup`` is null where INCONCLUSIVE."""

    mode: str
    verdict: Verdict
    reason: str | None
    decode_tokens_per_s: float | None = None
    ttft_s: float | None = None
    end_to_end_s: float | None = None  # one pass over the workload, loading included
    peak_rss_bytes: int | None = None
    memory_ratio: float | None = None
    keeps_bits: bool = True  # of default; otherwise the bits compared are those of the mode's own first pass, and it owes a contract
    contract: Mapping[str, Any] = field(default_factory=dict)  # limits, figures by text and size, breaches
    bits_compared: int = 0
    bits_differing: int = 0
    levers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    speedup: Mapping[str, float | None] = field(default_factory=lambda: dict.fromkeys(("decode", "ttft", "end_to_end")))
    intervals: Mapping[str, Any] = field(default_factory=dict)
    worst: Mapping[str, Any] = field(default_factory=dict)
    by_kind: Mapping[str, Any] = field(default_factory=dict)
    by_size: Mapping[str, Any] = field(default_factory=dict)
    by_sampling: Mapping[str, Any] = field(default_factory=dict)
    phases_s: Mapping[str, float] = field(default_factory=dict)
    phase_speedup: Mapping[str, float | None] = field(default_factory=dict)
    pass_speedup: float | None = None  # end_to_end_s of default / of this mode
    memory_wall: Mapping[str, Any] = field(default_factory=dict)
    proof: Mapping[str, Any] = field(default_factory=dict)
    tokens_per_pass: float | None = None
    speculation: Mapping[str, Any] | None = None
    rounds: int = 0

    @property
    def lacks_task_only(self) -> bool:
        return self.verdict == "INCONCLUSIVE" and bool(self.contract.get("kept"))

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveResult:
    """``modes`` in the order of the table. ``named`` are the modes that the caller asked about; empty: whatever ran."""

    modes: tuple[ModeResult, ...]
    named: tuple[str, ...]
    machine: MachineFacts
    pins: Mapping[str, Any]
    upstream: Mapping[str, Any]
    workload: Mapping[str, Any]
    prompts: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    bandwidth: Mapping[str, Any]
    wall_s: float
    created: str
    arguments: Sequence[str] = ()

    def mode(self, name: str) -> ModeResult:
        return next(mode for mode in self.modes if mode.mode == name)

    @property
    def exit_code(self) -> int:
        """1: a mode failed, or agreement with upstream did; 3: one is unproved, or named and not active; 0: all that counts is proved.

        Where no mode was named, one that kept its tolerances and lacks only the task result does not count: nobody asked to rely on it.
        """
        counted = [mode for mode in self.modes if (mode.mode in self.named if self.named else not mode.lacks_task_only)]
        upstream = self.upstream.get("verdict", {}).get("exit_code", 0)  # counts where it was asked for
        if upstream == 1 or any(mode.verdict == "FAILED" for mode in counted):
            return 1
        short = ("UNPROVED", "INCONCLUSIVE", "NOT_ACTIVE") if self.named else ("UNPROVED", "INCONCLUSIVE")
        return 3 if upstream or any(mode.verdict in short for mode in counted) else 0

    @property
    def status(self) -> str:
        return {0: "ok", 1: "failed"}.get(self.exit_code, "unproved")

    def to_json(self) -> dict[str, Any]:
        return {
            "modes": [mode.to_dict() for mode in self.modes],
            "machine": self.machine.to_dict(),
            "pins": dict(self.pins),
            "upstream": dict(self.upstream),
            "workload": dict(self.workload),
            "prompts": [dict(prompt) for prompt in self.prompts],
            "settings": dict(self.settings),
            "bandwidth": dict(self.bandwidth),
            "exit_code": self.exit_code,
            "wall_s": self.wall_s,
            "created": self.created,
        }

    def record(self) -> RunRecord:
        """The run record; its levers, phases and peak memory are those of the last mode that ran."""
        ran = [mode for mode in self.modes if mode.phases_s] or [self.modes[0]]
        return RunRecord(
            command="prove",
            arguments=tuple(self.arguments),
            status=self.status,
            mode="+".join(mode.mode for mode in ran),
            numerics=str(self.settings["numerics"]),
            isa=str(self.settings["isa"]),
            threads=int(self.settings["threads"]),
            thread_choice=self.settings.get("thread_choice"),
            pins=self.pins,
            machine=self.machine,
            levers=ran[-1].levers,
            phases_s=ran[-1].phases_s,
            peak_rss_bytes=ran[-1].peak_rss_bytes,
            results=self.to_json(),
            created=self.created,
        )

    def write_json(self, path: str | Path) -> None:
        write_json(path, self.to_json())

    def write_report(self, folder: str | Path) -> Path:
        """Writes ``report.html`` and ``record.json`` and returns the path of the report."""
        from swiftsure.verify.proving.report import render_report

        target = Path(folder)
        write_text(target / "report.html", render_report(self))
        self.record().write(target / "record.json")
        return target / "report.html"

    def print_table(self, console: Console) -> None:
        from swiftsure.verify.proving.table import print_table

        print_table(self, console)
